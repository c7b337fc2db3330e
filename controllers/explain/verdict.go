package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// VerdictOn is the verdict of c on t in one sentence. The clock renders moments.
func (c *Check) VerdictOn(t *Target, clock func(time.Time) string) string {
	switch {
	case t.Skipped != "":
		return "It is left alone: " + Clause(t.Skipped)
	case t.State == health.Unhealthy:
		return "It is unhealthy, " + doing(c, t) + because(t.Findings)
	case t.State == health.Pending, t.State == health.Starting:
		return awaited(t, clock)
	case t.State == health.Unknown && len(t.Blockers) > 0:
		return "It cannot be judged: " + Clause(t.Blockers[0].Text)
	case t.State == health.Unknown:
		return "It cannot be judged"
	case t.InFlight:
		return "It is healthy, and its remediation is not over yet"
	}
	return "It is healthy: it has no findings"
}

// doing is what is done about an unhealthy target.
func doing(c *Check, t *Target) string {
	switch {
	case t.BlockedBy(MachineBeingDeleted):
		return "and is being deleted"
	case t.PutOff:
		return "and its owner has put off replacing it"
	case t.InFlight && t.BlockedBy(NoManager) && !t.Refused:
		return "and is being remediated, which no manager of kubemend reconciles"
	case t.Refused, (t.InFlight || t.StartsNow) && t.Next.Manual:
		return "and has to be remediated by hand"
	case t.InFlight:
		return "and is being remediated"
	case t.StartsNow:
		return "and its remediation begins now"
	case c.ActsElsewhere():
		return c.otherController()
	case len(t.Blockers) == 1 && t.BlockedBy(MissingPermission):
		return "and it is not known with your rights whether its remediation starts"
	}
	return "and is not remediated"
}

// otherController says which controller acts on c, if it is not kubemend.
func (c *Check) otherController() string {
	if c.Kind == "MachineHealthCheck" {
		return "and it is Cluster API core that acts on it"
	}
	return "and it is not kubemend that acts on it"
}

// ActsElsewhere reports whether another controller than kubemend acts on c.
func (c *Check) ActsElsewhere() bool {
	return c.Mode == Observing || c.Mode == Core || c.Mode == Other
}

// BlockedBy reports whether t has a blocker of that reason.
func (t *Target) BlockedBy(reason string) bool {
	return slices.ContainsFunc(t.Blockers, func(h Blocker) bool { return h.Reason == reason })
}

// because is the first of the findings that count, if there is one.
func because(findings []Finding) string {
	if i := slices.IndexFunc(findings, func(f Finding) bool { return f.Expired }); i >= 0 {
		return ": " + findings[i].Text
	}
	return ""
}

// awaited is when t counts as unhealthy: when the first of its timeouts expires.
func awaited(t *Target, clock func(time.Time) string) string {
	is, who := "It is pending", "counts"
	if t.State == health.Starting {
		is, who = "Its first node is waited for", "the machine counts"
	}
	var first *Finding
	for i := range t.Findings {
		if f := &t.Findings[i]; !f.Expired && (first == nil || f.Expires.Before(first.Expires)) {
			first = f
		}
	}
	if first == nil && t.BlockedBy(AwaitsClusterAPI) {
		return is + ", and its timeout stands still until Cluster API reconciles the machine again after the pause"
	}
	if first == nil {
		return is + ", without end"
	}
	return fmt.Sprintf("%s, and %s as unhealthy from %s on: %s", is, who, clock(first.Expires), first.Text)
}

// NodesNotReadable reports whether the reader may not read the nodes of c. Of nodes that the manager cannot reach it is known since when.
func (c *Check) NodesNotReadable() bool { return c.NodesUnknown != "" && c.NodesUnknownSince.IsZero() }

// Sentence is who acts on a check.
func (m Mode) Sentence() string {
	if sentence, known := modes[m]; known {
		return sentence
	}
	return "no controller acts on it"
}

var modes = map[Mode]string{
	Acting:    "kubemend acts on it",
	Observing: "kubemend observes it, and does not act on it",
	Core:      "kubemend does not reconcile it",
	Other:     "kubemend does not serve its kind",
	Paused:    "paused",
	Unknown:   "it is not known which controller acts on it",
}

