package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// ActsElsewhere reports whether another controller than kubemend acts on c.
func (c *Check) ActsElsewhere() bool {
	return c.Mode == cliv1.ModeObserving || c.Mode == cliv1.ModeCore || c.Mode == cliv1.ModeOther
}

// BlockedBy reports whether t has a blocker with that reason.
func (t *Target) BlockedBy(reason string) bool {
	return t.Blocker(reason) != nil
}

// NodesNotReadable reports whether the reader may not read the nodes of c. If it is the manager that cannot reach them, Since is set.
func (c *Check) NodesNotReadable() bool { return c.NodesUnknown != nil && c.NodesUnknown.Since == nil }

// Sum returns the population in words, without classes that are empty.
func Sum(p budget.Population) string {
	if p.Total() == 0 {
		return "It selects nothing"
	}
	parts := counted(p)
	if p.Healthy > 0 {
		parts = append([]string{fmt.Sprintf("%d healthy", p.Healthy)}, parts...)
	}
	return Count(p.Total(), "target") + ": " + strings.Join(parts, ", ")
}

func counted(p budget.Population) []string {
	var parts []string
	for _, part := range []struct {
		n    int
		word budget.Class
	}{
		{p.Unhealthy, budget.Unhealthy}, {p.Pending, budget.Pending}, {p.Starting, budget.Starting}, {p.Recovering, budget.Recovering},
		{p.Deleting, budget.Deleting}, {p.Unknown, budget.Unknown}, {p.Unread, budget.Unread},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.word))
		}
	}
	return parts
}

// NotHealthy returns how many targets are not healthy, the number of all targets, and the classes of the former.
func NotHealthy(p budget.Population) string {
	n := p.NotHealthy()
	if p.Unknown == n { // they may be healthy
		return fmt.Sprintf("%d of %d cannot be judged", n, p.Total())
	}
	return fmt.Sprintf("%d of %d %s not healthy (%s)", n, p.Total(), Are(n), strings.Join(counted(p), ", "))
}

// Allowance returns the limit in words, and how much of it is used.
func (c *Check) Allowance() string {
	bad := c.Counts.NotHealthy()
	switch {
	case c.Limits.AtMost == nil:
		return c.Limits.Spec + ": the limit cannot be read"
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%s: %d not healthy, %d to %d allowed", c.Limits.Spec, bad, c.Limits.AtLeast, *c.Limits.AtMost)
	}
	return fmt.Sprintf("%s: %d not healthy, at most %d allowed", c.Limits.Spec, bad, *c.Limits.AtMost)
}

// Blocked returns the reason why not all unhealthy targets are remediated; empty while remediation is allowed.
func (c *Check) Blocked() string {
	if c.Reason == clusterv1.MachineHealthCheckRemediationAllowedReason {
		return ""
	}
	return c.Reason
}

// Part is a part of the description of a check. A blocker of a target may repeat one.
type Part int

const (
	// OfTarget says that the blocker is about the target alone.
	OfTarget Part = iota
	// SameAsMode says that the blocker repeats ModeMessage.
	SameAsMode
	// SameAsNodesUnknown says that the blocker repeats NodesUnknown.
	SameAsNodesUnknown
	// SameAsLimit says that the blocker repeats Reason and Message.
	SameAsLimit
)

// PartOf returns the part of c that b, a blocker of one of its targets, repeats.
func (c *Check) PartOf(b *Blocker) Part {
	switch {
	case b.Reason == NoManager, b.Reason == NotServed, b.Reason == NotActing:
		return SameAsMode
	case b.Cause == NodesUnread, b.Reason == mendv1.UnreachableReason, b.Reason == mendv1.KubeconfigRefusedReason,
		b.Reason == mendv1.NotInitializedReason, b.Reason == mendv1.ChangedReason:
		return SameAsNodesUnknown
	case b.Reason == c.Blocked():
		return SameAsLimit
	}
	return OfTarget
}

// TextHasMode reports whether Message says the same as ModeMessage.
func (c *Check) TextHasMode() bool {
	return c.Reason == mendv1.ClusterNotFoundReason || c.Reason == mendv1.InvalidSelectorReason
}

// FollowTargets completes the next step of c from its targets: the soonest one, or else one without a time.
func (c *Check) FollowTargets() {
	if (c.Mode == cliv1.ModeNone || c.Mode == cliv1.ModeUnknown) && c.Next != (Step{}) {
		return // without a controller nothing else happens
	}
	if soonest := Soonest(c.Targets); !soonest.At.IsZero() && (c.Next.At.IsZero() || soonest.At.Before(c.Next.At)) {
		c.Next = soonest
	}
	if c.Next == (Step{}) {
		c.Next = cmp.Or(c.Useless(), c.waitedFor(), c.correct())
	}
}

// Todo returns what a user has to do about a check that no controller acts on, if the next step is another one; zero if there is nothing.
func (c *Check) Todo() Step {
	if todo := c.waitedFor(); c.Mode == cliv1.ModeNone && todo.Manual && !c.Next.Manual {
		return todo
	}
	return Step{}
}

