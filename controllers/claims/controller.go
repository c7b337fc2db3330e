// Package claims makes kubemend act on the MachineHealthChecks of Clusters and Namespaces whose label asks for it, and releases them when no label does.
// (docs/adr/0080-a-label-claims-checks.md)
//
// One reconcile is of all checks of one Cluster. It depends on nothing but what the objects say now: what changed while no manager ran is done later.
// It may claim and release, and nothing else: what a claim means is package machinehealthcheck's.
package claims

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// RBAC of this controller. Who may act in one namespace alone reads that Namespace, and may neither list nor watch them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch

// Reconciler claims and releases the checks of one Cluster at a time.
type Reconciler struct {
	// Client reads from caches and writes.
	Client client.Client
	// Live reads past the caches.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.WithTicker

	// Namespace and WatchFilterValue limit what is looked at, as the flags of these names do.
	Namespace, WatchFilterValue string

	// namespaces reads the labels of a Namespace.
	namespaces namespaces
}

// Reconcile makes the claims of the checks of a Cluster agree with the labels on it and on its Namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.tellOfLabels(seen)
	var again ctrl.Result
	var errs []error
	for i := range seen.checks {
		check := &seen.checks[i]
		plan := claims.Decide(seen.facts(check))
		done, err := r.apply(ctx, check, plan)
		switch {
		case apierrors.IsConflict(err):
			again.RequeueAfter = enqueue.Conflicted // by then the cache shows what somebody else has written
		case err != nil:
			errs = append(errs, err)
		default:
			r.tell(ctx, seen, check, plan, done)
		}
	}
	return again, errors.Join(errs...)
}
