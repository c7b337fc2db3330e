package simulate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	clidoc "github.com/kubemend/kubemend/cmd/kubectl-mend/document"
)

// Document is a for programs.
func (a *Answer) Document() *cliv1.Simulation {
	d := &cliv1.Simulation{
		TypeMeta: cliv1.TypeOf("Simulation"), Time: clidoc.Time(a.At), Horizon: span(a.Summary.Horizon), Assumptions: a.Assumptions,
		Manifest: a.Manifest, Refused: a.Refused, Checks: make([]cliv1.Check, 0, len(a.Now)), Timeline: make([]cliv1.SimulatedEvent, 0, len(a.Timeline)),
		Remediations: make([]cliv1.SimulatedRemediation, 0, len(a.Remediations)),
		Summary:      cliv1.SimulationSummary{Begun: a.Summary.Begun, AtOnce: a.Summary.AtOnce},
	}
	for i := range a.Now {
		d.Checks = append(d.Checks, clidoc.Check(&a.Now[i], a.Now[i].Answer()))
	}
	for i := range a.Timeline {
		e := &a.Timeline[i]
		d.Timeline = append(d.Timeline, cliv1.SimulatedEvent{
			After: span(e.After), Time: clidoc.Time(e.At), Type: clidoc.EventType(e.Warning), Reason: e.Reason, Object: clidoc.Reference(e.Object),
			Assumed: e.Assumed, Message: e.Text,
		})
	}
	for _, r := range a.Remediations {
		is := cliv1.SimulatedRemediation{After: span(r.After), Time: clidoc.Time(r.At), Target: clidoc.Reference(r.Target)}
		if r.Request != nil {
			is.Request = clidoc.Optional(*r.Request)
		}
		d.Remediations = append(d.Remediations, is)
	}
	for _, b := range a.Summary.Blocked {
		is := cliv1.SimulatedBlock{Check: clidoc.Reference(b.Check), Reason: b.Reason, From: span(b.From)}
		if b.Until != "" {
			until := span(b.Until)
			is.Until = &until
		}
		d.Summary.Blocked = append(d.Summary.Blocked, is)
	}
	for _, u := range a.Summary.Unhealthy {
		d.Summary.NotHealthy = append(d.Summary.NotHealthy, cliv1.SimulatedTarget{Reference: clidoc.Reference(u.Ref), State: clidoc.State(u.Verdict)})
	}
	return d
}

// span is a duration that this package has spelled.
func span(s string) metav1.Duration {
	d, _ := time.ParseDuration(s) // it is one, or empty
	return metav1.Duration{Duration: d}
}
