package machinehealthcheck

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// cycleKinds are the kinds whose remediations switch a host off and on, each in the versions in which it may be served.
var cycleKinds = [][]schema.GroupVersionKind{
	{mendv1.GroupVersion.WithKind("HostRemediation")},
	{infrav1.GroupVersion.WithKind("Metal3Remediation"), infrav1beta1.GroupVersion.WithKind("Metal3Remediation")},
}

// taken is how long a power cycle counts as under way before anybody has put a finalizer on it, and how long one may be that cannot be
// read.
const taken = machines.CyclesUnreadFor

// clinging is how long a power cycle that is being deleted holds its machine. Its controller gives the host back in minutes, if it runs.
const clinging = time.Hour

// errListing is that the first list of a kind is under way.
var errListing = errors.New("its first list is under way")

// observeCycles finds the power cycles of the targets that somebody else asked for: a person, or a NodeHealthCheck. While one is under way
// the node goes and comes, and may even be deleted. That is no reason to replace the machine in the middle of it.
//
// Until it is known which there are, nothing is begun for the machines that could have one, but not for ever. Kinds that are not
// installed, or that may not be read, have none. The API server is not asked as long as all machines are healthy.
func (r *Reconciler) observeCycles(ctx context.Context, w *observed) {
	w.unread = map[schema.GroupKind]*unread{}
	for _, versions := range cycleKinds {
		kind := versions[0].GroupKind()
		cycles, err := r.cyclesOf(ctx, w, versions)
		failing := w.before.unread[kind].after(err != nil, w.now)
		if w.unread[kind] = failing; err != nil {
			w.cyclesUnknown(err, failing.until())
		}
		for _, name := range slices.Sorted(maps.Keys(cycles)) {
			req := cycles[name]
			if !underWay(req, w.now) {
				continue
			}
			for _, owner := range req.OwnerReferences {
				// The first one of a machine counts that its check did not ask for.
				if target := find(owner.Name, w.targets); target != nil && target.cycle == nil && target.machine.UID == owner.UID &&
					(target.request == nil || target.request.UID != req.UID) {
					target.cycle = req
				}
			}
		}
	}
}

// onHost reports whether machine is on a bare-metal host, by what its infrastructure is. (CAPM3)
func onHost(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.Kind == "Metal3Machine" && ref.APIGroup == infrav1.GroupVersion.Group
}

// cyclesUnknown notes that a kind of power cycles cannot be read, which holds up machines until then. When that is over it is still said.
func (w *observed) cyclesUnknown(err error, until time.Time) {
	if listing := errors.Is(err, errListing); listing {
		w.lookAgainIn(syncingRequests)
	} else {
		w.trouble = append(w.trouble, err)
	}
	if w.now.Before(until) {
		w.recheck = health.Earliest(w.recheck, until)
		if until.After(w.remediation.cyclesUnread) {
			w.remediation.cyclesUnread = until
		}
	}
}

// cyclesOf returns the power cycles of a kind, in that of its versions which can be read. There are none if the kind is not installed, or
// may not be listed. One version may be out of order while another is not: a webhook converts what is stored in another one.
func (r *Reconciler) cyclesOf(ctx context.Context, w *observed, versions []schema.GroupVersionKind) (map[string]*remediationrequest.Metadata, error) {
	for _, kind := range append([]schema.GroupVersionKind{w.remediation.kind}, r.Kinds.InUse()...) {
		if w.remediation.Known && kind.GroupKind() == versions[0].GroupKind() {
			return r.requestsOf(ctx, w, kind) // it is read already: not in two versions
		}
	}
	if there, err := r.installed(ctx, versions[0].GroupKind()); err != nil || !there {
		return nil, err
	}
	var failed error
	for _, kind := range versions {
		ready, err := r.Kinds.Ready(ctx, kind)
		switch {
		case remediationrequest.Missing(err), apierrors.IsForbidden(err), errors.Is(err, explain.ErrUnread):
		case err != nil:
			failed = errors.Join(failed, err)
		case !ready:
			return nil, errListing
		default:
			return r.requestsOf(ctx, w, kind)
		}
	}
	return nil, failed
}

// installed reports whether a kind of power cycles may be installed.
func (r *Reconciler) installed(ctx context.Context, kind schema.GroupKind) (bool, error) {
	if r.Installed == nil {
		return true, nil
	}
	return r.Installed(ctx, strings.ToLower(kind.Kind)+"s."+kind.Group)
}

// underWay reports whether a power cycle is not over: its finalizer keeps it until its host is on and its node is free again, which must
// not take for ever once it is being deleted.
func underWay(req *remediationrequest.Metadata, now time.Time) bool {
	return heldByFinalizer(req) && req.DeletionTimestamp.IsZero() || now.Before(takenBy(req))
}

func heldByFinalizer(req *remediationrequest.Metadata) bool {
	return slices.Contains(req.Finalizers, mendv1.HostRemediationFinalizer) || slices.Contains(req.Finalizers, infrav1.RemediationFinalizer)
}

// takenBy is until when a power cycle counts as under way although no controller has taken it on, or although it is being deleted; zero if
// that does not matter.
func takenBy(req *remediationrequest.Metadata) time.Time {
	if heldByFinalizer(req) && !req.DeletionTimestamp.IsZero() {
		return req.DeletionTimestamp.Add(clinging)
	}
	if _, begun := req.Annotations[mendv1.PowerCycleAnnotation]; begun || heldByFinalizer(req) || !req.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	return req.CreationTimestamp.Add(taken)
}
