package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
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
