package machines

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/test/inmemory"
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

// newServer returns the API server of the management cluster, which deletes the requests of machines that are gone.
func newServer(clock *clocktesting.FakePassiveClock) (*inmemory.Server, error) {
	kinds := []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: mendv1.GroupVersion.WithKind(recordKind), Whole: true},
		{GroupVersionKind: requestKind}, {GroupVersionKind: templateKind},
	}
	for _, kind := range []string{"Cluster", "Machine", "MachineSet", "MachineHealthCheck"} {
		kinds = append(kinds, inmemory.Kind{GroupVersionKind: clusterv1.GroupVersion.WithKind(kind)})
	}
	s := inmemory.New(theScheme(), clock, kinds...)
	s.After = func(change inmemory.Change) {
		if change.Kind.Kind == "Machine" && change.Is == nil {
			_ = s.Delete(context.Background(), aRequest(change.Was.GetNamespace(), change.Was.GetName())) // if there is one
		}
	}
	return s, machinehealthcheck.AddIndexes(context.Background(), s)
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
