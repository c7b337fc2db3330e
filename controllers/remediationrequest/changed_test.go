package remediationrequest

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTheProvidersStatusEnqueuesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*Metadata)
		enqueues bool
	}{
		"only its version and its field owners": {func(m *Metadata) {
			m.ResourceVersion, m.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Manager: "provider", Subresource: "status"}}
		}, false},
		"its finalizers":      {func(m *Metadata) { m.Finalizers = []string{"provider"} }, true},
		"its annotations":     {func(m *Metadata) { m.Annotations = map[string]string{"a": "b"} }, true},
		"its labels":          {func(m *Metadata) { m.Labels = map[string]string{"a": "b"} }, true},
		"it is being deleted": {func(m *Metadata) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"it is another one":   {func(m *Metadata) { m.UID = "another" }, true},
		"its owners":          {func(m *Metadata) { m.OwnerReferences = []metav1.OwnerReference{{Name: "m"}} }, true},
		"its specification":   {func(m *Metadata) { m.Generation = 2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			enqueued := false
			h := Changed(handler.TypedFuncs[*Metadata, reconcile.Request]{
				UpdateFunc: func(context.Context, event.TypedUpdateEvent[*Metadata], workqueue.TypedRateLimitingInterface[reconcile.Request]) {
					enqueued = true
				},
			})
			is := &Metadata{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "1"}}
			tc.change(is)
			h.Update(t.Context(), event.TypedUpdateEvent[*Metadata]{ObjectOld: &Metadata{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "1"}}, ObjectNew: is}, nil)
			if enqueued != tc.enqueues {
				t.Errorf("enqueued: %t, want %t", enqueued, tc.enqueues)
			}
		})
	}
}