// Uncounted says of a check whose nodes the reader may not read how many targets it has.
func (c *Check) Uncounted() string {
	return fmt.Sprintf("It selects %d; %s. How many of them are healthy cannot be seen with your rights", c.Population.Total(), c.Limit)
}

// Sum is the population in words; what there is none of is left out.
func Sum(p budget.Population) string {
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

// NotHealthy is how many are not healthy, of how many, and what they are.
func NotHealthy(p budget.Population) string {
	n := p.NotHealthy()
	return fmt.Sprintf("%d of %d %s not healthy (%s)", n, p.Total(), Are(n), strings.Join(counted(p), ", "))
}

// Allowance is the limit in words, and how much of it is used.
func (c *Check) Allowance() string {
	bad := c.Population.NotHealthy()
	switch {
	case c.LimitInvalid():
		return c.Limit + ": the limit cannot be read"
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%s: %d not healthy, %d to %d allowed", c.Limit, bad, c.Limits.AtLeast, c.Limits.AtMost)
	}
	return fmt.Sprintf("%s: %d not healthy, at most %d allowed", c.Limit, bad, max(c.Limits.AtMost, 0))
}

// Verdict describes c in one sentence.
func (c *Check) Verdict() string {
	p := c.Population
	switch {
	case c.ModeText != "":
		return c.ModeText
	case c.NodesNotReadable():
		return "How many targets are healthy cannot be seen with your rights"
	case c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && p.NotHealthy() > 0: // of both kinds of checks
		return c.shortCircuited()
	case c.Text != "" && c.Blocked() != string(budget.AtWork):
		return c.Text
	case p.Total() == 0:
		return "It selects nothing"
	case p.NotHealthy() == 0:
		return "All that it selects is healthy"
	}
	return NotHealthy(p) + ", and " + progress(c)
}

// Blocked is the reason why not all targets are remediated that are to be. The condition has none while some wait in the queue: remediation is allowed.
func (c *Check) Blocked() string {
	if c.Reason == clusterv1.MachineHealthCheckRemediationAllowedReason && c.Text != "" {
		return string(budget.AtWork)
	}
	return c.Reason
}

// Allows is what the limit says.
func (c *Check) Allows() string {
	if c.Limits.AtLeast > 0 {
		return fmt.Sprintf("%s asks for %d to %d", c.Limit, c.Limits.AtLeast, c.Limits.AtMost)
	}
	return fmt.Sprintf("%s allows %d", c.Limit, max(c.Limits.AtMost, 0))
}

// GoesOn reports whether t is being remediated. Where its owner has put that off, or refused it, it is in flight all the same.
func (t *Target) GoesOn() bool { return t.InFlight && !t.PutOff && !t.Refused }

// progress is how many remediations are under way, begin and wait.
func progress(c *Check) string {
	underway, begins, putOff, refused := 0, 0, 0, 0
	for i := range c.Targets {
		switch t := &c.Targets[i]; {
		case t.PutOff:
			putOff++
		case t.Refused:
			refused++
		case t.InFlight:
			underway++
		case t.StartsNow:
			begins++
		}
	}
	var parts []string
	if putOff > 0 {
		parts = append(parts, fmt.Sprintf("the owner of %d has put off replacing it", putOff))
	}
	if refused > 0 {
		parts = append(parts, fmt.Sprintf("the owner of %d cannot replace it", refused))
	}
	if underway > 0 || begins == 0 && len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%d %s being remediated", underway, Are(underway)))
	}
	if begins > 0 {
		parts = append(parts, fmt.Sprintf("the remediation of %d begins now", begins))
	}
	return strings.Join(parts, ", and ")
}

// LimitInvalid reports whether the limit of c cannot be parsed, so that it allows nothing.
func (c *Check) LimitInvalid() bool {
	return c.Reason == mendv1.InvalidLimitReason || slices.ContainsFunc(c.Conditions, func(is metav1.Condition) bool {
		return is.Type == nhcv1.DisabledCondition && is.Status == metav1.ConditionTrue && is.Reason == nhcv1.InvalidLimitReason
	})
}
