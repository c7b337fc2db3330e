package policy

import (
	"maps"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// OnSet makes the ledger call do whenever the policies change.
func (l *Ledger) OnSet(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = do
}

// ofCheck returns a target with the fields that all Machines of check share.
func ofCheck(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) Target {
	return Target{
		Kind: MachineHealthCheck, Check: check.Name, CheckLabels: check.Labels,
		Namespace: check.Namespace, Cluster: check.Spec.ClusterName, ClusterLabels: cluster.Labels,
	}
}

// SelectsMachine reports whether p applies to machine, which check selects.
func (p *Policy) SelectsMachine(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, machine *clusterv1.Machine) bool {
	target := ofCheck(check, cluster)
	target.Labels = machine.Labels
	return p.Selects(&target)
}

// ModeOf returns the mode that policies set for check, and the policy that sets it. Observe takes precedence over Act; mode is empty if no
// policy sets one. known is false before policies were read, or if an invalid policy with a mode may apply to check.
func (l *Ledger) ModeOf(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) (mode mendv1.PolicyMode, by rule.Ref, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	target := ofCheck(check, cluster)
	known = l.read
	for _, p := range slices.SortedFunc(maps.Values(l.policies), byName) {
		switch {
		case p.mode == "":
		case p.Invalid != "":
			known = known && !p.reaches(check.Namespace)
		case mode == mendv1.PolicyObserves, mode == p.mode, !p.Selects(&target):
		default:
			mode, by = p.mode, p.Ref
		}
	}
	return mode, by, known
}

// SpareWaits returns how long, by the current policies, Machines of check wait for a spare host at most; zero for those that do not wait.
func (l *Ledger) SpareWaits(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) func(*clusterv1.Machine) time.Duration {
	var policies []*Policy
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		policies = slices.Collect(maps.Values(l.policies))
	}
	return func(machine *clusterv1.Machine) (longest time.Duration) {
		for _, p := range policies {
			if p.spareWait > longest && p.SelectsMachine(check, cluster, machine) {
				longest = p.spareWait
			}
		}
		return longest
	}
}
