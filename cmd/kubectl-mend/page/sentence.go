package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// sentence is the verdict of c on t in one sentence.
func sentence(c *explain.Check, t *explain.Target, now time.Time) string {
	switch {
	case t.Left != "":
		return "It is left alone: " + explain.Clause(t.Left)
	case t.State == health.Unhealthy:
		return "It is unhealthy, " + doing(c, t) + because(t.Findings)
	case t.State == health.Pending, t.State == health.Starting:
		return awaited(t, now)
	case t.State == health.Unknown && len(t.Blockers) > 0:
		return "It cannot be judged: " + explain.Clause(t.Blockers[0].Text)
	case t.State == health.Unknown:
		return "It cannot be judged"
	case t.InFlight:
		return "It is healthy, and its remediation is not over yet"
	}
	return "It is healthy: nothing is held against it"
}

// doing is what is done about an unhealthy target.
func doing(c *explain.Check, t *explain.Target) string {
	switch {
	case heldBy(t, explain.MachineBeingDeleted):
		return "and is being deleted"
	case t.InFlight && heldBy(t, inspect.NoManager):
		return "and is being remediated, which no manager of kubemend looks after"
	case (t.InFlight || t.Begins) && t.Next.Person:
		return "and it takes a person to remediate it"
	case t.InFlight:
		return "and is being remediated"
	case t.Begins:
		return "and its remediation begins now"
	case actsElsewhere(c) && c.Kind == "MachineHealthCheck":
		return "and it is Cluster API core that acts on it"
	case actsElsewhere(c):
		return "and it is not kubemend that acts on it"
	case len(t.Blockers) == 1 && heldBy(t, explain.NotSeenByYou):
		return "and it cannot be told with your rights whether its remediation begins"
	}
	return "and is not remediated"
}

// actsElsewhere reports whether it is somebody else than kubemend who acts on c.
func actsElsewhere(c *explain.Check) bool {
	return c.Mode == explain.Observing || c.Mode == explain.Core || c.Mode == explain.Other
}

func heldBy(t *explain.Target, reason string) bool {
	return slices.ContainsFunc(t.Blockers, func(h explain.Blocker) bool { return h.Reason == reason })
}

// because is the first of the findings that count, if there is one.
func because(findings []explain.Finding) string {
	if i := slices.IndexFunc(findings, func(f explain.Finding) bool { return f.Counts }); i >= 0 {
		return ": " + findings[i].Text
	}
	return ""
}

// awaited is until when t is put up with: until the first of its findings is due.
func awaited(t *explain.Target, now time.Time) string {
	is, who := "It is pending", "counts"
	if t.State == health.Starting {
		is, who = "Its first node is waited for", "the machine counts"
	}
	var first *explain.Finding
	for i := range t.Findings {
		if f := &t.Findings[i]; !f.Counts && (first == nil || f.Due.Before(first.Due)) {
			first = f
		}
	}
	if first == nil && heldBy(t, explain.AwaitsClusterAPI) {
		return is + ", and its time stands still until Cluster API looks at the machine again after the pause"
	}
	if first == nil {
		return is + ", without end"
	}
	return fmt.Sprintf("%s, and %s as unhealthy from %s on: %s", is, who, text.Clock(first.Due, now), first.Text)
}

// blind reports whether it is the user's rights for which the nodes of c are out of sight: of what the manager cannot see it is known since when.
func blind(c *explain.Check) bool { return c.Unseen != "" && c.UnseenSince.IsZero() }

// sum is the population in words; what there is none of is left out.
func sum(p budget.Population) string {
	if p.Total() == 0 {
		return "It selects nothing"
	}
	targets := "targets"
	if p.Total() == 1 {
		targets = "target"
	}
	parts := counted(p)
	if p.Healthy > 0 {
		parts = append([]string{fmt.Sprintf("%d healthy", p.Healthy)}, parts...)
	}
	return fmt.Sprintf("%d %s: %s", p.Total(), targets, strings.Join(parts, ", "))
}

// counted are those that are not healthy, by what they are.
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

// notWell is how many are not healthy, of how many, and what they are.
func notWell(p budget.Population) string {
	n := p.NotHealthy()
	return fmt.Sprintf("%d of %d %s not healthy (%s)", n, p.Total(), explain.Are(n), strings.Join(counted(p), ", "))
}

// Allowance is the limit in words, and how much of it is used.
func Allowance(c *explain.Check) string {
	bad := c.Population.NotHealthy()
	switch {
	case unlimited(c):
		return c.Limit + ": the limit cannot be read"
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%s: %d not healthy, %d to %d allowed", c.Limit, bad, c.Limits.AtLeast, c.Limits.AtMost)
	}
	return fmt.Sprintf("%s: %d not healthy, at most %d allowed", c.Limit, bad, max(c.Limits.AtMost, 0))
}
