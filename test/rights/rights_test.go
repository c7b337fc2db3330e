package rights

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

const manager = "system:serviceaccount:kubemend-system:kubemend-manager"

// roles are those of a manifest in the short form of YAML, one after the other.
func roles(t *testing.T, documents ...string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, document := range documents {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func texts[T interface{ String() string }](all []T) []string {
	var found []string
	for _, one := range all {
		found = append(found, one.String())
	}
	return found
}

func TestARoleIsSplitIntoRights(t *testing.T) {
	for name, row := range map[string]struct {
		role string
		want []string
	}{
		"every verb of every kind of every group is a right": {
			`{kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: ["", a.io], resources: [x, y/status], verbs: [get, list]}]}`,
			[]string{
				"get x (r)", "get y/status (r)", "get a.io/x (r)", "get a.io/y/status (r)",
				"list x (r)", "list y/status (r)", "list a.io/x (r)", "list a.io/y/status (r)",
			},
		},
		"each name is a right of its own": {
			`{kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: [""], resources: [x], resourceNames: [a, b], verbs: [get]}]}`,
			[]string{"get x a (r)", "get x b (r)"},
		},
		"a Role counts in its namespace": {
			`{kind: Role, metadata: {name: r, namespace: space}, rules: [{apiGroups: [""], resources: [x], resourceNames: [a], verbs: [get]}]}`,
			[]string{"get x a in space (r)"},
		},
		"a path is a right as well": {
			`{kind: ClusterRole, metadata: {name: r}, rules: [{nonResourceURLs: [/, "/metrics/*"], verbs: [get]}]}`,
			[]string{"get / (r)", "get /metrics/* (r)"},
		},
		"a role that collects others' rules gives none": {
			`{kind: ClusterRole, metadata: {name: r}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: []}`, nil,
		},
		"what is no role gives none": {`{kind: ServiceAccount, metadata: {name: r}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Granted(roles(t, row.role))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, texts(got)); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

// event is a request of the manager, by what the API server noted.
func event(verb string, of *auditv1.ObjectReference, edits ...func(*auditv1.Event)) auditv1.Event {
	e := auditv1.Event{
		Verb: verb, ObjectRef: of, User: authenticationv1.UserInfo{Username: manager}, Annotations: map[string]string{decision: "allow"},
	}
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

func at(uri string) func(*auditv1.Event) { return func(e *auditv1.Event) { e.RequestURI = uri } }

func forbidden(e *auditv1.Event) { e.Annotations[decision] = "forbid" }

func somebody(e *auditv1.Event) { e.User.Username = "somebody" }

func TestRequestsAreRead(t *testing.T) {
	node := &auditv1.ObjectReference{Resource: "nodes", Name: "n"}
	for name, row := range map[string]struct {
		events        []auditv1.Event
		used, refused []string
	}{
		"an object by its name": {events: []auditv1.Event{event("get", node)}, used: []string{"get nodes n"}},
		"a kind in a namespace": {
			events: []auditv1.Event{event("list", &auditv1.ObjectReference{APIGroup: "a.io", Resource: "x", Namespace: "s"})},
			used:   []string{"list a.io/x in s"},
		},
		"a subresource": {
			events: []auditv1.Event{event("patch", &auditv1.ObjectReference{APIGroup: "a.io", Resource: "x", Subresource: "status", Namespace: "s", Name: "n"})},
			used:   []string{"patch a.io/x/status n in s"},
		},
		"a path, without its query": {events: []auditv1.Event{event("get", nil, at("/version?timeout=5s"))}, used: []string{"get /version"}},
		"the same again is the same": {
			events: []auditv1.Event{event("get", node), event("get", node), event("delete", node)}, used: []string{"delete nodes n", "get nodes n"},
		},
		"what was forbidden was not done": {events: []auditv1.Event{event("get", node, forbidden)}, refused: []string{"get nodes n"}},
		"what others do is their business": {
			events: []auditv1.Event{event("get", node, somebody), event("list", node, somebody, forbidden)},
		},
		"what a webhook refused was allowed": {
			events: []auditv1.Event{event("delete", node, func(e *auditv1.Event) { e.ResponseStatus = &metav1.Status{Code: http.StatusForbidden} })}, used: []string{"delete nodes n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.used, texts(Used(row.events, manager))); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.refused, texts(Refused(row.events, manager))); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnusedRightsAreFound(t *testing.T) {
	get := Right{Group: "a.io", Resource: "x", Verb: "get"}
	with := func(edit func(*Right)) Right {
		r := get
		edit(&r)
		return r
	}
	inNamespace := with(func(r *Right) { r.Namespace = "s" })
	named := with(func(r *Right) { r.Name = "n" })
	done := with(func(r *Right) { r.Namespace, r.Name = "s", "n" })
	for name, row := range map[string]struct {
		granted, done, unused []Right
	}{
		"what is used is not":                          {granted: []Right{get}, done: []Right{done}},
		"another verb":                                 {granted: []Right{with(func(r *Right) { r.Verb = "list" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Verb = "list" })}},
		"another group":                                {granted: []Right{with(func(r *Right) { r.Group = "" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Group = "" })}},
		"a subresource of what is used":                {granted: []Right{with(func(r *Right) { r.Resource = "x/status" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Resource = "x/status" })}},
		"what has a subresource that is used":          {granted: []Right{get}, done: []Right{with(func(r *Right) { r.Resource = "x/status" })}, unused: []Right{get}},
		"a name of which is no use":                    {granted: []Right{with(func(r *Right) { r.Name = "m" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Name = "m" })}},
		"a namespace where it is not used":             {granted: []Right{with(func(r *Right) { r.Namespace = "t" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Namespace = "t" })}},
		"what is wider than what it is used for":       {granted: []Right{get, inNamespace, named}, done: []Right{done}, unused: []Right{get, inNamespace}},
		"the narrower one, if it is used elsewhere":    {granted: []Right{get, inNamespace}, done: []Right{with(func(r *Right) { r.Namespace = "t" })}, unused: []Right{inNamespace}},
		"nothing, if each is used where it counts":     {granted: []Right{get, inNamespace}, done: []Right{done, with(func(r *Right) { r.Namespace = "t" })}},
		"a wildcard, which no request is":              {granted: []Right{with(func(r *Right) { r.Resource = "*" })}, done: []Right{done}, unused: []Right{with(func(r *Right) { r.Resource = "*" })}},
		"a path that was never read":                   {granted: []Right{{URL: "/", Verb: "get"}, {URL: "/metrics", Verb: "get"}}, done: []Right{{URL: "/", Verb: "get"}}, unused: []Right{{URL: "/metrics", Verb: "get"}}},
		"no path, if one below it was asked for":       {granted: []Right{{URL: "/healthz/*", Verb: "get"}}, done: []Right{{URL: "/healthz/etcd", Verb: "get"}}},
		"a path that begins like one that was asked":   {granted: []Right{{URL: "/health", Verb: "get"}}, done: []Right{{URL: "/healthz", Verb: "get"}}, unused: []Right{{URL: "/health", Verb: "get"}}},
		"everything, if nothing was done":              {granted: []Right{get, {URL: "/", Verb: "get"}}, unused: []Right{get, {URL: "/", Verb: "get"}}},
		"not what was done without being granted here": {done: []Right{done}},
	} {
		t.Run(name, func(t *testing.T) {
			granted := make([]Grant, 0, len(row.granted))
			for _, r := range row.granted {
				granted = append(granted, Grant{r, "role"})
			}
			var unused []Right
			for _, g := range Unused(granted, row.done) {
				unused = append(unused, g.Right)
			}
			if diff := cmp.Diff(row.unused, unused); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
		})
	}
}
