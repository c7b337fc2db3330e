package enqueue

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/must"
)

// adds is a queue that notes what is added.
type adds struct {
	queue
	added []string
}

func (a *adds) Add(check reconcile.Request) { a.added = append(a.added, check.Name) }

func (a *adds) AddAfter(check reconcile.Request, _ time.Duration) {
	a.added = append(a.added, check.Name+" later")
}

// Added twice, a check would be reconciled again at the end of the merge window, although nothing has happened since.
func TestOneEventEnqueuesACheckOnce(t *testing.T) {
	checks := func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{called("both"), called("both"), called(obj.GetLabels()["pool"])}
	}
	a, b := &corev1.Node{}, &corev1.Node{}
	a.Labels, b.Labels = map[string]string{"pool": "a"}, map[string]string{"pool": "b"}
	created, updated := &adds{}, &adds{}
	FirstAtOnce[*corev1.Node](&Merging{}, checks).Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: a}, created)
	must.Equal(t, []string{"both", "a"}, created.added, "created")
	update := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: a, ObjectNew: b}
	FirstAtOnce[*corev1.Node](&Merging{}, checks).Update(t.Context(), update, updated)
	must.Equal(t, []string{"both", "b", "a"}, updated.added, "updated")
}
