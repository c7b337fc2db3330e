package setup

import (
	"context"
	"errors"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/controllers/access"
	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// addMachineHealthChecks adds the MachineHealthCheck controller, and what it needs, to mgr.
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
	concurrent := controller.Options{MaxConcurrentReconciles: p.o.machineHealthChecks.Concurrency}
	return errors.Join(
		p.checks.SetupWithManager(ctx, p, p.connections, concurrent), p.addClaims(ctx),
		releaser.SetupWithManager(p, controller.Options{MaxConcurrentReconciles: 10}),
	)
}

// addClaims adds the controller to mgr that claims the checks of labelled Clusters and Namespaces.
func (p *program) addClaims(ctx context.Context) error {
	r := &claims.Reconciler{
		Client: p.GetClient(), Namespaces: p.GetClient(), Recorder: p.GetEventRecorder("kubemend"), Clock: clock.RealClock{},
		WatchFilterValue: p.o.watchFilter,
	}
	if p.o.namespace != "" {
		r.Namespaces, r.RereadEvery = p.GetAPIReader(), 30*time.Second
	}
	for _, verb := range []string{"list", "watch"} {
		if r.RereadEvery > 0 {
			break
		}
		may, err := access.Allowed(ctx, p.GetClient(), authorizationv1.ResourceAttributes{Verb: verb, Resource: "namespaces"})
		if err != nil {
			return err
		}
		if !may {
			r.Namespaces = nil
		}
	}
	if r.RereadEvery == 0 {
		p.namespaces = r.Namespaces
	}
	return r.SetupWithManager(p, controller.Options{MaxConcurrentReconciles: 10})
}
