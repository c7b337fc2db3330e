package machinehealthcheck

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

const (
	// hostsWithin is how long a reconcile waits for the hosts of its machines.
	hostsWithin = 5 * time.Second
	// hostAgain is how soon a host is read again that blocks a remediation. Nothing tells when it does not any more.
	hostAgain = time.Minute
)

// observeHosts reads the hosts of the machines about which something depends on them. Where the rights to hosts are not given, or their kinds
// are not installed, the owner is asked as ever. For what else one cannot be read its machine waits, but not for ever: no owner is to replace
// a machine on a host that is externally provisioned.
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
				state.cyclesUnknown(hostKind.GroupKind(), err)
			}
			if target.Host.External || target.Host.Serviced || target.Host.Paused {
				state.lookAgainIn(hostAgain)
			}
		}
	}
}

func (r *Reconciler) hostOf(ctx context.Context, target *Target) (Host, error) {
	found, err := r.Metal.Of(ctx, target.Machine)
	if errors.Is(err, explain.ErrUnread) {
		return writtenHost(target), nil
	} else if err != nil {
		return Host{}, err
	}
	read := Host{Paused: found.Paused}
	if found.Is == powercycle.HostOurs {
		read.Name, read.External, read.Serviced = found.Host.Name, found.Host.External, found.Host.Serviced
	}
	return read, nil
}

// writtenHost is the host of target for a reader who may not read it: as what the manager wrote on the Machine has it.
func writtenHost(target *Target) Host {
	cond := ConditionOf(target, mendv1.Remediation)
	if cond == nil || cond.Status != metav1.ConditionFalse {
		return Host{}
	}
	return Host{
		Name: "of the machine", External: cond.Reason == string(HostExternal), Paused: cond.Reason == string(HostPaused),
	}
}
