package machinehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// defaultNodeStartup applies where the field is not set; Cluster API's webhook writes the same into the spec.
const defaultNodeStartup = 10 * time.Minute

// staleCache is how long to wait for a cache that was seen to lag behind the API server.
const staleCache = time.Second

// policyOf is the one place where seconds in a spec become durations.
func policyOf(checks clusterv1.MachineHealthCheckChecks) health.Policy {
	policy := health.Policy{NodeStartup: defaultNodeStartup}
	if seconds := checks.NodeStartupTimeoutSeconds; seconds != nil {
		policy.NodeStartup = time.Duration(*seconds) * time.Second
	}
	for _, cond := range checks.UnhealthyMachineConditions {
		policy.Rules = append(policy.Rules, health.Rule{
			Source: health.OnMachine, Type: cond.Type, Status: string(cond.Status),
			For: time.Duration(ptr.Deref(cond.TimeoutSeconds, 0)) * time.Second,
		})
	}
	for _, cond := range checks.UnhealthyNodeConditions {
		policy.Rules = append(policy.Rules, health.Rule{
			Source: health.OnNode, Type: string(cond.Type), Status: string(cond.Status),
			For: time.Duration(ptr.Deref(cond.TimeoutSeconds, 0)) * time.Second,
		})
	}
	return policy
}

