package machinehealthcheck

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var cycleKinds = [][]schema.GroupVersionKind{
	{mendv1.GroupVersion.WithKind("HostRemediation")},
	{infrav1.GroupVersion.WithKind("Metal3Remediation"), infrav1beta1.GroupVersion.WithKind("Metal3Remediation")},
}

var errListing = errors.New("its first list is under way")

// observeCycles finds the power cycles of the targets that somebody else asked for: a person, or a NodeHealthCheck. While one is under way
// the node goes and comes, and may even be deleted. That is no reason to replace the machine in the middle of it.
//
// Until it is known which there are, nothing is begun for the machines that could have one, but not for ever. Kinds that are not
// installed, or that may not be read, have none. The API server is not asked as long as all machines are healthy.
func (r *Reconciler) observeCycles(ctx context.Context, state *observed) {
	state.unread, state.Read.Cycles = map[schema.GroupKind]time.Time{}, true
	for _, versions := range cycleKinds {
		kind := versions[0].GroupKind()
		cycles, err := r.cyclesOf(ctx, state, versions)
		if err != nil {
			if until := state.unreadUntil(kind, err); state.Now.Before(until) && until.After(state.CyclesUnread) {
				state.CyclesUnread = until
			}
		}
		for _, name := range slices.Sorted(maps.Keys(cycles)) {
			req := cycles[name]
			if !CycleUnderWay(req, state.Now) {
				continue
			}
			for _, owner := range req.OwnerReferences {
				// The first one of a machine counts that its check did not ask for.
				if target := find(owner.Name, state.Targets); target != nil && target.Cycle == nil && target.Machine.UID == owner.UID &&
					(target.Request == nil || target.Request.UID != req.UID) {
					target.Cycle = req
				}
			}
		}
	}
}

// unreadUntil notes that a kind of power cycles, or a host, cannot be read, and returns until when that blocks machines on hosts. When that
// is over it is still said.
func (state *observed) unreadUntil(kind schema.GroupKind, err error) time.Time {
	since, before := state.before.unread[kind]
	if !before {
		since = state.Now
	}
	state.unread[kind] = since
	until := since.Add(CyclesUnreadFor)
	if errors.Is(err, errListing) {
		state.lookAgainIn(syncingRequests)
	} else {
		state.Trouble = append(state.Trouble, err)
	}
	if state.Now.Before(until) {
		state.recheck = health.Earliest(state.recheck, until)
	}
	return until
}

// cyclesOf returns the power cycles of a kind, in that of its versions which can be read. There are none if the kind is not installed, or
// may not be listed. One version may be out of order while another is not: a webhook converts what is stored in another one.
func (r *Reconciler) cyclesOf(ctx context.Context, state *observed, versions []schema.GroupVersionKind) (map[string]*remediationrequest.Metadata, error) {
	for _, kind := range append([]schema.GroupVersionKind{state.requestKind}, r.Kinds.InUse()...) {
		if state.Template.Known && kind.GroupKind() == versions[0].GroupKind() {
			return r.requestsOf(ctx, state, kind) // it is read already: not in two versions
		}
	}
	if r.Installed != nil {
		if there, err := r.Installed(ctx, strings.ToLower(versions[0].Kind)+"s."+versions[0].Group); err != nil || !there {
			return nil, err
		}
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
			return r.requestsOf(ctx, state, kind)
		}
	}
	return nil, failed
}

const (
	// hostsWithin is how long a reconcile waits for the hosts of its machines.
	hostsWithin = 5 * time.Second
	// hostAgain is how soon a host is read again that blocks a remediation. Nothing tells when it does not any more.
	hostAgain = time.Minute
)

// observeHosts reads the hosts of the machines about which something depends on them. Where the rights to hosts are not given, or their
// kinds are not installed, the owner is asked as ever. For what else one cannot be read its machine waits, but not for ever: no owner is
// to replace a machine on a host that is externally provisioned.
func (r *Reconciler) observeHosts(ctx context.Context, state *observed, plan *Plan) {
	if r.Metal == nil {
		state.Read.Hosts = true
		return
	}
	asking, done := context.WithTimeout(ctx, hostsWithin)
	defer done()
	for _, i := range plan.Open {
		if target := state.Targets[i]; plan.Decisions[i].NeedsHost(&state.Facts) {
			host, err := r.hostOf(asking, target)
			if target.Host = &host; err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
				target.Host.UnreadUntil = state.unreadUntil(hostKind.GroupKind(), err)
			}
			if target.Host.External || target.Host.Serviced || target.Host.Paused {
				state.lookAgainIn(hostAgain)
			}
		}
	}
}

func (r *Reconciler) hostOf(ctx context.Context, target *Target) (Host, error) {
	found, err := r.Metal.Of(ctx, target.Machine)
	if err != nil {
		if errors.Is(err, explain.ErrUnread) { // the manager may read it
			err = nil
		}
		return Host{}, err
	}
	read := Host{Paused: found.Paused}
	if found.Is == powercycle.HostOurs {
		read.Name, read.External, read.Serviced = found.Host.Name, found.Host.External, found.Host.Serviced
	}
	return read, nil
}
