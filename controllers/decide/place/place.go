// Package place has what decisions know of the places that RemediationPolicies give to remediations. Package controllers/policy gives them.
package place

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The reasons for which policies let no remediation begin, in the order in which they are said.
const (
	PoliciesUnread   = "PoliciesUnread"
	HeldByOverride   = "HeldByOverride"
	PolicyInvalid    = "PolicyInvalid"
	ClosedWindow     = "ClosedWindow"
	ObservedByPolicy = "ObservedByPolicy"
	// The signals of others: see Signalled.
	NodeInMaintenance = "NodeInMaintenance"
	NodeShuttingDown  = "NodeShuttingDown"
	ScaleDownPlanned  = "ScaleDownPlanned"
	ClusterRollingOut = "ClusterRollingOut"

	GroupUnavailable = "GroupUnavailable"
	GroupInFlight    = "GroupInFlight"
	GroupRate        = "GroupRate"
	SlowStart        = "SlowStart"
)

// Reasons are all of them.
var Reasons = []string{
	PoliciesUnread, HeldByOverride, PolicyInvalid, ClosedWindow, ObservedByPolicy,
	NodeInMaintenance, NodeShuttingDown, ScaleDownPlanned, ClusterRollingOut, GroupUnavailable, GroupInFlight, GroupRate, SlowStart,
}

// Unread blocks what would begin before it is known what policies say, and what they count; until then at most, if that is not zero.
func Unread(until time.Time) rule.Blocker {
	return rule.Blocker{
		Reason: PoliciesUnread, Text: "What RemediationPolicies say, and what they count, was not read yet since the manager was started",
		EndsWhen: "it is", Until: until,
	}
}

// Of is what of blockers is for a reason, by whatever policies and limits, as one; zero if there is none.
func Of(reason string, blockers []rule.Blocker) (words rule.Blocker) {
	for _, b := range blockers {
		switch {
		case b.Reason != reason:
		case words.Reason == "":
			words = b
		default:
			words.Brief = cmp.Or(words.Brief, words.Text) + ". " + cmp.Or(b.Brief, b.Text)
			words.Text += ". " + b.Text
			if b.Until.After(words.Until) {
				words.Until = b.Until
			}
		}
	}
	return words
}

// FailureDomainLabel is that of a BareMetalHost. (CAPM3, metal3machine_manager.go.)
const FailureDomainLabel = "infrastructure.cluster.x-k8s.io/failure-domain"

// Target is what policies see of a Machine that a check selects, or of a Node. It is not changed once it was reported.
type Target struct {
	UID types.UID // see NodeID
	// Namespace and Cluster are those of the Machine; empty for a node without one.
	Namespace, Name, Cluster string
	// Host is its BareMetalHost; empty if it has none, or if no policy asks for that.
	Host string
	// Kind and Check are those of the check.
	Kind, Check string
	// The labels of the Machine, or of a node without one, of its BareMetalHost, of its Cluster and of its check.
	Labels, HostLabels, ClusterLabels, CheckLabels map[string]string
	FailureDomain                                  string

	// Unknown says that it cannot be judged; Unavailable that it is unhealthy, or about to be, or its remediation is under way; InFlight
	// that it is and takes a place. Observed says that kubemend does not act on its check, so that it only counts.
	Unknown, Unavailable, InFlight, Observed bool
	// Live says that its node reports: its condition Ready is True or False.
	Live bool
	// Due is since when it is due to be remediated, ByHand that a person has marked it. Refused is when that was last tried in vain; zero if
	// it was not.
	Due, Refused time.Time
	ByHand       bool
	Signals      []Signal
}

// OfMachine is m as a target, but for the rest.
func OfMachine(m *clusterv1.Machine) *Target {
	return &Target{
		UID: m.UID, Namespace: m.Namespace, Name: m.Name, Cluster: m.Spec.ClusterName, Labels: m.Labels,
		FailureDomain: cmp.Or(m.Status.FailureDomain, m.Spec.FailureDomain),
	}
}

// On notes which node, host and Cluster t is on, the host by its name and labels; empty if that is not known.
func (t *Target) On(node *corev1.Node, cluster *clusterv1.Cluster, host string, labels map[string]string) {
	t.Signals = SignalsOf(node, cluster)
	if node != nil {
		t.FailureDomain = cmp.Or(t.FailureDomain, node.Labels[corev1.LabelTopologyZone])
		t.Live = slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionUnknown
		})
	}
	t.Host, t.HostLabels, t.FailureDomain = host, labels, cmp.Or(labels[FailureDomainLabel], t.FailureDomain)
}

// NodeID is what identifies a node: one that comes back under its name is the same target.
func NodeID(name string) types.UID { return types.UID("Node " + name) }

// Allowance is how many machines of a check may be unhealthy by an override.
type Allowance struct {
	rule.Ref

	MaxUnhealthy intstr.IntOrString
	Until        time.Time
}
