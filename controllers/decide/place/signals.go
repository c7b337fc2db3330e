package place

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

const (
	// drainTaint is what the Node Maintenance Operator puts on a node before it drains it (medik8s/node-maintenance-operator, README).
	drainTaint = "medik8s.io/drain"
	// scaleDownTaint is what the cluster autoscaler puts on a node that it is about to delete, with the time in seconds as its value
	// (kubernetes/autoscaler, utils/taints).
	scaleDownTaint = "ToBeDeletedByClusterAutoscaler"
)

// Signal is what another program says about a node or its Cluster. It blocks remediations if a policy selects it.
type Signal struct {
	rule.Blocker

	Signal mendv1.Signal
	Since  time.Time
}

// WithoutPolicy are the signals that block if no RemediationPolicy selects signals.
var WithoutPolicy = []mendv1.Signal{mendv1.SignalNodeMaintenance, mendv1.SignalNodeShutdown, mendv1.SignalAutoscalerScaleDown}

// Signals has the blocker for each signal. SignalsOf appends the condition or taint, and its time, to the text.
var Signals = map[mendv1.Signal]rule.Blocker{
	mendv1.SignalNodeMaintenance: {Reason: NodeInMaintenance, Text: "Its node is in maintenance", EndsWhen: "the maintenance is over"},
	mendv1.SignalNodeShutdown:    {Reason: NodeShuttingDown, Text: "Its node is being shut down", EndsWhen: "the node is up again"},
	mendv1.SignalAutoscalerScaleDown: {
		Reason: ScaleDownPlanned, Text: "The cluster autoscaler is about to delete its node",
		EndsWhen: "it deletes the node, or after half an hour",
	},
	mendv1.SignalClusterRollout: {Reason: ClusterRollingOut, Text: "Its Cluster is rolling out", EndsWhen: "the rollout is over"},
}

// SignalsOf returns the signals of a node and its Cluster, which may be nil. The signals of a shutdown and a scale-down expire, because the
// program that set them may be gone, and a condition stays on a Node whose kubelet is down.
func SignalsOf(node *corev1.Node, cluster *clusterv1.Cluster) []Signal {
	var signals []Signal
	add := func(signal mendv1.Signal, said string, since time.Time, lasts time.Duration) {
		if said == "" {
			return
		}
		b := Signals[signal]
		if b.Text += ": " + said; !since.IsZero() {
			b.Text += " since " + since.UTC().Format(time.RFC3339)
		}
		if lasts > 0 {
			b.Until = since.Add(lasts)
		}
		signals = append(signals, Signal{b, signal, since})
	}
	if node != nil {
		said, since := maintenance(node)
		add(mendv1.SignalNodeMaintenance, said, since, 0)
		said, since = isTrue(node, "GracefulNodeShutdownInProgress")
		add(mendv1.SignalNodeShutdown, said, since, 10*time.Minute)
		said, since = tainted(node, scaleDownTaint)
		add(mendv1.SignalAutoscalerScaleDown, said, since, 30*time.Minute)
	}
	if cluster == nil {
		return signals
	}
	rollout := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
	if rollout != nil && rollout.Status == metav1.ConditionTrue {
		add(mendv1.SignalClusterRollout, "condition "+rollout.Type, rollout.LastTransitionTime.Time, 0)
	}
	return signals
}

// Signalled returns the blockers of those signals that are in while and have not expired. A signal that expires is ignored if its time is
// far in the future: otherwise it would block as long as the clock of its writer is wrong.
func Signalled(signals []Signal, while []mendv1.Signal, now time.Time) (blockers []rule.Blocker) {
	for _, s := range signals {
		lasts := s.Until.Sub(s.Since)
		if slices.Contains(while, s.Signal) && (s.Until.IsZero() || now.Before(s.Until) && s.Since.Before(now.Add(lasts))) {
			blockers = append(blockers, s.Blocker)
		}
	}
	return blockers
}

// WithoutLedger returns the blockers of a node's remediation if there are no RemediationPolicies.
func WithoutLedger(node *corev1.Node, now time.Time) []rule.Blocker {
	return Signalled(SignalsOf(node, nil), WithoutPolicy, now)
}

// maintenance returns the condition or taint that says that node is in maintenance, and since when. A cordon does not count. (KEP-5683)
func maintenance(node *corev1.Node) (what string, since time.Time) {
	for _, kind := range []corev1.NodeConditionType{"MaintenanceInProgress", "DrainInProgress"} {
		if what, since = isTrue(node, kind); what != "" {
			return what, since
		}
	}
	return tainted(node, drainTaint)
}

// InMaintenance reports whether a condition or a taint says that node is in maintenance and so may go down at any moment.
func InMaintenance(node *corev1.Node) bool {
	return len(Signalled(SignalsOf(node, nil), []mendv1.Signal{mendv1.SignalNodeMaintenance}, time.Time{})) > 0
}

func isTrue(node *corev1.Node, kind corev1.NodeConditionType) (what string, since time.Time) {
	for _, cond := range node.Status.Conditions {
		if cond.Type == kind && cond.Status == corev1.ConditionTrue {
			return "condition " + string(kind), cond.LastTransitionTime.Time
		}
	}
	return "", time.Time{}
}

func tainted(node *corev1.Node, key string) (what string, since time.Time) {
	i := slices.IndexFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
	if i < 0 {
		return "", time.Time{}
	}
	if seconds, err := strconv.ParseInt(node.Spec.Taints[i].Value, 10, 64); err == nil {
		since = time.Unix(seconds, 0)
	}
	return "taint " + key, since
}

// SignalTaints returns the drain taint of node and the time in its scale-down taint, for a comparison of two versions of node.
func SignalTaints(node *corev1.Node) [2]string {
	drained, _ := tainted(node, drainTaint)
	_, deleted := tainted(node, scaleDownTaint)
	return [2]string{drained, deleted.String()}
}