// waitedFor returns the first next step of a target of c that has no time, with steps that a user has to take first.
func (c *Check) waitedFor() Step {
	var first Step
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Skipped != "" || t.Next == (Step{}) || first.Manual || first != (Step{}) && !t.Next.Manual {
			continue
		}
		first = t.Next
		if !c.sharesNext(t) {
			first.Text = t.Kind + " " + t.Name + ": " + first.Text
		}
	}
	return first
}

// sharesNext reports whether the next step of t is the same for all of c.
func (c *Check) sharesNext(t *Target) bool {
	same := func(other Target) bool { return other.Name != t.Name && other.Next == t.Next }
	if c.ActsElsewhere() || slices.ContainsFunc(c.Targets, same) {
		return true
	}
	return slices.ContainsFunc(t.Blockers, func(b Blocker) bool {
		return c.PartOf(&b) != OfTarget && (b.Fix == "" || t.Next.Manual)
	})
}

// Numbers returns how many targets of c are not healthy, the number of all targets, and the limit.
func (c *Check) Numbers() string {
	bad, total, most := c.Counts.NotHealthy(), c.Counts.Total(), ptr.Deref(c.Limits.AtMost, 0)
	if c.Limits.AtLeast > 0 {
		return fmt.Sprintf("%d of %d, range %d-%d", bad, total, c.Limits.AtLeast, most)
	}
	return fmt.Sprintf("%d of %d, limit %d", bad, total, most)
}

// Answer returns the answer about c: the answer about its worst target, and how many targets are not healthy.
func (c *Check) Answer() Answer {
	a := c.worst()
	switch a.State {
	case IsHealthy, IsPending, IsStarting:
		c.restrict(&a)
	case IsUnknown:
		if c.NotCounted() && !c.NodesNotReadable() {
			c.restrict(&a)
		}
	default:
	}
	c.count(&a)
	return a
}

// ranks are the phases from the worst to the best.
var ranks = []cliv1.Phase{cliv1.Blocked, cliv1.Remediating, cliv1.Unknown, cliv1.Pending, cliv1.Healthy}

// worst returns the answer about the worst judged target of c: of several in one phase the first, or the one whose timeout expires first.
func (c *Check) worst() Answer {
	worst := Answer{State: IsHealthy}
	switch {
	case c.SelectsNothing():
		return Answer{State: NotChecked, Reason: NotSelected, Implied: true}
	case c.NodesUnknown != nil:
		worst = Answer{State: IsUnknown, Reason: c.NodesUnknown.Reason, Since: c.unreachableSince()}
	case c.NotCounted(), c.Mode == cliv1.ModeUnknown, c.Counts.Unread > 0:
		worst = Answer{State: IsUnknown}
	}
	judged := 0
	for i := range c.Targets {
		a := c.AnswerOn(&c.Targets[i])
		if a.Phase() == cliv1.NotChecked {
			continue
		}
		judged++
		better := cmp.Compare(slices.Index(ranks, a.Phase()), slices.Index(ranks, worst.Phase()))
		if better < 0 || better == 0 && !a.Expires.Equal(worst.Expires) && a.Expires.Equal(health.Earliest(a.Expires, worst.Expires)) {
			worst, worst.Target = a, c.Targets[i].Name
		}
	}
	if judged == 1 || worst.ofCheck {
		worst.Target = ""
	}
	return worst
}

// restrict replaces a by what keeps all targets of c from being remediated, if anything does.
func (c *Check) restrict(a *Answer) {
	restricted := Answer{State: a.State}
	switch {
	case c.Mode != cliv1.ModeActing:
		c.otherwise(&restricted)
	case c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && c.Counts.NotHealthy() > 0:
		restricted.Action, restricted.Reason, restricted.Detail = NotRemediated, c.Reason, c.Numbers()
	case c.Message != "" && c.Blocked() != "":
		restricted.Action, restricted.Reason = NotRemediated, c.Reason
	case a.State == IsHealthy && c.Useless() != (Step{}):
		restricted.Action, restricted.Reason = NotRemediated, c.Useless().Reason
	case a.State == IsHealthy && c.Flaw() != nil && c.Flaw().Reason == mendv1.NoRulesReason: // the check judges nothing
		restricted.State, restricted.Reason = NotChecked, c.Flaw().Reason
	case a.State == IsHealthy && c.Flaw() != nil:
		restricted.Reason = c.Flaw().Reason
	default:
		return
	}
	*a = restricted
}

// otherwise sets in a what happens to the targets of a check that kubemend does not act on.
func (c *Check) otherwise(a *Answer) {
	switch {
	case c.ActsElsewhere():
		a.Action, a.Reason, a.Implied, a.Detail = NotInCharge, NotActing, true, c.Mode.InCharge()+" acts on it"
	case c.Mode == cliv1.ModeUnknown && c.Reason != NotExplained:
		a.Action, a.Reason = ActionUnknown, NoManager
	case c.Mode == cliv1.ModeUnknown:
		c.notExplained(a)
	default:
		a.Action = NotRemediated
		c.notActing(a)
	}
}

