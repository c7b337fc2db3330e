// Package rights compares what kubemend is granted, in the shipped manifests, with what it does, in the audit logs of API servers.
//
// It compares single rights: one verb on one kind of objects, or at one path. It does no I/O.
package rights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Right is a kind of request that is granted or was made: Verb on objects of Group and Resource, or at URL.
type Right struct {
	// Group and Resource are the kind of the objects, with a subresource after a slash. They are empty if URL is set.
	Group, Resource string
	// Namespace and Name limit the right to some objects; empty means all.
	Namespace, Name string
	// URL is a path outside of the API of objects. If it ends with *, it stands for all paths with that prefix.
	URL  string
	Verb string
}

// String returns a right as in tests and in the documentation, such as "patch metal3.io/baremetalhosts".
func (r Right) String() string {
	if r.URL != "" {
		return r.Verb + " " + r.URL
	}
	s := r.Verb + " " + strings.TrimPrefix(r.Group+"/"+r.Resource, "/")
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	return s
}

func (r Right) covers(done Right) bool {
	if r.URL != "" || done.URL != "" {
		prefix, open := strings.CutSuffix(r.URL, "*")
		return r.Verb == done.Verb && r.URL != "" && (r.URL == done.URL || open && strings.HasPrefix(done.URL, prefix))
	}
	return r.Verb == done.Verb && r.Group == done.Group && r.Resource == done.Resource &&
		(r.Namespace == "" || r.Namespace == done.Namespace) && (r.Name == "" || r.Name == done.Name)
}

// width ranks rights: a right on one object is narrower than one on a namespace, which is narrower than one on all namespaces.
func (r Right) width() int {
	switch {
	case r.Name != "":
		return 0
	case r.Namespace != "":
		return 1
	default:
		return 2
	}
}

// Grant is a right and the role that grants it.
type Grant struct {
	Right

	Role string
}

func (g Grant) String() string { return fmt.Sprintf("%s (%s)", g.Right, g.Role) }

// Granted returns the rights that the roles among the objects contain. An aggregated role contains none. The rights of a Role are limited
// to its namespace.
func Granted(objects []unstructured.Unstructured) ([]Grant, error) {
	var all []Grant
	for i := range objects {
		switch o := &objects[i]; o.GetKind() {
		case "ClusterRole", "Role":
			role := &rbacv1.ClusterRole{} // a Role has a subset of these fields
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, role, true); err != nil {
				return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			for _, rule := range role.Rules {
				for _, r := range expand(rule) {
					r.Namespace = o.GetNamespace()
					all = append(all, Grant{Right: r, Role: o.GetName()})
				}
			}
		}
	}
	return all, nil
}

// Of returns the grants of some roles.
func Of(grants []Grant, roles ...string) []Grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g Grant) bool { return !slices.Contains(roles, g.Role) })
}

func expand(rule rbacv1.PolicyRule) []Right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	all := make([]Right, 0, len(rule.Verbs)*(len(rule.NonResourceURLs)+len(rule.APIGroups)*len(rule.Resources)*len(names)))
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			all = append(all, Right{URL: url, Verb: verb})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, Right{Group: group, Resource: resource, Name: name, Verb: verb})
				}
			}
		}
	}
	return all
}

// Used returns the rights that a user's requests needed, without those that were forbidden.
func Used(events []auditv1.Event, user string) []Right { return asked(events, user, false) }

// Refused returns the rights that a user's forbidden requests needed. Requests that webhooks refused, for example, do not count.
func Refused(events []auditv1.Event, user string) []Right { return asked(events, user, true) }

// decision is the audit annotation with the result of the authorization.
const decision = "authorization.k8s.io/decision"

func asked(events []auditv1.Event, user string, forbidden bool) []Right {
	seen := map[Right]bool{}
	var all []Right
	for i := range events {
		e := &events[i]
		if r := rightFor(e); e.User.Username == user && (e.Annotations[decision] == "forbid") == forbidden && !seen[r] {
			seen[r] = true
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Right) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

func rightFor(e *auditv1.Event) Right {
	if e.ObjectRef == nil {
		url, _, _ := strings.Cut(e.RequestURI, "?")
		return Right{URL: url, Verb: e.Verb}
	}
	r := Right{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Verb: e.Verb}
	if e.ObjectRef.Subresource != "" {
		r.Resource += "/" + e.ObjectRef.Subresource
	}
	return r
}

// Unused returns the grants that no request needed. If several grants cover a request, it needed the narrowest, so a right in all
// namespaces is unused if a right in one namespace would do.
func Unused(granted []Grant, done []Right) []Grant {
	used := map[Right]bool{}
	for _, d := range done {
		narrowest := -1
		for i := range granted {
			if granted[i].covers(d) && (narrowest < 0 || granted[i].width() < granted[narrowest].width()) {
				narrowest = i
			}
		}
		if narrowest >= 0 {
			used[granted[narrowest].Right] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(granted), func(g Grant) bool { return used[g.Right] })
}
