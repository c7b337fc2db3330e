package setup

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// Each of hundreds of records that are written at once finds the host of its machine.
func TestMetal3MachinesAreListedOnceForManyRecords(t *testing.T) {
	lists := 0
	live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return nil
		},
	}).Build()
	reader := newHostReader(live, live, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for range 300 {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3MachineList"))
		if err := reader.List(t.Context(), list, client.InNamespace("metal")); err != nil {
			t.Fatal(err)
		}
	}
	if lists != 1 {
		t.Errorf("they are listed %d times", lists)
	}
}
