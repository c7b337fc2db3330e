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
	"github.com/kubemend/kubemend/controllers/workload"
)

// defaultNodeStartup applies where the field is not set; Cluster API's webhook writes the same into the spec.
const defaultNodeStartup = 10 * time.Minute

// staleCache is how long to wait for a cache that was seen to lag behind the API server.
const staleCache = time.Second

// policyOf is the one place where seconds in a spec become durations.
func policyOf(checks clusterv1.MachineHealthCheckChecks) health.Policy {
	p := health.Policy{NodeStartup: defaultNodeStartup}
	if s := checks.NodeStartupTimeoutSeconds; s != nil {
		p.NodeStartup = time.Duration(*s) * time.Second
	}
	for _, c := range checks.UnhealthyMachineConditions {
		p.Rules = append(p.Rules, health.Rule{
			Source: health.OnMachine, Type: c.Type, Status: string(c.Status),
			For: time.Duration(ptr.Deref(c.TimeoutSeconds, 0)) * time.Second,
		})
	}
	for _, c := range checks.UnhealthyNodeConditions {
		p.Rules = append(p.Rules, health.Rule{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status),
			For: time.Duration(ptr.Deref(c.TimeoutSeconds, 0)) * time.Second,
		})
	}
	return p
}

// findNodes finds the nodes of those targets in the cache, and asks the workload cluster itself about those that are missing there: a cache
// may be stale, and kubemend never waits for a node that it takes for deleted. It does not ask for the node of a machine that is being deleted, which
// goes with it. It returns the names of the nodes that the workload cluster itself says it does not have.
func (r *Reconciler) findNodes(ctx context.Context, w *observed) (gone map[string]bool) {
	if w.link.Link != workload.Up {
		return nil
	}
	gone = map[string]bool{}
	var missing []string
	for _, t := range slices.Concat(w.targets, w.skipped) {
		name := t.machine.Status.NodeRef.Name
		t.node, t.other = w.link.NodeOf(t.machine)
		if name == "" {
			t.node = nil // Cluster API has not found it yet
			continue
		}
		switch {
		case t.node != nil || t.other != nil || deleting(t.machine):
		case markedNodeDeleted(t.machine) && !w.mayStart(t):
			gone[name] = true
		default:
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return gone
	}
	present, err := r.Clusters.NodesExist(ctx, client.ObjectKeyFromObject(w.cluster), missing)
	if err != nil {
		// The machines concerned stay unknown, and all others are judged all the same.
		w.trouble = append(w.trouble, fmt.Errorf("find out whether nodes %s are gone: %w", strings.Join(missing, ", "), err))
		return gone
	}
	for _, name := range missing {
		if present[name] {
			w.lookAgainIn(staleCache)
		} else {
			gone[name] = true
		}
	}
	return gone
}

// mayStart reports whether a remediation of t may still have to be begun. Before it is, what was confirmed long ago, perhaps by
// somebody else, is confirmed again.
func (w *observed) mayStart(t *target) bool {
	asked := conditionOf(t.machine, clusterv1.MachineOwnerRemediatedCondition)
	return !deleting(t.machine) && w.requestOf(t.machine.Name) == nil && (w.remediation.External || asked == nil || asked.Status != metav1.ConditionFalse)
}

// markedNodeDeleted reports whether an earlier reconcile confirmed and wrote down that the machine's node is gone.
func markedNodeDeleted(m *clusterv1.Machine) bool {
	c := conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == clusterv1.MachineHealthCheckNodeDeletedReason
}

// knownOf is what is known of the node of t, given the names of those that are gone.
func knownOf(w *observed, t *target, gone map[string]bool) health.Node {
	name := t.machine.Status.NodeRef.Name
	switch {
	case name == "" && (w.link.Link == workload.Up || !w.initialized):
		// Before the control plane is initialized there is no API server to ask, and no need: the first control plane is what is awaited.
		return health.NodeAwaited
	case t.node != nil:
		return health.NodePresent
	case gone[name]:
		return health.NodeGone
	case t.other != nil && !otherOf(t).Twin() && conditionTrue(t.machine, clusterv1.MachineNodeReadyCondition) == nil:
		return health.NodeOther // what Cluster API says, which finds the node by its provider ID, does not contradict that
	}
	return health.NodeUnseen
}

// otherOf is the node that is in the way of knowing the one of t; zero if there is none.
func otherOf(t *target) health.Other {
	if t.other == nil {
		return health.Other{}
	}
	return health.Other{Name: t.other.Name, ProviderID: t.other.Spec.ProviderID, Wanted: t.machine.Spec.ProviderID}
}

// healthOf is what the verdict on m depends on, as far as it is a matter of m and of its node.
func healthOf(checks clusterv1.MachineHealthCheckChecks, m *clusterv1.Machine, known health.Node, node *corev1.Node) health.Target {
	_, marked := m.Annotations[clusterv1.RemediateMachineAnnotation]
	is := health.Target{
		Marked: marked, Failure: finalFailure(m), Paused: conditionTrue(m, clusterv1.PausedCondition) != nil, Resumed: resumed(m),
		NodeName: m.Status.NodeRef.Name, Node: known, Signals: signalsOf(checks, m, node),
	}
	for _, start := range [...]time.Time{m.CreationTimestamp.Time, since(conditionTrue(m, clusterv1.MachineInfrastructureReadyCondition)), is.Resumed} {
		if start.After(is.AwaitedSince) {
			is.AwaitedSince = start
		}
	}
	return is
}

// signalsOf are the conditions that rules are about, and no others: those of machines as far as a check has rules about machines, and of nodes those that
// Cluster API repeats on the machine too.
func signalsOf(checks clusterv1.MachineHealthCheckChecks, m *clusterv1.Machine, node *corev1.Node) []health.Signal {
	var signals []health.Signal
	mirrored := false
	for i := range m.Status.Conditions {
		c := &m.Status.Conditions[i]
		for _, rule := range checks.UnhealthyMachineConditions {
			if rule.Type == c.Type {
				mirrored = mirrored || c.Type == health.NodeReady || c.Type == health.NodeHealthy
				signals = append(signals, health.Signal{
					Source: health.OnMachine, Type: c.Type, Status: string(c.Status), Reason: c.Reason, Since: c.LastTransitionTime.Time,
				})
				break
			}
		}
	}
	if node == nil {
		return signals
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if mirrored || slices.ContainsFunc(checks.UnhealthyNodeConditions, func(rule clusterv1.UnhealthyNodeCondition) bool { return rule.Type == c.Type }) {
			signals = append(signals, health.Signal{
				Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Since: c.LastTransitionTime.Time,
			})
		}
	}
	return signals
}

func since(c *metav1.Condition) time.Time {
	if c == nil {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// clusterPaused reports whether what Cluster API says of the machines of c is as old as a pause: Cluster API does not write it while the Cluster is paused, and
// after that core sets the machine's own condition Paused to False before it looks at anything else. (Cluster API, util/paused.) A Cluster's condition
// Paused tells less: it is True as well if only the Cluster has the annotation, and its machines are looked at.
func clusterPaused(c *clusterv1.Cluster) bool { return ptr.Deref(c.Spec.Paused, false) }

// resumed is when Cluster API took m up again after a pause; zero if it never was paused. Core writes Paused=False on every machine when it first
// sees it, which ends no pause: nothing was written before. If it is older than the machine itself, that was restored from a backup with its
// status: all that was written before was not true of this machine, and counts from when that was made.
func resumed(m *clusterv1.Machine) time.Time {
	c := conditionOf(m, clusterv1.PausedCondition)
	switch {
	case c == nil || c.Status != metav1.ConditionFalse:
		return time.Time{}
	case c.LastTransitionTime.Before(&m.CreationTimestamp):
		return m.CreationTimestamp.Time
	case c.LastTransitionTime.Sub(m.CreationTimestamp.Time) <= health.Settling:
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// finalFailure is what Cluster API says has failed for good, from which the machine never recovers; empty if nothing has. Core copies it from the
// infrastructure machine, or sets it if that was deleted, and never removes it. Since v1.11 no controller of Cluster API acts on it.
func finalFailure(m *clusterv1.Machine) string {
	if m.Status.Deprecated == nil || m.Status.Deprecated.V1Beta1 == nil {
		return ""
	}
	var parts []string
	if reason := ptr.Deref(m.Status.Deprecated.V1Beta1.FailureReason, ""); reason != "" {
		parts = append(parts, "FailureReason: "+string(reason))
	}
	if message := ptr.Deref(m.Status.Deprecated.V1Beta1.FailureMessage, ""); message != "" {
		parts = append(parts, "FailureMessage: "+strings.Join(strings.Fields(message), " "))
	}
	return strings.Join(parts, ", ")
}
