package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/request"
)

// cycleKinds are the kinds whose remediations switch a host off and on, each in the versions in which it may be served.
var cycleKinds = [][]schema.GroupVersionKind{
	{mendv1.GroupVersion.WithKind("HostRemediation")},
	{infrav1.GroupVersion.WithKind("Metal3Remediation"), infrav1beta1.GroupVersion.WithKind("Metal3Remediation")},
}

// taken is how long a power cycle counts as under way before anybody has put a finalizer on it.
const taken = 10 * time.Minute

// observeCycles finds the power cycles of the targets that somebody else asked for: a person, or a NodeHealthCheck. While one is under way the
// node goes and comes, and may even be deleted. That is no reason to replace the machine in the middle of it.
//
// Until it is known which there are, nothing is begun. Kinds that are not installed, or that may not be read, have none.
func (r *Reconciler) observeCycles(ctx context.Context, w *world) {
	cycles := map[types.UID]*request.Metadata{}
	for _, versions := range cycleKinds {
		kind, err := r.readable(ctx, w, versions)
		var all map[string]*request.Metadata
		if err == nil && !kind.Empty() {
			all, err = r.requestsOf(ctx, w, kind)
		}
		if err != nil {
			w.remedy.cyclesUnread = true
			w.trouble = append(w.trouble, err)
			continue
		}
		for _, req := range all {
			if !underWay(req, w.now) {
				continue
			}
			for _, o := range req.OwnerReferences {
				cycles[o.UID] = req
			}
		}
	}
	for i := range w.targets {
		t := &w.targets[i]
		if is := cycles[t.machine.UID]; is != nil && (t.request == nil || t.request.UID != is.UID) {
			t.cycle = is
		}
	}
}

// readable returns that of the versions of a kind which can be read; none if the kind is not installed, or may not be listed, or is read for the
// first time.
func (r *Reconciler) readable(ctx context.Context, w *world, versions []schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	for _, kind := range append([]schema.GroupVersionKind{w.remedy.kind}, r.Kinds.InUse()...) {
		if w.remedy.known && kind.GroupKind() == versions[0].GroupKind() {
			return kind, nil // it is read already: not in two versions
		}
	}
	for _, kind := range versions {
		ready, err := r.Kinds.Ready(ctx, kind)
		switch {
		case request.Missing(err), apierrors.IsForbidden(err), errors.Is(err, look.ErrUnread):
			continue
		case err != nil:
			return schema.GroupVersionKind{}, err
		case !ready:
			w.remedy.cyclesUnread = true
			w.lookAgainIn(syncingRequests)
			return schema.GroupVersionKind{}, nil
		}
		return kind, nil
	}
	return schema.GroupVersionKind{}, nil
}

// underWay reports whether a power cycle is not over: its finalizer keeps it until its host is on and its node is free again.
func underWay(req *request.Metadata, now time.Time) bool {
	return heldByFinalizer(req) || now.Before(takenBy(req))
}

func heldByFinalizer(req *request.Metadata) bool {
	return slices.Contains(req.Finalizers, mendv1.HostRemediationFinalizer) || slices.Contains(req.Finalizers, infrav1.RemediationFinalizer)
}

// takenBy is until when a power cycle counts as under way although nobody has taken it on; zero if that does not matter.
func takenBy(req *request.Metadata) time.Time {
	if _, begun := req.Annotations[mendv1.PowerCycleAnnotation]; begun || heldByFinalizer(req) || !req.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	return req.CreationTimestamp.Add(taken)
}

// cycleText says what is under way for t.
func cycleText(t *target) string {
	return fmt.Sprintf("%s %s is under way for the machine: nothing else is begun before it is over", t.cycle.Kind, t.cycle.Name)
}