// findNodes finds the nodes of those targets in the cache, and asks the workload cluster itself about those that are missing there: a
// cache may be stale, and kubemend never waits for a node that it takes for deleted. It does not ask for the node of a machine that is
// being deleted, which goes with it. It returns the names of the nodes that the workload cluster itself says it does not have.
func (r *Reconciler) findNodes(ctx context.Context, state *observed) (gone map[string]bool) {
	if state.view.Link != health.Up {
		return nil
	}
	gone = map[string]bool{}
	var missing []string
	for _, target := range slices.Concat(state.Targets, state.Skipped) {
		name := target.Machine.Status.NodeRef.Name
		target.Node, target.OtherNode = state.view.NodeOf(target.Machine)
		if name == "" {
			target.Node = nil // Cluster API has not found it yet
			continue
		}
		switch {
		case target.Node != nil || target.OtherNode != nil || Deleting(target.Machine) || len(LeftAloneBy(target.Machine)) > 0:
		case state.confirmedGone(target):
			gone[name] = true
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return gone
	}
	present, err := r.Clusters.NodesExist(ctx, client.ObjectKeyFromObject(state.Cluster), missing)
	if err != nil {
		// The machines concerned stay unknown, and all others are judged all the same.
		state.Trouble = append(state.Trouble, fmt.Errorf("find out whether nodes %s are gone: %w", strings.Join(missing, ", "), err))
		return gone
	}
	for _, name := range missing {
		if present[name] {
			state.lookAgainIn(staleCache)
		} else {
			gone[name] = true
		}
	}
	return gone
}

// confirmedGone reports whether an earlier reconcile confirmed and wrote down that the node of target is gone, and no remediation of it has
// still to be begun: before it is, what was confirmed long ago, perhaps by another writer, is confirmed again.
func (state *observed) confirmedGone(target *Target) bool {
	if failed := Failed(target.Machine); failed == nil || failed.Status != metav1.ConditionFalse ||
		failed.Reason != clusterv1.MachineHealthCheckNodeDeletedReason {
		return false
	}
	asked := ConditionOf(target.Machine, OwnerRemediated)
	mayStart := state.Template.External || asked == nil || asked.Status != metav1.ConditionFalse
	return !mayStart || state.requestOf(target.Machine.Name) != nil
}

// knownOf is what is known of the node of target, given the names of those that are gone.
func knownOf(state *observed, target *Target, gone map[string]bool) health.Node {
	name := target.Machine.Status.NodeRef.Name
	switch {
	case name == "" && (state.view.Link == health.Up || !state.Initialized()):
		// Before the control plane is initialized there is no API server to ask, and no need: the first control plane is what is awaited.
		return health.NodeAwaited
	case target.Node != nil:
		return health.NodePresent
	case gone[name]:
		return health.NodeGone
	case target.OtherNode != nil && !otherOf(target).Twin() && ConditionTrue(target.Machine, clusterv1.MachineNodeReadyCondition) == nil:
		return health.NodeOther // what Cluster API says, which finds the node by its provider ID, does not contradict that
	}
	return health.NodeUnseen
}

// otherOf is the node that is in the way of knowing the one of target; zero if there is none.
func otherOf(target *Target) health.Other {
	if target.OtherNode == nil {
		return health.Other{}
	}
	return health.Other{Name: target.OtherNode.Name, ProviderID: target.OtherNode.Spec.ProviderID, Wanted: target.Machine.Spec.ProviderID}
}

// healthOf is what the verdict on machine depends on, as far as it is a matter of machine and of its node.
func healthOf(checks clusterv1.MachineHealthCheckChecks, machine *clusterv1.Machine, known health.Node, node *corev1.Node) health.Target {
	_, marked := machine.Annotations[clusterv1.RemediateMachineAnnotation]
	facts := health.Target{
		Marked: marked, Failure: finalFailure(machine),
		Paused: ConditionTrue(machine, clusterv1.PausedCondition) != nil, Resumed: resumed(machine),
		NodeName: machine.Status.NodeRef.Name, Node: known, Signals: signalsOf(checks, machine, node),
	}
	ready := Since(ConditionTrue(machine, clusterv1.MachineInfrastructureReadyCondition))
	for _, start := range [...]time.Time{machine.CreationTimestamp.Time, ready, facts.Resumed} {
		if start.After(facts.AwaitedSince) {
			facts.AwaitedSince = start
		}
	}
	return facts
}

// signalsOf are the conditions that rules are about, and no others: those of machines as far as a check has rules about machines, and of
// nodes those that Cluster API repeats on the machine too. A Ready that the node has not counts from when it was first missed.
func signalsOf(checks clusterv1.MachineHealthCheckChecks, machine *clusterv1.Machine, node *corev1.Node) []health.Signal {
	var signals []health.Signal
	mirrored := false
	for i := range machine.Status.Conditions {
		cond := &machine.Status.Conditions[i]
		for _, rule := range checks.UnhealthyMachineConditions {
			if rule.Type == cond.Type {
				mirrored = mirrored || cond.Type == health.NodeReady || cond.Type == health.NodeHealthy
				signals = append(signals, health.Signal{
					Source: health.OnMachine, Type: cond.Type, Status: string(cond.Status), Reason: cond.Reason,
					Since: cond.LastTransitionTime.Time,
				})
				break
			}
		}
	}
	if node == nil {
		return signals
	}
	ruled := func(kind corev1.NodeConditionType) bool {
		return mirrored || slices.ContainsFunc(checks.UnhealthyNodeConditions, func(rule clusterv1.UnhealthyNodeCondition) bool {
			return rule.Type == kind
		})
	}
	missing := ruled(corev1.NodeReady)
	for i := range node.Status.Conditions {
		cond := &node.Status.Conditions[i]
		missing = missing && cond.Type != corev1.NodeReady
		if ruled(cond.Type) {
			signals = append(signals, health.Signal{
				Source: health.OnNode, Type: string(cond.Type), Status: string(cond.Status), Reason: cond.Reason,
				Since: cond.LastTransitionTime.Time,
			})
		}
	}
	if missing {
		signals = append(signals, health.ReadyMissing)
	}
	return signals
}

// resumed is when Cluster API took machine up again after a pause; zero if it never was paused. Core writes Paused=False on every machine
// when it first sees it, which ends no pause: nothing was written before. If it is older than the machine itself, that was restored from a
// backup with its status: all that was written before was not true of this machine, and counts from when that was made.
func resumed(machine *clusterv1.Machine) time.Time {
	cond := ConditionOf(machine, clusterv1.PausedCondition)
	switch {
	case cond == nil || cond.Status != metav1.ConditionFalse:
		return time.Time{}
	case cond.LastTransitionTime.Before(&machine.CreationTimestamp):
		return machine.CreationTimestamp.Time
	case cond.LastTransitionTime.Sub(machine.CreationTimestamp.Time) <= health.Settling:
		return time.Time{}
	}
	return cond.LastTransitionTime.Time
}

// finalFailure is what Cluster API says has failed for good, from which the machine never recovers; empty if nothing has. Core copies it
// from the infrastructure machine, or sets it if that was deleted, and never removes it. Since v1.11 no controller of Cluster API acts on
// it.
func finalFailure(machine *clusterv1.Machine) string {
	if machine.Status.Deprecated == nil || machine.Status.Deprecated.V1Beta1 == nil {
		return ""
	}
	var parts []string
	if reason := ptr.Deref(machine.Status.Deprecated.V1Beta1.FailureReason, ""); reason != "" {
		parts = append(parts, "FailureReason: "+string(reason))
	}
	if message := ptr.Deref(machine.Status.Deprecated.V1Beta1.FailureMessage, ""); message != "" {
		parts = append(parts, "FailureMessage: "+strings.Join(strings.Fields(message), " "))
	}
	return strings.Join(parts, ", ")
}
