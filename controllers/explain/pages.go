package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Moment renders a moment, such as "11:47:00 (in 5m)".
type Moment func(time.Time) string

// Painter colours words by what they mean.
type Painter interface {
	Good(string) string
	Bad(string) string
	Waits(string) string
}

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
	c.notActing(&a)
	return a
}

// CouldNotBeRead reports what could not be read.
func CouldNotBeRead(what string) string { return "Could not be read: " + what }

// MachineUnjudged reports that the nodes of m's cluster could not be read, and what the answer is instead.
func MachineUnjudged(m *clusterv1.Machine, why string, told bool) string {
	note := fmt.Sprintf("The nodes of cluster %s could not be read: %s. The answer is ", m.Spec.ClusterName, why)
	if told {
		return note + "what the manager wrote on the Machine"
	}
	note += "without them"
	if c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); c != nil {
		note += fmt.Sprintf("; the condition of the Machine is HealthCheckSucceeded=%s %s", c.Status, c.Reason)
		if c.Message != "" {
			note += ": " + strings.Join(strings.Fields(c.Message), " ")
		}
	}
	return note
}

// MachineFacts are what m belongs to.
func MachineFacts(m *clusterv1.Machine) []Fact {
	facts := []Fact{{Name: "cluster", Value: m.Spec.ClusterName}, {Name: "node", Value: m.Status.NodeRef.Name}, {Name: "owner", Value: ""}}
	if owner := metav1.GetControllerOf(m); owner != nil {
		facts[2].Value = owner.Kind + " " + owner.Name
	}
	facts = append(facts, Fact{Name: "infrastructure", Value: strings.TrimSpace(m.Spec.InfrastructureRef.Kind + " " + m.Spec.InfrastructureRef.Name)})
	if !m.DeletionTimestamp.IsZero() {
		facts = append(facts, Fact{Name: "being deleted", Value: "since " + m.DeletionTimestamp.UTC().Format(time.RFC3339)})
	}
	facts = append(facts, Attributions(m)...)
	return slices.DeleteFunc(facts, func(f Fact) bool { return f.Value == "" && f.Name != "cluster" })
}

// Timing is since when f counts its timeout, and when that expires; since is empty if it has none.
func (f *Finding) Timing(at Moment) (since, expires string) {
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

// Remarks are what the row of c in a table cannot show: who is not healthy, why kubemend does not act, and why no remediation starts.
func (c *Check) Remarks() []string {
	var all []string
	tooMany := c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && c.NodesUnknown == nil
	if c.Counts.NotHealthy() > 0 && !c.NodesNotReadable() {
		all = append(all, NotHealthy(c.Counts))
	}
	if c.ModeMessage != "" && !c.TextHasMode() && !c.ActsElsewhere() {
		all = append(all, c.ModeMessage)
	}
	if c.NodesUnknown != nil {
		all = append(all, c.NodesUnknown.Message)
	} else if c.Message != "" && !tooMany {
		all = append(all, c.Message)
	}
	return all
}

// Manager is whether m runs and with which flags; serves are the CRDs that it serves, and notServed those that it does not, with the reasons.
func Manager(m managerlease.Manager, p Painter, at Moment) (text string, serves, notServed []string) {
	switch a := m.Announcement; {
	case !m.Alive:
		return fmt.Sprintf("Manager %s: %s since %s", m.Namespace, p.Bad("not running"), at(m.Gone)), nil, nil
	case a == nil:
		return fmt.Sprintf("Manager %s/%s: %s, without an announcement", m.Namespace, m.Holder, p.Good("running")), nil, nil
	}
	a := m.Announcement
	runs := p.Good("running")
	if a.Outside {
		runs += " outside of the cluster"
	}
	text = fmt.Sprintf("Manager %s/%s: %s, %s, unclaimed checks: %s", m.Namespace, m.Holder, runs, a.Version, a.Unclaimed)
	if a.Namespace != "" {
		text += "; only namespace " + a.Namespace
	}
	if a.WatchFilter != "" {
		text += "; only what has the label " + clusterv1.WatchLabel + ": " + a.WatchFilter
	}
	if len(m.Within) > 0 {
		text += "; it has rights in namespace " + strings.Join(m.Within, ", ") + " alone"
	}
	if m.Unverified != "" {
		text += "; " + p.Waits("whether it is one cannot be seen: "+m.Unverified)
	}
	if a.Teardown {
		text += "; " + p.Waits("it is in teardown, and starts nothing")
	}
	for _, k := range a.Kinds {
		if k.Reason == "" {
			serves = append(serves, k.CRD)
		} else {
			notServed = append(notServed, k.CRD+": "+k.Because)
		}
	}
	return text, serves, notServed
}

// LastRemediation is how the remediation of r, which is closed, has ended, when it was and by what.
func LastRemediation(r *mendv1.RemediationRecord) string {
	how := "by its owner"
	if n := len(r.Status.Requests); n > 0 {
		how = "by " + r.Status.Requests[n-1].Kind + " " + r.Status.Requests[n-1].Name
	}
	if strings.HasPrefix(how, "by HostRemediation ") || strings.HasPrefix(how, "by Metal3Remediation ") {
		how = "power-cycled " + how
	}
	return fmt.Sprintf("%s, begun %s, %s at %s (RemediationRecord %s)", how, r.Status.Begun.UTC().Format(time.RFC3339),
		strings.ToLower(string(r.Status.Outcome)), r.Status.Ended.UTC().Format(time.RFC3339), r.Name)
}
