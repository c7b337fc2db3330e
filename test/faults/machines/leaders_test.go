package machines

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// interrupted is an API server at which something else happens before the nth write of a process, counted from 0.
func interrupted(c client.WithWatch, nth int, happens func()) client.WithWatch {
	n := 0
	before := func() {
		if n == nth {
			happens()
		}
		n++
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			before()
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			before()
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			before()
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}

// One that was the leader does not know at once that it is one no more. Whatever it was about to write when the next one acted, a
// remediation has one record.
func TestTwoLeadersWriteOneRecord(t *testing.T) {
	for how, change := range map[string]func(*clusterv1.MachineHealthCheck){"by the owner": byOwner, "by a request": byTemplate} {
		for nth := range 5 {
			t.Run(fmt.Sprintf("%s, before write %d of the former", how, nth), func(t *testing.T) {
				e := newEnvironment(t)
				e.machines("m1", "m2")
				e.check("check", change)
				e.start()
				e.settle(wait)
				e.fail("m1")
				next := e.checks
				once := func() { e.reconcileBy(next.Reconcile) }

				former := e.checks
				e.start()
				next = e.checks
				former.Client = client.WithFieldOwner(interrupted(e.recorded(), nth, once), mendv1.FieldOwner)
				former.Records.Client, former.Requests.Client = former.Client, former.Client
				e.reconcileBy(former.Reconcile)
				e.reconcileBy(former.Reconcile)
				e.reconcileBy(next.Reconcile)
				begun, others := e.recordsByMachine()
				if begun["m1"] != 1 || others > 0 {
					t.Errorf("%d records of the remediation, and %d of others: %s", begun["m1"], others, e.record.history())
				}
			})
		}
	}
}

// reconcileBy makes one reconcile of the check.
func (e *environment) reconcileBy(reconcile func(context.Context, ctrl.Request) (ctrl.Result, error)) {
	_, _ = reconcile(e.ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: e.namespace, Name: "check"}})
}
