package machinehealthcheck

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

const (
	// hostsWithin is how long a reconcile waits for the hosts of its machines.
	hostsWithin = 5 * time.Second
	// hostAgain is how soon a host is read again that blocks a remediation. Nothing tells when it does not any more.
	hostAgain = time.Minute
)

// observeHosts reads the hosts of the machines about which something depends on them. One that cannot be read blocks nothing: where the
// rights to hosts are not given, the owner is asked as ever.
func (r *Reconciler) observeHosts(ctx context.Context, state *observed, plan *machines.Plan) {
	if r.Metal == nil {
		state.Read.Hosts = true
		return
	}
	asking, done := context.WithTimeout(ctx, hostsWithin)
	defer done()
	var work errgroup.Group
	work.SetLimit(readers)
	for _, i := range plan.Open {
		decision, target := plan.Decisions[i], state.Targets[i]
		if !decision.NeedsHost(&state.Facts) {
			continue
		}
		work.Go(func() error {
			target.Host = r.hostOf(asking, target)
			return nil
		})
	}
	_ = work.Wait() // what fails is not known
	for _, target := range state.Targets {
		if host := target.Host; host != nil && (host.External || host.Serviced || host.Paused) {
			state.lookAgainIn(hostAgain)
		}
	}
}

func (r *Reconciler) hostOf(ctx context.Context, target *machines.Target) *machines.Host {
	found, err := r.Metal.Of(ctx, target.Machine)
	if err != nil {
		return &machines.Host{}
	}
	read := &machines.Host{Paused: found.Paused}
	if found.Is == powercycle.HostOurs {
		read.Name, read.External, read.Serviced = found.Host.Name, found.Host.External, found.Host.Serviced
	}
	return read
}
