package report

import (
	"cmp"
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Check is a check, and what it says about whether remediations may begin.
type Check struct {
	explain.Ref

	Cluster string
	// Allowed is its condition RemediationAllowed; nil if it does not have it.
	Allowed *metav1.Condition
}

// ShortCircuit is a time during which a check began no remediation.
type ShortCircuit struct {
	Check   explain.Ref
	Cluster string
	// Reason is that of the condition; empty of what events alone know.
	Reason string
	// Begin is when it began, End when it ended; zero while it goes on.
	Begin, End time.Time
	// For is how long it was within the time of the report.
	For    time.Duration
	Source cliv1.Source
}

// together is how long after one another an event and a condition may be that are about the same change.
const together = time.Minute

// ShortCircuitsOf are those since q.Since. A condition only has its last change, and events are kept for an hour by default: one that had ended before
// is not known. They are in the order in which they began.
func ShortCircuitsOf(checks []Check, events []eventsv1.Event, q Question) []ShortCircuit {
	of := map[explain.Ref][]turn{}
	for i := range events {
		ref := explain.Ref{Kind: events[i].Regarding.Kind, Namespace: events[i].Regarding.Namespace, Name: events[i].Regarding.Name}
		of[ref] = append(of[ref], turnsOf(&events[i])...)
	}
	var all []ShortCircuit
	for i := range checks {
		c := &checks[i]
		if q.Cluster == "" || c.Cluster == q.Cluster {
			all = append(all, shortCircuits(c, of[c.Ref])...)
		}
	}
	all = slices.DeleteFunc(all, func(s ShortCircuit) bool { return !s.End.IsZero() && s.End.Before(q.Since) })
	for i := range all {
		begin, end := all[i].Begin, all[i].End
		if begin.Before(q.Since) {
			begin = q.Since
		}
		if end.IsZero() {
			end = q.Now
		}
		all[i].For = max(end.Sub(begin), 0)
	}
	slices.SortFunc(all, func(a, b ShortCircuit) int { return cmp.Or(a.Begin.Compare(b.Begin), compareRefs(a.Check, b.Check)) })
	return all
}

// turn is that a check became short-circuited, or no longer is.
type turn struct {
	at    time.Time
	short bool
}

// turnsOf are the turns that an event knows: of a series the first and the last one.
func turnsOf(e *eventsv1.Event) []turn {
	if e.Reason != mendv1.EventRemediationRestricted && e.Reason != mendv1.EventRemediationAllowed {
		return nil
	}
	short := e.Reason == mendv1.EventRemediationRestricted
	first := e.EventTime.Time
	if first.IsZero() {
		first = e.DeprecatedFirstTimestamp.Time
	}
	all := []turn{{first, short}}
	if e.Series != nil {
		all = append(all, turn{e.Series.LastObservedTime.Time, short})
	}
	return all
}

// shortCircuits are those of one check.
func shortCircuits(c *Check, turns []turn) []ShortCircuit {
	slices.SortFunc(turns, func(a, b turn) int { return a.at.Compare(b.at) })
	var all []ShortCircuit
	open := false
	for _, t := range turns {
		switch {
		case t.short && !open:
			all = append(all, ShortCircuit{Check: c.Ref, Cluster: c.Cluster, Begin: t.at, Source: cliv1.SourceEvent})
		case !t.short && open:
			all[len(all)-1].End = t.at
		}
		open = t.short
	}
	if c.Allowed == nil {
		return all
	}
	at, short := c.Allowed.LastTransitionTime.Time, c.Allowed.Status == metav1.ConditionFalse
	if open { // the condition knows how it went on
		if last := &all[len(all)-1]; short && last.Begin.Sub(at).Abs() <= together {
			all = all[:len(all)-1]
		} else {
			last.End = at
			if at.Before(last.Begin) {
				last.End = last.Begin
			}
		}
	}
	if short {
		all = append(all, ShortCircuit{Check: c.Ref, Cluster: c.Cluster, Reason: c.Allowed.Reason, Begin: at, Source: cliv1.SourceCondition})
	}
	return all
}
