// Package place has what decisions know of the places that RemediationPolicies give to remediations. Package controllers/policy gives them.
package place

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The reasons for which policies let no remediation begin, in the order in which they are said.
const (
	PoliciesUnread   = "PoliciesUnread"
	HeldByOverride   = "HeldByOverride"
	PolicyInvalid    = "PolicyInvalid"
	ClosedWindow     = "ClosedWindow"
	GroupUnavailable = "GroupUnavailable"
	GroupInFlight    = "GroupInFlight"
	GroupRate        = "GroupRate"
	SlowStart        = "SlowStart"
)

// Target is what policies see of a Machine that a check selects. It is not changed once it was reported.
type Target struct {
	UID                      types.UID
	Namespace, Name, Cluster string
	// Host is its BareMetalHost; empty if it has none, or if no policy asks for that.
	Host string
	// Check is the MachineHealthCheck, in the same namespace.
	Check string
	// The labels of the Machine, of its BareMetalHost, of its Cluster and of its check.
	Labels, HostLabels, ClusterLabels, CheckLabels map[string]string
	FailureDomain                                  string

	// Unknown says that it cannot be judged; Unavailable that it is unhealthy, or about to be, or its remediation is under way; InFlight
	// that it is and takes a place.
	Unknown, Unavailable, InFlight bool
	// Live says that its node reports: its condition Ready is True or False.
	Live bool
	// Due is since when it is due to be remediated, ByHand that a person has marked it.
	Due    time.Time
	ByHand bool
}

// Allowance is how many machines of a check may be unhealthy by an override.
type Allowance struct {
	rule.Ref

	MaxUnhealthy intstr.IntOrString
	Until        time.Time
}
