package setup

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// addMachineHealthChecks adds the controllers that remediate, claim and release MachineHealthChecks.
func (p *program) addMachineHealthChecks(ctx context.Context) error {
	writer := p.writer()
	requests := &remediationrequest.Requests{Client: writer, Live: p.GetAPIReader()}
	kinds := remediationrequest.NewKinds(p.GetCache(), p.GetAPIReader(), p.o.namespace, remediationrequest.NewMetadata)
	p.cached(p.o.namespace, kinds.Cached)
	newHost := func() *bmov1alpha1.BareMetalHost { return &bmov1alpha1.BareMetalHost{} }
	hosts := remediationrequest.NewKinds(p.GetCache(), p.GetAPIReader(), p.o.namespace, newHost)
	recorder := p.GetEventRecorder("kubemend")
	p.checks = &machinehealthcheck.Reconciler{
		Client: writer, Live: p.GetAPIReader(), Clusters: p.clusters,
		Requests: requests, Kinds: kinds, Hosts: hosts, Recorder: recorder, Clock: clock.RealClock{},
		Installed: p.services.Installed, Records: p.records, Metal: p.hosts, Verify: p.clusters.Verify,
		Unclaimed: p.o.machineHealthChecks.Unclaimed, WatchFilterValue: p.o.watchFilter, Resync: p.o.syncPeriod, Ledger: p.ledger,
	}
	releaser := &machinehealthcheck.Releaser{
		Client: writer, Live: p.GetAPIReader(), Requests: requests, Kinds: kinds, Recorder: recorder,
		Discovery: p.discovery, Unclaimed: p.o.machineHealthChecks.Unclaimed, WatchFilterValue: p.o.watchFilter,
	}
	claiming := &claims.Reconciler{
		Client: p.GetClient(), Ledger: p.ledger, Recorder: recorder, Clock: clock.RealClock{}, WatchFilterValue: p.o.watchFilter,
	}
	concurrent := controller.Options{MaxConcurrentReconciles: p.o.machineHealthChecks.Concurrency}
	ten := controller.Options{MaxConcurrentReconciles: 10}
	return errors.Join(
		p.checks.SetupWithManager(ctx, p, p.connections, concurrent), claiming.SetupWithManager(p, ten), releaser.SetupWithManager(p, ten),
	)
}
