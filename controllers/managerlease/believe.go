package managerlease

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Installed is how the ServiceAccount of a controller is known, and so in which namespace its lease can be.
//
// A user with write access to leases in a namespace can make one that says that a controller runs there, and the role `edit` is enough for that. To bind a
// role one has to have its rights. (docs/adr/0045-a-lease-counts-where-the-manager-is-bound.md)
type Installed struct {
	// Account is the name of the ServiceAccount, to which an installation may add a suffix; it is bound to one of the ClusterRoles Roles.
	Account string
	Roles   []string
	// Namespace is where it usually is. Who may not read bindings believes a lease there: who can write in it is where the controller's token is.
	Namespace string
	// Labelled are the bindings that its packages bring. The labels prove nothing: they spare reading all bindings of a cluster.
	Labelled client.MatchingLabels
}

// OfKubemend is the manager, as its manifests name it. (config/rbac)
var OfKubemend = Installed{
	Account: "kubemend-manager", Roles: []string{"kubemend-manager-role"}, Namespace: UsualNamespace,
	Labelled: client.MatchingLabels{"app.kubernetes.io/name": "kubemend"},
}

// Binds reports whether a binding is of one of the controller's roles.
func (i Installed) Binds(role rbacv1.RoleRef) bool {
	return role.Kind == "ClusterRole" && slices.Contains(i.Roles, role.Name)
}

// Bindings say in which namespaces a controller can be.
type Bindings struct {
	// usually is where it is as a rule.
	usually string
	// everywhere are the namespaces of ServiceAccounts that are bound for the whole cluster.
	everywhere map[string]bool
	// within says in which namespaces those of a namespace are bound by RoleBindings.
	within map[string][]string
	// unread is why there may be more; empty if there are no more.
	unread string
}

// Bindings are those that reader has. That some cannot be read is no error: then it is said of each lease which this concerns.
func (i Installed) Bindings(ctx context.Context, reader client.Reader) Bindings {
	b := Bindings{usually: i.Namespace, everywhere: map[string]bool{}, within: map[string][]string{}}
	var unread []string
	inAll, inOne := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	if err := reader.List(ctx, inAll, i.Labelled); err != nil {
		unread = append(unread, fmt.Sprintf("list ClusterRoleBindings: %s", err))
	}
	for j := range inAll.Items {
		for _, namespace := range i.accounts(inAll.Items[j].RoleRef, inAll.Items[j].Subjects) {
			b.everywhere[namespace] = true
		}
	}
	if err := reader.List(ctx, inOne, i.Labelled); err != nil {
		unread = append(unread, fmt.Sprintf("list RoleBindings: %s", err))
	}
	for j := range inOne.Items {
		for _, namespace := range i.accounts(inOne.Items[j].RoleRef, inOne.Items[j].Subjects) {
			b.within[namespace] = append(b.within[namespace], inOne.Items[j].Namespace)
		}
	}
	b.unread = strings.Join(unread, "; ")
	return b
}

// accounts are the namespaces of the controller's ServiceAccounts among the subjects of a binding.
func (i Installed) accounts(role rbacv1.RoleRef, subjects []rbacv1.Subject) []string {
	if !i.Binds(role) {
		return nil
	}
	var namespaces []string
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && (s.Name == i.Account || strings.HasPrefix(s.Name, i.Account+"-")) {
			namespaces = append(namespaces, s.Namespace)
		}
	}
	return namespaces
}

// Bound reports whether a controller in a namespace has its rights: within some namespaces, or everywhere if these are none. If it is unknown it says
// why, and then bound is what is to be taken for true.
func (b Bindings) Bound(namespace string) (bound bool, within []string, unknown string) {
	within = slices.Sorted(slices.Values(b.within[namespace]))
	switch {
	case b.everywhere[namespace]:
		return true, nil, ""
	case b.unread == "":
		return len(within) > 0, within, ""
	case len(within) > 0 || namespace == b.usually:
		return true, nil, "" // how far its rights go cannot be read
	}
	return true, nil, b.unread
}

// believe says in each manager whether the lease that it is known by can be its own.
func (b Bindings) believe(ctx context.Context, reader client.Reader, managers []Manager) []Manager {
	for i := range managers {
		m := &managers[i]
		var bound bool
		if bound, m.Within, m.Unverified = b.Bound(m.Namespace); bound {
			continue
		}
		if m.Namespace == b.usually && m.Announcement != nil && m.Announcement.Outside {
			if err := onlyForAll(ctx, reader, m.Namespace); err != nil {
				m.Unverified = err.Error()
			}
			continue
		}
		m.Alive, m.Unbound = false, true
	}
	return managers
}

// onlyForAll is an error unless only those may write in a namespace who may write in all. A manager that runs outside of the cluster has no ServiceAccount
// that is bound, and is believed there. (docs/adr/0084-a-manager-outside-takes-the-usual-namespace.md)
func onlyForAll(ctx context.Context, reader client.Reader, namespace string) error {
	list := &rbacv1.RoleBindingList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list RoleBindings in namespace %s: %w", namespace, err)
	}
	var names []string
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].Subjects, func(s rbacv1.Subject) bool { return s.Kind != rbacv1.ServiceAccountKind || s.Namespace != namespace }) {
			names = append(names, "RoleBinding "+list.Items[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("it says that it runs outside of the cluster, and others may write there by %s", strings.Join(names, ", "))
}

// mayActOn reports whether the manager has its rights where an object is. On what has no namespace it may act only if it has them everywhere.
func (m Manager) mayActOn(obj client.Object) bool {
	return !m.Unbound && (len(m.Within) == 0 || slices.Contains(m.Within, obj.GetNamespace()))
}
