package managerlease

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
