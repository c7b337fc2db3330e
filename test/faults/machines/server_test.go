package machines

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// noon is when every tale begins.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var (
	requestKind  = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Remediation"}
	templateKind = requestKind.GroupVersion().WithKind("Metal3RemediationTemplate")
)

// theScheme knows all kinds that are used, so that clients which share it never change it.
var theScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	for _, kind := range []schema.GroupVersionKind{requestKind, templateKind} {
		s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		s.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	metav1.AddToGroupVersion(s, requestKind.GroupVersion())
	return s
})

// indexer adds the indexes of the manager's cache to a client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(obj, field, values)
	return nil
}

// newStore returns an empty store of objects. That keeps no managed fields: they cost most of the time, and see ownedBy.
func newStore(objects ...client.Object) (client.WithWatch, error) {
	s := theScheme()
	b := fake.NewClientBuilder().WithScheme(s).
		WithStatusSubresource(&clusterv1.Machine{}, &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{}).
		WithObjectTracker(testing.NewObjectTracker(s, serializer.NewCodecFactory(s).UniversalDecoder())).
		WithObjects(objects...)
	if err := machinehealthcheck.AddIndexes(context.Background(), indexer{b}); err != nil {
		return nil, err
	}
	return b.Build(), nil
}

// newServer returns the API server of the management cluster. It does what a bare store does not: it gives objects their UID and time of
// birth, counts the generations of specs, heeds the UID of a deletion, and deletes the requests of machines that are gone.
func newServer(now func() time.Time) (client.WithWatch, error) {
	store, err := newStore()
	if err != nil {
		return nil, err
	}
	born := 0
	return interceptor.NewClient(store, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			born++
			obj.SetUID(types.UID(fmt.Sprintf("uid-%d", born)))
			obj.SetCreationTimestamp(metav1.NewTime(now()))
			obj.SetGeneration(1)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if check, is := obj.(*clusterv1.MachineHealthCheck); is {
				check.Generation++ // those who update a check here change its spec
			}
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := heedUID(ctx, c, obj, opts); err != nil {
				return err
			}
			if err := c.Delete(ctx, obj, opts...); err != nil {
				return err
			}
			if _, is := obj.(*clusterv1.Machine); is {
				return client.IgnoreNotFound(c.Delete(ctx, aRequest(obj.GetNamespace(), obj.GetName())))
			}
			return nil
		},
	}), nil
}

func heedUID(ctx context.Context, c client.Reader, obj client.Object, opts []client.DeleteOption) error {
	wanted := client.DeleteOptions{}
	wanted.ApplyOptions(opts)
	if wanted.Preconditions == nil || wanted.Preconditions.UID == nil {
		return nil
	}
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), is); err != nil {
		return err
	}
	if is.UID != *wanted.Preconditions.UID {
		return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), errors.New("it is another one"))
	}
	return nil
}

func aRequest(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(requestKind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func aTemplate(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
	o.SetGroupVersionKind(templateKind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// ownedBy adds to a machine what an API server keeps of who wrote its conditions, as far as these tests read it.
func ownedBy(owner string, m *clusterv1.Machine) {
	conditions := make([]string, 0, len(m.Status.Conditions))
	for _, c := range m.Status.Conditions {
		conditions = append(conditions, `"k:{\"type\":\"`+c.Type+`\"}":{}`)
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{` + strings.Join(conditions, ",") + `}}}`),
	}}
}
