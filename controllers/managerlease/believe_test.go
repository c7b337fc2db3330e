package managerlease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// bound binds the ServiceAccount of a manager in a namespace, as the packages do.
func bound(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager-" + namespace, Labels: OfKubemend.Labelled},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubemend-manager-role"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "kubemend-manager"}},
	}
}

// boundIn is the same for the objects of one namespace, as a shard has it.
func boundIn(namespace, objects string) *rbacv1.RoleBinding {
	b := bound(namespace)
	b.Subjects[0].Name += "-shard-east"
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects, Name: b.Name, Labels: b.Labels}, RoleRef: b.RoleRef, Subjects: b.Subjects,
	}
}

// announced is a lease that says that a manager runs.
func announced(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: `{"version":"v1"}`}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("x"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NewMicroTime(noon)),
		},
	}
}

// Kubernetes' role edit is enough to write leases.
func TestALeaseIsBelievedWhereTheManagerIsBound(t *testing.T) {
	other, otherKind, person := bound("tenant"), bound("tenant"), bound("tenant")
	other.RoleRef.Name = "view"
	otherKind.RoleRef.Kind = "Role"
	person.Subjects[0] = rbacv1.Subject{Kind: rbacv1.UserKind, Name: "kubemend-manager", Namespace: "tenant"}
	anybody, unlabelled, renamed := bound("tenant"), bound("tenant"), bound("tenant")
	anybody.Subjects[0].Name = "default"
	unlabelled.Labels = nil
	renamed.RoleRef.Name, renamed.Subjects[0].Name = "acme-kubemend-manager-role", "acme-kubemend-manager"
	const denied = "list ClusterRoleBindings: no; list RoleBindings: no"
	for name, tc := range map[string]struct {
		objects []client.Object
		unread  bool
		want    string
	}{
		"of a namespace in which the manager is bound":       {[]client.Object{announced("mend"), bound("mend")}, false, "mend: acts on metal, and on nodes"},
		"of one without bindings":                            {[]client.Object{announced("tenant"), bound("mend")}, false, "tenant: is not believed"},
		"of the usual one, without bindings":                 {[]client.Object{announced("kubemend-system")}, false, "kubemend-system: is not believed"},
		"of one with a binding of another role":              {[]client.Object{announced("tenant"), other}, false, "tenant: is not believed"},
		"of one with a binding of a Role of that name":       {[]client.Object{announced("tenant"), otherKind}, false, "tenant: is not believed"},
		"of one with a binding of a person":                  {[]client.Object{announced("tenant"), person}, false, "tenant: is not believed"},
		"of one with a binding of another account":           {[]client.Object{announced("tenant"), anybody}, false, "tenant: is not believed"},
		"of one with a binding that no package has labelled": {[]client.Object{announced("tenant"), unlabelled}, false, "tenant: is not believed"},
		"of one that was installed by other names":           {[]client.Object{announced("tenant"), renamed}, false, "tenant: is not believed"},
		"of a shard, for the namespace where it has rights":  {[]client.Object{announced("east"), boundIn("east", "metal")}, false, "east: acts on metal"},
		"of a shard of another namespace": {
			[]client.Object{announced("east"), boundIn("east", "fleet")}, false, "east: has rights in namespace fleet alone",
		},
		"of several, each by itself": {
			[]client.Object{announced("mend"), announced("tenant"), bound("mend")}, false, "mend: acts on metal, and on nodes; tenant: is not believed",
		},
		"of the usual one, where bindings cannot be read": {[]client.Object{announced("kubemend-system")}, true, "kubemend-system: acts on metal, and on nodes"},
		"of any other one, where bindings cannot be read": {[]client.Object{announced("tenant")}, true, "tenant: cannot be seen (" + denied + ")"},
	} {
		t.Run(name, func(t *testing.T) {
			got := believed(t, tc.objects, func(list client.ObjectList, _ *client.ListOptions) bool {
				_, leases := list.(*coordinationv1.LeaseList)
				return tc.unread && !leases
			})
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// believed is what a reader, who may not list some objects, concludes about each manager that has a lease.
func believed(t *testing.T, objects []client.Object, mayNot func(client.ObjectList, *client.ListOptions) bool) string {
	t.Helper()
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if mayNot(list, (&client.ListOptions{}).ApplyOptions(opts)) {
					return errors.New("no")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	managers, err := Of(t.Context(), reader, noon)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range managers {
		all = append(all, m.Namespace+": "+modeOf(m))
	}
	return strings.Join(all, "; ")
}

// modeOf is what a reader concludes about a manager, for a check in the namespace metal and for nodes, which have none.
func modeOf(m Manager) string {
	check, node := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal"}}, &clusterv1.MachineHealthCheck{}
	off := m.StandsOff(check, nil)
	switch {
	case m.Unbound && (m.Alive || off.Reason != "Unbound" || m.Covers(check, nil)):
		return fmt.Sprintf("is not bound, and yet %+v", m)
	case m.Unbound:
		return "is not believed"
	case off.Unknown():
		return "cannot be seen (" + m.Unverified + ")"
	case off.Reason == "OtherRights":
		return "has rights in namespace " + strings.Join(m.Within, ", ") + " alone"
	case off.Reason != "":
		return off.Reason
	case m.Covers(node, nil):
		return "acts on metal, and on nodes"
	}
	return "acts on metal"
}

func TestWhyAManagerStandsOff(t *testing.T) {
	labelled := func(filter string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		if filter != "" {
			c.Labels = map[string]string{clusterv1.WatchLabel: filter}
		}
		return c
	}
	blue := Announcement{WatchFilter: "blue"}
	const another, label = "start a manager for namespace metal", "give it the label cluster.x-k8s.io/watch-filter: blue"
	const either = "give it, or its Cluster, the label cluster.x-k8s.io/watch-filter: blue"
	for name, tc := range map[string]struct {
		says    Announcement
		label   string
		cluster *clusterv1.Cluster
		want    string
		fix     string
	}{
		"one that says nothing special looks at everything":   {says: Announcement{}},
		"one of its namespace looks at it":                    {says: Announcement{Namespace: "metal"}},
		"one of another namespace does not":                   {says: Announcement{Namespace: "other"}, want: "OtherNamespace", fix: another},
		"one of its filter looks at it":                       {says: blue, label: "blue"},
		"one of another filter does not":                      {says: blue, label: "red", want: "OtherLabel", fix: label},
		"the label of its Cluster is enough, where it counts": {says: blue, cluster: labelled("blue")},
		"its own is too":                                      {says: blue, label: "blue", cluster: labelled("red")},
		"its own counts before that of its Cluster":           {says: blue, label: "red", cluster: labelled("blue"), want: "OtherLabel", fix: label},
		"without either it does not":                          {says: blue, cluster: labelled(""), want: "OtherLabel", fix: either},
		"one in teardown does not":                            {says: Announcement{Teardown: true}, want: "InTeardown"},
		"of another namespace, teardown is not the reason":    {says: Announcement{Teardown: true, Namespace: "other"}, want: "OtherNamespace", fix: another},
	} {
		t.Run(name, func(t *testing.T) {
			obj := labelled(tc.label)
			obj.Namespace = "metal"
			m := Manager{Namespace: "ns", Alive: true, Announcement: &tc.says}
			got := m.StandsOff(obj, tc.cluster)
			if got.Reason != tc.want || got.Unknown() || got.Fix != tc.fix {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
			if covers := m.Covers(obj, tc.cluster); covers != (got.Reason == "" || tc.says.Teardown && tc.says.Namespace == "") {
				t.Errorf("covers it: %t, and stands off: %+v", covers, got)
			}
		})
	}
}

// outside is a lease which says that a manager runs outside of the cluster.
func outside(namespace string) *coordinationv1.Lease {
	lease := announced(namespace)
	lease.Annotations[mendv1.ManagerAnnotation] = `{"version":"v1","outside":true}`
	return lease
}

// let lets a subject do something in a namespace.
func let(namespace, kind, of string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "let-" + of}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: kind, Namespace: of, Name: "any"}},
	}
}

func TestAManagerOutsideIsBelievedWhereOnlyAdministratorsWrite(t *testing.T) {
	const cannot = "kubemend-system: cannot be seen (it says that it runs outside of the cluster, and others may write there by RoleBinding let-"
	for name, tc := range map[string]struct {
		objects []client.Object
		unread  bool
		want    string
	}{
		"where no RoleBinding lets others in":                 {objects: []client.Object{outside("kubemend-system")}, want: "kubemend-system: acts on metal, and on nodes"},
		"whatever is let in elsewhere":                        {objects: []client.Object{outside("kubemend-system"), let("tenant", rbacv1.UserKind, "")}, want: "kubemend-system: acts on metal, and on nodes"},
		"where a ServiceAccount of the namespace is let in":   {objects: []client.Object{outside("kubemend-system"), let("kubemend-system", rbacv1.ServiceAccountKind, "kubemend-system")}, want: "kubemend-system: acts on metal, and on nodes"},
		"not where one of another namespace is":               {objects: []client.Object{outside("kubemend-system"), let("kubemend-system", rbacv1.ServiceAccountKind, "ci")}, want: cannot + "ci)"},
		"nor where a user is":                                 {objects: []client.Object{outside("kubemend-system"), let("kubemend-system", rbacv1.UserKind, "joe")}, want: cannot + "joe)"},
		"nor in any other namespace":                          {objects: []client.Object{outside("tenant")}, want: "tenant: is not believed"},
		"one that does not say so is not":                     {objects: []client.Object{announced("kubemend-system")}, want: "kubemend-system: is not believed"},
		"one that is bound is, with others let in":            {objects: []client.Object{outside("kubemend-system"), bound("kubemend-system"), let("kubemend-system", rbacv1.UserKind, "joe")}, want: "kubemend-system: acts on metal, and on nodes"},
		"not where RoleBindings there cannot be read, though": {objects: []client.Object{outside("kubemend-system")}, unread: true, want: "kubemend-system: cannot be seen (list RoleBindings in namespace kubemend-system: no)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := believed(t, tc.objects, func(_ client.ObjectList, o *client.ListOptions) bool { return tc.unread && o.Namespace != "" })
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheNamespaceIsMadeWhereItMayBe(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kubemend-system", errors.New("you may not"))
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kubemend-system"}}
	for name, tc := range map[string]struct {
		objects        []client.Object
		read, write    error
		fails, created bool
	}{
		"it is made if it is missing":                  {created: true},
		"it is left alone if it is there":              {objects: []client.Object{there}, write: errors.New("written")},
		"somebody else may be faster":                  {write: apierrors.NewAlreadyExists(schema.GroupResource{}, "kubemend-system")},
		"that it may not be made is an error":          {write: forbidden, fails: true},
		"that it may not be read is none":              {read: forbidden, write: errors.New("written")},
		"that it cannot be read for once, an error is": {read: errors.New("no"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tc.objects...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.read != nil {
						return tc.read
					}
					return c.Get(ctx, key, o, opts...)
				},
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if tc.write != nil {
						return tc.write
					}
					return c.Create(ctx, o, opts...)
				},
			}).Build()
			if err := EnsureNamespace(t.Context(), c, "kubemend-system"); (err != nil) != tc.fails {
				t.Errorf("it ends with %v", err)
			}
			list := &corev1.NamespaceList{}
			if err := c.List(t.Context(), list); err != nil || len(list.Items) > len(tc.objects) != tc.created {
				t.Errorf("there are %d namespaces, error %v", len(list.Items), err)
			}
		})
	}
}
