package managerlease

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// bound returns the binding of a manager in a namespace, as the packages create it.
func bound(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager-" + namespace, Labels: BindingLabels},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubemend-manager-role"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "kubemend-manager"}},
	}
}

// boundIn returns the binding of a shard, whose rights are only in the namespace objects.
func boundIn(namespace, objects string) *rbacv1.RoleBinding {
	b := bound(namespace)
	b.Subjects[0].Name += "-shard-east"
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects, Name: b.Name, Labels: b.Labels}, RoleRef: b.RoleRef, Subjects: b.Subjects,
	}
}

// announced returns the lease of a manager that runs.
func announced(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: `{"version":"v1"}`}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("x"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NewMicroTime(noon)),
		},
	}
}

// The ClusterRole edit is enough to write leases.
func TestALeaseIsBelievedWhereTheManagerIsBound(t *testing.T) {
	other, otherKind, person := bound("tenant"), bound("tenant"), bound("tenant")
	other.RoleRef.Name = "view"
	otherKind.RoleRef.Kind = "Role"
	person.Subjects[0] = rbacv1.Subject{Kind: rbacv1.UserKind, Name: "kubemend-manager", Namespace: "tenant"}
	anybody, unlabelled, renamed := bound("tenant"), bound("tenant"), bound("tenant")
	anybody.Subjects[0].Name = "default"
	unlabelled.Labels = nil
	renamed.RoleRef.Name, renamed.Subjects[0].Name = "acme-kubemend-manager-role", "acme-kubemend-manager"
	garbled := announced("mend")
	garbled.Annotations[mendv1.ManagerAnnotation] = "{"
	const unbound = "no binding with the label app.kubernetes.io/name=kubemend binds a ServiceAccount kubemend-manager of that namespace to the ClusterRole kubemend-manager-role"
	const denied = "list ClusterRoleBindings: no; list RoleBindings: no"
	for name, tc := range map[string]struct {
		objects []client.Object
		unread  bool
		want    string
	}{
		"of a namespace in which the manager is bound":       {[]client.Object{announced("mend"), bound("mend")}, false, "mend: acts on metal, and on nodes"},
		"not of one without bindings":                        {[]client.Object{announced("tenant"), bound("mend")}, false, ""},
		"of the usual one, without bindings, not by itself":  {[]client.Object{announced("kubemend-system")}, false, "kubemend-system: cannot be seen (" + unbound + ")"},
		"not of one with a binding of another role":          {[]client.Object{announced("tenant"), other}, false, ""},
		"not of one with a binding of a Role of that name":   {[]client.Object{announced("tenant"), otherKind}, false, ""},
		"not of one with a binding of a person":              {[]client.Object{announced("tenant"), person}, false, ""},
		"not of one with a binding of another account":       {[]client.Object{announced("tenant"), anybody}, false, ""},
		"not of one with a binding that has no label":        {[]client.Object{announced("tenant"), unlabelled}, false, ""},
		"not of one that was installed by other names":       {[]client.Object{announced("tenant"), renamed}, false, ""},
		"of a shard, for the namespace where it has rights":  {[]client.Object{announced("east"), boundIn("east", "metal")}, false, "east: acts on metal"},
		"of a shard of another namespace":                    {[]client.Object{announced("east"), boundIn("east", "fleet")}, false, "east: has rights in namespace fleet alone"},
		"of several, each by itself":                         {[]client.Object{announced("mend"), announced("tenant"), bound("mend")}, false, "mend: acts on metal, and on nodes"},
		"of the usual one, where bindings cannot be read":    {[]client.Object{announced("kubemend-system")}, true, "kubemend-system: acts on metal, and on nodes"},
		"not of another one where bindings cannot be read":   {[]client.Object{announced("tenant")}, true, "tenant: cannot be seen (" + denied + ")"},
		"not of one whose announcement cannot be understood": {[]client.Object{garbled, bound("mend")}, false, "mend: cannot be seen (read the annotation kubemend.io/manager of lease mend/manager.kubemend.io: unexpected end of JSON input)"},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, believed(t, tc.objects, tc.unread))
		})
	}
}

// believed returns what a user finds out about each manager with a lease. unread says that the user may not list bindings.
func believed(t *testing.T, objects []client.Object, unread bool) string {
	t.Helper()
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, leases := list.(*coordinationv1.LeaseList); unread && !leases {
					return errors.New("no")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	managers, err := Of(t.Context(), reader, noon)
	must.Do(t, err)
	var all []string
	for _, m := range managers {
		all = append(all, m.Namespace+": "+modeOf(m))
	}
	return strings.Join(all, "; ")
}

func TestWhoMayNotListLeasesSeesTheUsualManagerAndThatThereMayBeOthers(t *testing.T) {
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(announced("kubemend-system"), bound("kubemend-system")).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, leases := list.(*coordinationv1.LeaseList); leases {
					return errors.New("no")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	managers, err := Of(t.Context(), reader, noon)
	if len(managers) != 1 || !managers[0].Alive || err == nil || err.Error() != "list the leases manager.kubemend.io: no" {
		t.Errorf("there are %v, and %v", managers, err)
	}
}

// modeOf returns whether a manager acts on a check in the namespace metal, and on nodes.
func modeOf(m Manager) string {
	check, node := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal"}}, &clusterv1.MachineHealthCheck{}
	off := m.StandsOff(check, nil)
	switch {
	case off.Unknown():
		return "cannot be seen (" + m.Unverified + ")"
	case off.Reason == "OtherRights":
		return "has rights in namespace " + strings.Join(m.Within, ", ") + " alone"
	case off.Reason != "":
		return off.Reason
	case m.StandsOff(node, nil).Reason == "":
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
		})
	}
}
