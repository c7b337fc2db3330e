package hostremediation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

// say brings the status up to date. It writes only what differs. failure is why the step could not be carried out; it is told, since
// nobody reads logs.
func (r *Reconciler) say(ctx context.Context, w *observed, step powercycle.Step, failure error) error {
	if step.Do == powercycle.DropFinalizer && w.facts.Deleting && failure == nil {
		return nil // there is nothing left to say it of
	}
	message := w.about().Message("", step)
	if failure != nil {
		message = fmt.Sprintf("%s: %.4096s", message, explain.Plain(failure))
	}
	next := w.rem.Unwrapped().DeepCopyObject().(client.Object)
	as := wrapped(next)
	as.Say(reportOf(w, step, message))
	sayConditions(as, w.record.Memory, w.facts, step, message, w.now)
	if equality.Semantic.DeepEqual(w.rem.Unwrapped(), next) {
		return nil
	}
	patch := client.MergeFromWithOptions(w.rem.Unwrapped(), client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, next, patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %s %s: %w", r.Kind.Kind, client.ObjectKeyFromObject(w.rem), err)
	}
	if err == nil {
		r.written.Note(next)
	}
	return nil
}