// count adds to a how many targets of c are not healthy, and how many are being remediated, unless a says so already.
func (c *Check) count(a *Answer) {
	bad, total := c.Counts.NotHealthy(), c.Counts.Total()
	var parts []string
	switch {
	case c.NotCounted(), c.NodesUnknown != nil && (a.State == IsUnknown || a.Reason == c.NodesUnknown.Reason),
		a.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason:
	case total == 0:
		parts = append(parts, "it selects nothing")
	case bad > 0:
		parts = append(parts, fmt.Sprintf("%d of %d not healthy", bad, total))
	case *a == Answer{State: IsHealthy}:
		parts = append(parts, fmt.Sprintf("%d of %d", total, total))
	default:
		parts = append(parts, fmt.Sprintf("%d of %d healthy", total, total))
	}
	underWay, starting := c.Remediations()
	if underWay > 1 || underWay == 1 && a.Action != BeingRemediated && a.Action != RemediationBlocked {
		parts = append(parts, fmt.Sprintf("%d being remediated", underWay))
	}
	if starting > 1 || starting == 1 && a.Action != StartsNow {
		parts = append(parts, fmt.Sprintf("%d remediated now", starting))
	}
	a.Rest = strings.Join(parts, ", ")
}

// Remediations returns how many targets of c are being remediated, and how many remediations start now. A target whose owner has deferred
// or refused the remediation is in flight, but is not being remediated.
func (c *Check) Remediations() (underWay, starting int) {
	for i := range c.Targets {
		switch t := &c.Targets[i]; {
		case t.InFlight && !t.Deferred && !t.Refused:
			underWay++
		case t.StartsNow && !t.InFlight:
			starting++
		}
	}
	return underWay, starting
}

// NotCounted reports whether it is not known how many targets of c are healthy, because they could not be read.
func (c *Check) NotCounted() bool {
	return c.NodesNotReadable() || c.Reason == NotExplained || c.Counts.Total() == 0 && c.ModeMessage != ""
}

// SelectsNothing reports whether no target matches the selector of c.
func (c *Check) SelectsNothing() bool {
	return c.Counts.Total() == 0 && len(c.Targets) == 0 && c.Mode != cliv1.ModeUnknown && c.NodesUnknown == nil && !c.NotCounted()
}

// Useless returns what a user has to change in a check that can never remediate anything; zero if the check can.
func (c *Check) Useless() Step {
	total := c.Counts.Total()
	switch {
	case c.Mode == cliv1.ModePaused || c.Mode == cliv1.ModeNone || c.Limits.AtMost == nil:
		return Step{}
	case c.SelectsNothing():
		return Step{Reason: NotSelected, Manual: true, Text: "correct spec.selector: nothing has the labels that it asks for"}
	case total > 0 && c.Limits.AtLeast == 0 && *c.Limits.AtMost == 0:
		return Step{Reason: LimitAllowsNone, Manual: true,
			Text: fmt.Sprintf("raise the limit: %s of %d allows none to be unhealthy, and nothing is ever remediated",
				c.Limits.Spec, total)}
	}
	return Step{}
}

// Flaw returns the condition that says that c, or one of its rules, can never act as written; nil if there is none.
func (c *Check) Flaw() *metav1.Condition {
	if cond := meta.FindStatusCondition(c.Conditions, mendv1.Effective); cond != nil && cond.Status == metav1.ConditionFalse {
		return cond
	}
	return nil
}

// correct returns what a user has to do about the flaw of c; zero if c has none.
func (c *Check) correct() Step {
	flaw := c.Flaw()
	if flaw == nil {
		return Step{}
	}
	return Step{Reason: flaw.Reason, Manual: true,
		Text: "correct the check: all or part of it can never act as written (" + flaw.Reason + ")"}
}

// unreachableSince returns since when the manager cannot reach the nodes of c; zero if it can, or if only the reader cannot.
func (c *Check) unreachableSince() time.Time {
	if c.NodesUnknown == nil || c.NodesUnknown.Since == nil {
		return time.Time{}
	}
	return c.NodesUnknown.Since.Time
}

// notActing sets in a why neither kubemend nor another controller acts on c.
func (c *Check) notActing(a *Answer) {
	for i := range c.Targets {
		for j := range c.Targets[i].Blockers {
			if b := &c.Targets[i].Blockers[j]; c.PartOf(b) == SameAsMode {
				a.Reason, a.Detail = b.Reason, cmp.Or(b.Detail, a.Detail)
				return
			}
		}
	}
	switch {
	case c.ModeDetail != "" && !c.TextHasMode():
		a.Reason, a.Detail = NotActing, c.ModeDetail
	case c.Mode == cliv1.ModePaused:
		a.Reason = cmp.Or(c.Reason, clusterv1.PausedCondition)
	default:
		a.Reason = cmp.Or(c.Reason, NotActing)
	}
}
