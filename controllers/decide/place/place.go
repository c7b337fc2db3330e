// Package place has what decisions need to know about RemediationPolicies and their places. A remediation needs a place to begin: the room
// for one more remediation in all limits that count it. Package controllers/policy gives the places.
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

// The reasons why policies let no remediation begin, in the order in which they are reported.
const (
	PoliciesUnread   = "PoliciesUnread"
	HeldByOverride   = "HeldByOverride"
	PolicyInvalid    = "PolicyInvalid"
	ClosedWindow     = "ClosedWindow"
	ObservedByPolicy = "ObservedByPolicy"
	// These four are signals of other programs: see Signalled.
	NodeInMaintenance = "NodeInMaintenance"
	NodeShuttingDown  = "NodeShuttingDown"
	ScaleDownPlanned  = "ScaleDownPlanned"
	ClusterRollingOut = "ClusterRollingOut"

	GroupUnavailable = "GroupUnavailable"
	GroupInFlight    = "GroupInFlight"
	GroupRate        = "GroupRate"
	SlowStart        = "SlowStart"
)

// Reasons are all reasons, in the same order.
var Reasons = []string{
	PoliciesUnread, HeldByOverride, PolicyInvalid, ClosedWindow, ObservedByPolicy,
	NodeInMaintenance, NodeShuttingDown, ScaleDownPlanned, ClusterRollingOut, GroupUnavailable, GroupInFlight, GroupRate, SlowStart,
}

// Unread returns the blocker of remediations while the RemediationPolicies and the remediations that they count are not read yet. It ends
// at until at the latest, if that is not zero.
func Unread(until time.Time) rule.Blocker {
	return rule.Blocker{
		Reason: PoliciesUnread, Text: "The manager has not yet read all RemediationPolicies and what they count",
		EndsWhen: "they are read", Until: until,
	}
}

// Of joins the blockers with a reason, which may come from several policies and limits, to one blocker; zero if there are none.
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

// FailureDomainLabel is the label of a BareMetalHost with its failure domain. (CAPM3, metal3machine_manager.go.)
const FailureDomainLabel = "infrastructure.cluster.x-k8s.io/failure-domain"

// Target is what policies need to know about a Machine that a check selects, or about a Node. It is not changed after it was reported.
type Target struct {
	UID types.UID // for a Node, see NodeID
	// Namespace and Cluster are those of the Machine; empty for a Node without a Machine.
	Namespace, Name, Cluster string
	Host                     string // the name of its BareMetalHost; empty if it has none, or if no policy needs it
	Kind, Check              string // the kind and the name of the check
	// Labels are those of the Machine, or of a Node without a Machine.
	Labels                                 map[string]string
	HostLabels, ClusterLabels, CheckLabels map[string]string
	FailureDomain                          string

	Unknown     bool      // the target cannot be judged
	Unavailable bool      // the target is unhealthy or pending, or its remediation is under way
	InFlight    bool      // the remediation is under way and takes a place
	Observed    bool      // kubemend does not act on the check, so the target only counts
	Live        bool      // the kubelet reports: the Node's condition Ready is True or False
	Due         time.Time // since when the target has been due for remediation
	Refused     time.Time // when the last attempt to begin the remediation failed; zero if none did
	ByHand      bool      // a user requested the remediation by annotation
	Signals     []Signal
}

// OfMachine returns a target with the fields that m itself determines.
func OfMachine(m *clusterv1.Machine) *Target {
	return &Target{
		UID: m.UID, Namespace: m.Namespace, Name: m.Name, Cluster: m.Spec.ClusterName, Labels: m.Labels,
		FailureDomain: cmp.Or(m.Status.FailureDomain, m.Spec.FailureDomain),
	}
}

// On sets the fields that the node, the Cluster and the host of t determine. Host is the host's name; empty if it is not known.
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

// NodeID returns the UID that a target has for a Node. It is made from the name, so a Node that is created again is the same target.
func NodeID(name string) types.UID { return types.UID("Node " + name) }

// Allowance is how many machines of a check may be unhealthy because of a RemediationOverride.
type Allowance struct {
	rule.Ref

	MaxUnhealthy intstr.IntOrString
	Until        time.Time
}
