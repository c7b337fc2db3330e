package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// inFlight prints what remediates t, since when, and what it reports.
func (p *page) inFlight(c *explain.Check, t *explain.Target) {
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
	label := "  Reported: "
	if c.Kind == "MachineHealthCheck" {
		label = "  Machine condition: "
	}
	if t.Message != "" {
		p.line(label, t.Message+".")
	}
}

// blockers prints the blockers of a target of c, or of a remediation if c is nil, in the order in which the controller checks them, without
// WithinTimeout, which the findings show.
func (p *page) blockers(c *explain.Check, blockers []explain.Blocker) {
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
			p.line(first, b.Name()+", as above.")
			continue
		}
		p.line(first, p.blocker(c, b)+".")
		if c != nil && b.Reason == c.Blocked() {
			p.groups("     ", c.NotHealthy)
		}
		p.fix("     ", b.Fix)
	}
}

// blocker returns b in one sentence. For too many unhealthy targets it prints the numbers of c.
func (p *page) blocker(c *explain.Check, b *explain.Blocker) string {
	why := b.Text
	if c != nil && b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
		why = c.Numbers()
	}
	if !b.Until.IsZero() {
		why += ", until " + p.moment(b.Until)
	}
	if b.Reason == "" { // a condition that the manager wrote may have only a text
		return why
	}
	return b.Name() + ": " + why
}

// cycle returns the table of the steps of a power cycle: when each finished step began and how long it took, and since and until when the
// current step goes on. It is nil before the first step and after the last.
func (p *page) cycle(r *explain.Remediation) [][]string {
	span := func(began *metav1.Time, until time.Time) []string {
		if began.IsZero() {
			return []string{"-", "-"}
		}
		return []string{text.Clock(began.Time, p.Now), duration.HumanDuration(max(until.Sub(began.Time), 0))}
	}
	rows := make([][]string, 0, len(explain.CycleSteps))
	going, began := false, r.AttemptStarted
	for _, step := range explain.CycleSteps {
		row, cond := []string{"  " + step.Name}, meta.FindStatusCondition(r.Conditions, step.Done)
		switch {
		case slices.Contains(step.States, powercycle.State(r.State)):
			going = true
			row = append([]string{p.Paint.Strong("> " + step.Name)}, span(r.StateSince, p.Now)...)
			if r.Deadline != nil {
				row = append(row, "until "+p.moment(r.Deadline.Time))
			}
		case going || cond == nil:
		case cond.Status == metav1.ConditionTrue:
			row = append(row, span(began, cond.LastTransitionTime.Time)...)
			began = &cond.LastTransitionTime
		default:
			row = append(row, "-", "-", cond.Reason)
			began = &cond.LastTransitionTime
		}
		rows = append(rows, row)
	}
	if !going {
		return nil
	}
	return rows
}

// remediation prints a remediation of the subject, or the subject itself. With -o wide it also prints the evidence.
func (p *page) remediation(r *explain.Remediation) {
	rows, state, does := p.cycle(r), r.State, r.Message
	switch attempt := fmt.Sprintf("ttempt %d of %d", r.Attempt, r.Attempts); {
	case rows != nil:
		state, does = "a"+attempt, strings.TrimPrefix(r.Message, "A"+attempt+": ")
	case r.Reason != r.State:
		does = r.Reason + ": " + r.Message
	}
	if r.Reference == p.subject {
		p.Heading("Power cycle: " + state)
	} else {
		p.Heading(r.Reference.String() + ": " + state)
	}
	inCourse := rows != nil && r.Answer().State == explain.InProgress                         // what such a step waits for is no blocker
	if does != "" && (inCourse || len(r.Blockers) == 0 || r.Blockers[0].Reason != r.Reason) { // else the first blocker says the same
		p.line("  ", does+".")
	}
	switch {
	case rows != nil:
		p.Add("  " + strings.Join(text.Table(rows), "\n  "))
	case r.StateSince != nil && r.Deadline != nil:
		p.line("  ", "In this step since "+p.moment(r.StateSince.Time)+", deadline "+p.moment(r.Deadline.Time)+".")
	case r.StateSince != nil:
		p.line("  ", "In this step since "+p.moment(r.StateSince.Time)+".")
	}
	for _, e := range r.Evidence {
		if p.Wide && !strings.Contains(r.Message, e) {
			p.line("  - ", e)
		}
	}
	if !inCourse {
		p.blockers(nil, r.Blockers)
	}
}
