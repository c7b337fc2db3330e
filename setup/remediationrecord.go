package setup

import (
	"context"
	"slices"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
)

// recordService returns the service that follows remediations by their records, for the CRD gate.
func (p *program) recordService() *crdgate.Service {
	r := &remediationrecord.Reconciler{
		Records: p.records, Recent: remediationrecord.NewRecent(p.GetAPIReader(), clock.RealClock{}), Mapper: p.GetRESTMapper(),
		Cached: p.caches, NodeCache: p.nodeCache, HostLists: p.hosts.Client, Namespace: p.o.namespace,
		Finds: p.checks.Finds, StepLeft: p.stepLeft,
		Recorder: p.GetEventRecorder("kubemend"), WatchFilterValue: p.o.watchFilter,
		Nodes:           p.o.gates.Enabled(nodeHealthCheck) && p.o.nodeChecks != crdgate.Off,
		ActsOnUnclaimed: p.o.machineHealthChecks.Unclaimed == machinehealthcheck.Act, Retention: p.o.records,
		ActsOnNodes: func() bool {
			return slices.Contains(p.services.Kinds(), managerlease.Kind{CRD: crdgate.NodeCheckCRD})
		},
	}
	service := crdgate.Records()
	service.Start = func(ctx context.Context) error {
		return r.SetupWithManager(ctx, p, controller.Options{MaxConcurrentReconciles: 10})
	}
	return service
}
