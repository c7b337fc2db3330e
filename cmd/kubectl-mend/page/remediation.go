package page

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/explain"
)

// inFlight is what remediates t, since when, and what it reports.
func (p *page) inFlight(c *Check, t *explain.Target) {
	var parts []string
	for _, request := range t.Requests {
		parts = append(parts, request.String())
	}
	if t.OwnerAsked {
		parts = append(parts, t.Owner)
	}
	remediation := strings.Join(parts, ", then ")
	if !t.InFlightSince.IsZero() {
		remediation += ", since " + p.moment(t.InFlightSince.Time)
	}
	p.line("  Remediation: ", strings.TrimPrefix(remediation, ", ")+".")
	if t.Message == "" {
		return
	}
	if c.Kind == "MachineHealthCheck" {
		p.line("  Machine condition: ", t.Message+".")
	} else {
		p.line("  Reported: ", t.Message+".")
	}
}

// blockers are numbered in the order in which the controller asks; c is the check that is blocked, or nil. That a timeout is running the findings show.
func (p *page) blockers(c *Check, blockers []explain.Blocker) {
	number := 0
	for i := range blockers {
		b := &blockers[i]
		if b.Reason == explain.WithinTimeout {
			continue
		}
		number++
		if number == 1 {
			p.line("  ", "Blocked by:")
		}
		first := fmt.Sprintf("  %d. ", number)
		if c != nil && len(c.Targets) > 1 && (c.PartOf(b) == explain.SameAsLimit || p.again(b.Text)) {
			p.line(first, b.Reason+", as above.")
			continue
		}
		p.line(first, p.blocker(c, b)+".")
		if c != nil && b.Reason == c.Check.Blocked() {
			p.groups("     ", c.NotHealthy)
		}
		p.fix("     ", b.Fix)
	}
}

// blocker is b in one sentence. Of too many unhealthy targets the numbers say all.
func (p *page) blocker(c *Check, b *explain.Blocker) string {
	why := b.Text
	if c != nil && b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
		why = c.Numbers()
	}
	if !b.Until.IsZero() {
		why += ", until " + p.moment(b.Until)
	}
	return b.Reason + ": " + why
}

// remediation is that of the subject's host, or the subject itself.
func (p *page) remediation(r *explain.Remediation) {
	heading := fmt.Sprintf("%s: %s", r.Reference, r.State)
	if r.Reference == p.subject {
		heading = "State: " + r.State
	}
	p.heading(heading)
	if len(r.Blockers) == 0 || r.Blockers[0].Reason != r.Reason { // else the first blocker says it
		step := r.Message
		if r.Reason != r.State {
			step = r.Reason + ": " + step
		}
		p.line("  ", step+".")
	}
	if r.StateSince != nil {
		since := "In this state since " + p.moment(r.StateSince.Time)
		if r.Deadline != nil {
			since += ", deadline " + p.moment(r.Deadline.Time)
		}
		p.line("  ", since+".")
	}
	for _, e := range r.Evidence {
		if !strings.Contains(r.Message, e) { // else it stands above, or in the blocker
			p.line("  - ", e)
		}
	}
	p.blockers(nil, r.Blockers)
	p.readErrors(r.ReadErrors)
}
