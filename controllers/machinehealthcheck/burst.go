package machinehealthcheck

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/budget"
	"github.com/kubemend/kubemend/controllers/health"
	"github.com/kubemend/kubemend/controllers/wake"
)

// The first change of a quiet check is looked at without waiting for those that come with it. Where a limit counts them that is too early to begin
// anything: when three nodes vanish, or come back, one of them does first, and for a moment few enough machines are unhealthy. So nothing begins
// in the pass that finds a machine unhealthy which was healthy in the one before, nor in the first that finds few enough: both are repeated after a
// merge window. What a pass says of a machine waits for nothing. (docs/adr/0035-the-first-change-waits-for-nothing.md)

// awaitBurst marks the targets of w for which nothing begins in this pass.
func (m *memory) awaitBurst(w *world) {
	if !limited(w.check) {
		return
	}
	m.mu.Lock()
	last := m.checks[client.ObjectKeyFromObject(w.check)]
	m.mu.Unlock()
	stormy := restricted(w.check)
	for i := range w.targets {
		t := &w.targets[i]
		known := last != nil && last.bad[t.machine.UID]
		if w.startable(t) && (stormy || !known) {
			t.sudden = true
		}
	}
}

// afterBurst is when to look again because something would have begun in this pass; zero if nothing would.
func afterBurst(w *world, s summary) time.Time {
	would := s.grant.Reason == budget.Enough || s.grant.Reason == budget.AtWork
	if would && slices.ContainsFunc(w.targets, func(t target) bool { return t.sudden }) {
		return w.now.Add(wake.MergeWindow)
	}
	return time.Time{}
}

// limited reports whether more unhealthy machines could forbid to remediate any.
func limited(check *clusterv1.MachineHealthCheck) bool {
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	return trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
}

// restricted reports whether the last pass found too many machines unhealthy, or too few.
func restricted(check *clusterv1.MachineHealthCheck) bool {
	c := conditionOf(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return c != nil && c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason
}

// unhealthyIn are the machines of w that are not healthy.
func unhealthyIn(w *world) map[types.UID]bool {
	bad := map[types.UID]bool{}
	for i := range w.targets {
		if t := &w.targets[i]; t.verdict.State != health.Healthy {
			bad[t.machine.UID] = true
		}
	}
	return bad
}
