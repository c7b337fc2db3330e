package explain

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
)

// Moment renders a moment, such as "11:47:00 (in 5m)".
type Moment func(time.Time) string

// Fact is one thing that is known of an object, such as its node.
type Fact = cliv1.Fact

// The next steps of what has none of its own.
var (
	NothingNext = Step{Reason: NothingExpected, Text: "nothing is due"}
	NoCheckNext = Step{Reason: NotSelected, Manual: true,
		Text: "If it is to be judged, make a check that selects it, or give it the labels that one asks for"}
	ChecksUnreadNext = Step{Reason: MissingPermission, Text: "Ask as a user who may read them", Manual: true}
)

// The answers about objects that no check judges.
var (
	NoCheckSelects  = Answer{State: NotChecked, Reason: NotSelected, Implied: true, Detail: "no check selects it"}
	NoRuleMatches   = Answer{State: NotChecked, Reason: NoRule, Implied: true, Detail: "its node is not Ready, which no rule is about"}
	NoMachineOfHost = Answer{State: NotChecked, Reason: NotSelected, Implied: true, Detail: "no Machine is on this host"}
)

// NotJudged is the answer about an object that c selects and does not judge.
func (c *Check) NotJudged() Answer {
	a := Answer{State: NotChecked}
	if c.Reason == NotExplained { // a manager may well judge it
		a.State = IsUnknown
		c.notExplained(&a)
		return a
	}
	c.notActing(&a)
	return a
}

// CouldNotBeRead reports what could not be read.
func CouldNotBeRead(what string) string { return "Could not be read: " + what }

// Timing is since when f counts its timeout, and when that expires; since is empty if it has none.
func Timing(f *Finding, at Moment) (since, expires string) {
	if f.Expires.IsZero() {
		return "", "counts at once"
	}
	since = "since " + at(f.Since.Time)
	if f.SinceMessage != "" {
		since = "counted from " + at(f.Since.Time) + ", " + f.SinceMessage
	}
	expires = "expires "
	if f.Expired {
		expires = "expired "
	}
	timeout := ptr.Deref(f.Timeout, metav1.Duration{}) // it is left out of the document if it is 0
	return fmt.Sprintf("%s, timeout %s, ", since, Brief(timeout.Duration)), expires + at(f.Expires.Time)
}

// FlawText is a flaw of a check in one line.
func FlawText(flaw *metav1.Condition) string {
	return flaw.Reason + ": " + strings.Join(strings.Fields(strings.TrimPrefix(flaw.Message, "* ")), " ")
}

// Remarks are what the row of c in a table cannot show: who is not healthy, why kubemend does not act, and why no remediation starts.
func (c *Check) Remarks() []string {
	var remarks []string
	tooMany := c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && c.NodesUnknown == nil
	if c.Counts.NotHealthy() > 0 && !c.NodesNotReadable() {
		remarks = append(remarks, NotHealthy(c.Counts))
	}
	if c.ModeMessage != "" && !c.TextHasMode() && !c.ActsElsewhere() {
		remarks = append(remarks, c.ModeMessage)
	}
	if c.NodesUnknown != nil {
		remarks = append(remarks, c.NodesUnknown.Message)
	} else if c.Message != "" && !tooMany {
		remarks = append(remarks, c.Message)
	}
	if flaw := c.Flaw(); flaw != nil {
		remarks = append(remarks, FlawText(flaw))
	}
	return remarks
}
