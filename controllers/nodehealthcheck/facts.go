package nodehealthcheck

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// policyOf is the one place where the durations in a spec become rules.
func policyOf(spec *nhcv1.NodeHealthCheckSpec) health.Policy {
	p := health.Policy{Rules: make([]health.Rule, 0, len(spec.UnhealthyConditions))}
	for _, c := range spec.UnhealthyConditions {
		p.Rules = append(p.Rules, health.Rule{Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), For: c.Duration.Duration})
	}
	return p
}

// neverReported is the reason given for the Ready condition of a node that has none. The node-lifecycle controller of Kubernetes sets one
// like it when it gets to the node.
const neverReported = "NodeStatusNeverUpdated"

// factsOf states what is known of node. The signals are appended to scratch, so that one slice serves all nodes of a reconcile.
//
// A node that has no Ready condition at all never reported anything: it is taken as Ready=Unknown since it was created. The other
// conditions say nothing as long as they are missing. (medik8s ignores such a node for ever.)
func factsOf(node *corev1.Node, streaks streaks, scratch []health.Signal) health.Target {
	facts := health.Target{Node: health.NodePresent, NodeName: node.Name, Signals: scratch}
	reported := false
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		reported = reported || c.Type == corev1.NodeReady
		facts.Signals = append(facts.Signals, health.Signal{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), Reason: c.Reason,
			Since: streaks.since(c),
		})
	}
	if !reported {
		facts.Signals = append(facts.Signals, health.Signal{
			Source: health.OnNode, Type: string(corev1.NodeReady), Status: string(corev1.ConditionUnknown), Reason: neverReported,
			Since: node.CreationTimestamp.Time,
		})
	}
	return facts
}

// streak is a time for which a condition has been in one bad status or the other.
type streak struct {
	began  time.Time
	status corev1.ConditionStatus
	// turned is when it turned to that.
	turned time.Time
	// longest is the longest duration that one of the statuses since then is tolerated for.
	longest time.Duration
	// effective is from when on the present status counts.
	effective time.Time
}

// streaks are those of one node, by the type of the condition.
//
// A kubelet that dies halfway turns Ready from Unknown to False and back, and each turn starts the condition's clock anew: 299 s of one
// and 299 s of the other are ten minutes without a node, and no rule is ever met. So as long as a node is not being remediated its
// statuses count together, for the longest of their durations. While it is, they do not: on its way back a node is Unknown, then False,
// then True, and that must not make its remediation a failure. (Seed 002, "Special cases".)
type streaks map[corev1.NodeConditionType]streak

// after is what s is with node as it is now, judged by rules. Who was blind since has not seen whether a node that has turned was well in between.
func (s streaks) after(node *corev1.Node, rules []health.Rule, blind bool) streaks {
	var next streaks
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		rule := ruleFor(rules, c)
		if rule == nil {
			continue
		}
		at := c.LastTransitionTime.Time
		is, known := s[c.Type]
		// A turn to the status that it had has another one before it that nobody saw. It may have been well.
		if unseen := !at.Equal(is.turned) && (blind || is.status == c.Status); !known || unseen || at.Before(is.began) {
			is = streak{began: at}
		}
		is.status, is.turned, is.longest = c.Status, at, max(is.longest, rule.For)
		is.effective = at
		if together := is.began.Add(is.longest - rule.For); together.Before(at) {
			is.effective = together
		}
		if next == nil {
			next = streaks{}
		}
		next[c.Type] = is
	}
	return next
}

// since is from when on the status of c counts.
func (s streaks) since(c *corev1.NodeCondition) time.Time {
	if is, known := s[c.Type]; known && is.status == c.Status && is.turned.Equal(c.LastTransitionTime.Time) {
		return is.effective
	}
	return c.LastTransitionTime.Time
}

func ruleFor(rules []health.Rule, c *corev1.NodeCondition) *health.Rule {
	for i := range rules {
		if rules[i].Type == string(c.Type) && rules[i].Status == string(c.Status) {
			return &rules[i]
		}
	}
	return nil
}

// terminating reports whether somebody else is ending node: it has the condition Terminating. (OpenShift's machine-api-termination-handler;
// medik8s takes any status of the condition for it.)
func terminating(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == "Terminating" {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// memberRoles are the labels of nodes that run a member of etcd. (An arbiter runs nothing else: OpenShift's topology HighlyAvailableArbiter, with two
// nodes that have the other roles.)
var memberRoles = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/arbiter"}

// controlPlane reports whether node belongs to the control plane.
func controlPlane(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(memberRoles, func(role string) bool {
		_, is := node.Labels[role]
		return is
	})
}

// nodeReady reports whether node says of itself that it is ready.
func nodeReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
