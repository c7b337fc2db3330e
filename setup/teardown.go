package setup

import (
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/process"
)

// lockOf returns the lock of a manager that tears down; nil without --teardown or without leader election.
func lockOf(self process.Replica, o *Options) (*leftovers.Lock, error) {
	if !o.teardown || !o.election.enabled {
		return nil, nil
	}
	lease := o.leaderLease(self.Namespace)
	if lease.Namespace == "" {
		return nil, errors.New("set up leader election: --leader-elect-namespace has to be given outside of a cluster")
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	identity, err := process.Unique()
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return leftovers.NewLock(cfg, lease, identity, o.election.leaseDuration, o.election.renewDeadline/2)
}

// addTeardown makes the manager remove what kubemend wrote. Of its controllers, only those of hosts and of NodeHealthChecks run.
func (p *program) addTeardown(lock *leftovers.Lock) error {
	if err := p.announce(); err != nil {
		return err
	}
	uninstaller := &leftovers.Teardown{
		Remover: leftovers.Remover{
			Client: p.writer(), Live: p.GetAPIReader(), Recorder: p.GetEventRecorder("kubemend"),
			Nodes: fence.Nodes{Clusters: p.connections},
		},
		Clusters: p.connections, Discovery: p.discovery, Serves: p.services.Serves, Clock: clock.RealClock{},
		Namespace: p.o.namespace, WatchFilterValue: p.o.watchFilter, LeaseNamespace: p.o.nodeHealthChecks.LeaseNamespace,
		Lock: lock, Elected: p.Elected(), Begin: func() error { return p.services.SetupWithManager(p) },
	}
	if lock != nil {
		uninstaller.Pod = p.self.Owner(lock.Lease.Namespace)
	}
	if err := errors.Join(p.Add(uninstaller), p.AddReadyzCheck("teardown", uninstaller.Ready)); err != nil {
		return fmt.Errorf("set up the teardown: %w", err)
	}
	return nil
}
