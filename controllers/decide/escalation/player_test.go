package escalation_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// environment is one unhealthy node, its remediators, and a controller that carries out each decision unless it crashes.
type environment struct {
	steps       []step
	remediators []remediator // by step; what is missing says nothing, ever
	statusFirst bool         // the order in which a request is given up; the annotation comes first otherwise
	crashes     map[int]bool // the controller dies instead of making its n-th write

	requests []*request
	events   []event
	healthy  bool // the node is healthy, and the escalation is not asked
	stripped bool // somebody took our annotations off
	reached  int  // the highest step that was ever started

	now    time.Time
	writes int
	said   string // the last line about waiting
	faults []string
	story  strings.Builder
}

// step is a template, with the name that a story has for it.
type step struct {
	Name    string
	Timeout time.Duration
}

// remediator is what one does with a request, counted from its creation; zero is never.
type remediator struct {
	old      bool          // sets Processing only, as those of 2022 did
	fails    time.Duration // says so
	succeeds time.Duration // says so
	heals    time.Duration // the node is back
	deletes  time.Duration // the request
	finishes time.Duration // takes as long to remove its finalizer from a request that is being deleted
	strips   bool          // takes off what annotations it finds
}

// request is one as the API server has it, and what the check's status says of it.
type request struct {
	escalation.Request
	annotated, recorded time.Time // when it was given up, by each of them
	inStatus            bool
}

// event is something that happens to the environment from outside.
type event struct {
	at   time.Time
	text string
	do   func(*environment)
}

func (w *environment) write(format string, args ...any) {
	fmt.Fprintf(&w.story, "%8s  %s\n", w.now.Sub(noon), fmt.Sprintf(format, args...))
}

func (w *environment) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf("%s: ", w.now.Sub(noon))+fmt.Sprintf(format, args...))
}

// play lets time move to the next event, or to the next moment at which a step says that it will change, up to an end.
func (w *environment) play(end time.Time) {
	w.now, w.reached = noon, -1
	for reconciles := 0; ; reconciles++ {
		happened := w.happen()
		last := w.reconcile(happened || reconciles == 0)
		next := last.Recheck
		if w.healthy {
			next = time.Time{}
		}
		if len(w.events) > 0 {
			next = health.Earliest(next, w.events[0].at)
		}
		if next.IsZero() || next.After(end) || len(w.faults) > 0 {
			return
		}
		if !next.After(w.now) {
			w.fault("the clock stands still")
			return
		}
		w.now = next
	}
}

// happen lets everything happen whose time has come.
func (w *environment) happen() bool {
	happened := false
	for len(w.events) > 0 && !w.now.Before(w.events[0].at) {
		e := w.events[0]
		w.events = w.events[1:]
		if e.text != "" {
			w.write("* %s", e.text)
		}
		e.do(w)
		happened = true
	}
	return happened
}

// schedule keeps the events in the order of their times.
func (w *environment) schedule(e event) {
	w.events = append(w.events, e)
	slices.SortStableFunc(w.events, func(a, b event) int { return a.at.Compare(b.at) })
}

// reconcile carries out decisions until one waits, and returns that. A controller that dies begins a new reconcile.
func (w *environment) reconcile(enqueued bool) escalation.Decision {
	if w.healthy {
		w.cleanUp()
		return escalation.Decision{}
	}
	for taken := 0; ; taken++ {
		s := escalation.Decide(w.ladder(), w.facts(), w.now)
		if s.Do == escalation.Wait || s.Do == escalation.Exhausted {
			if taken == 0 && !enqueued {
				w.fault("enqueued for nothing: %+v", s)
			}
			if line := w.line(s); line != w.said {
				w.said = line
				w.write("%s", line)
			}
			return s
		}
		if taken > 10 {
			w.fault("no end of steps: %+v", s)
			return s
		}
		w.write("%s", w.line(s))
		if !w.take(s) {
			w.write("* the controller dies")
		}
	}
}

// ladder is what the escalation is given.
func (w *environment) ladder() []escalation.Step {
	var steps []escalation.Step
	for _, s := range w.steps {
		steps = append(steps, escalation.Step{Timeout: s.Timeout})
	}
	return steps
}

// line is a decision as a story shows it.
func (w *environment) line(d escalation.Decision) string {
	line := fmt.Sprintf("%-9s %-22s %s", d.Do, d.Reason, w.steps[d.Step].Name)
	if !d.Expires.IsZero() {
		line += " until " + d.Expires.Sub(noon).String()
	}
	return line
}

// facts are what the controller finds: the requests that are there, which it writes into its status, and what that remembers of others.
func (w *environment) facts() []escalation.Request {
	var facts []escalation.Request
	for _, r := range w.requests {
		r.inStatus = r.inStatus || !r.Gone
		if r.Gone && !r.inStatus {
			continue
		}
		f := r.Request
		f.GivenUp = r.annotated
		if f.GivenUp.IsZero() {
			f.GivenUp = r.recorded
		}
		facts = append(facts, f)
	}
	return facts
}

// take carries out a step, and reports whether it got to its end.
func (w *environment) take(s escalation.Decision) bool {
	if s.Do == escalation.Start {
		return w.start(s.Step)
	}
	writes := []func(r *request){
		func(r *request) {
			if s.Notify && !r.Gone && !r.Notified && r.Succeeded != escalation.Yes {
				r.Notified, r.annotated = true, w.now
				w.hears(r)
			}
		},
		func(r *request) {
			r.inStatus = true
			if r.recorded.IsZero() {
				r.recorded = w.now
			}
		},
	}
	if w.statusFirst {
		slices.Reverse(writes)
	}
	for _, write := range writes {
		if w.dies() {
			return false
		}
		for _, r := range w.on(s.Step) {
			write(r)
		}
	}
	return true
}

// dies counts a write, and reports whether the controller dies before it.
func (w *environment) dies() bool {
	w.writes++
	return w.crashes[w.writes]
}

func (w *environment) on(step int) []*request {
	return slices.DeleteFunc(slices.Clone(w.requests), func(r *request) bool { return r.Step != step })
}

// start makes a request, looks whether it may be, and lets its remediator loose.
func (w *environment) start(step int) bool {
	if w.dies() {
		return false
	}
	for _, r := range w.on(step) {
		if !r.Gone {
			w.fault("step %d is started again, and its request is there", step)
		}
	}
	if step > w.reached+1 || step < w.reached {
		w.fault("step %d is started after step %d", step, w.reached)
	}
	w.reached = step
	r := &request{Request: escalation.Request{Step: step, Started: w.now}}
	w.requests = append(w.requests, r)
	w.work(r)
	if w.dies() {
		return false
	}
	r.inStatus = true
	return true
}

// work schedules what the remediator of r does. It stops when it is notified that it was given up.
func (w *environment) work(r *request) {
	m, name := w.remediator(r), w.steps[r.Step].Name
	after := func(d time.Duration, do func()) {
		if d == 0 {
			return
		}
		w.schedule(event{w.now.Add(d), "", func(*environment) {
			if !r.Gone && !r.Notified {
				do()
			}
		}})
	}
	if m != (remediator{}) {
		r.Processing, r.ProcessingSince = escalation.Yes, w.now
		if !m.old {
			r.Succeeded = escalation.Unsure
		}
	}
	after(m.fails, func() { w.ends(r, escalation.No) })
	after(m.succeeds, func() { w.ends(r, escalation.Yes) })
	after(m.heals, func() {
		w.write("* %s brings the node back", name)
		w.healthy = true
	})
	after(m.deletes, func() {
		w.write("* %s deletes its request", name)
		w.delete(r)
	})
}

func (w *environment) remediator(r *request) remediator {
	if r.Step < len(w.remediators) {
		return w.remediators[r.Step]
	}
	return remediator{}
}

// ends is the end of a remediator's work, of which there is one: Processing is False, and Succeeded says how it ended if it knows of that.
func (w *environment) ends(r *request, succeeded escalation.Status) {
	if r.Processing != escalation.Yes {
		return
	}
	r.Processing, r.ProcessingSince = escalation.No, w.now
	text := "stops"
	if r.Succeeded == escalation.Unsure {
		r.Succeeded = succeeded
		text = map[escalation.Status]string{escalation.Yes: "has succeeded", escalation.No: "has failed"}[succeeded]
	}
	w.write("* %s %s", w.steps[r.Step].Name, text)
}

// hears is what a remediator does when it is notified that it was given up.
func (w *environment) hears(r *request) {
	w.ends(r, escalation.No)
	if w.remediator(r).strips {
		w.schedule(event{w.now.Add(time.Second), w.steps[r.Step].Name + " takes our annotation off", func(*environment) {
			r.Notified, r.annotated = false, time.Time{}
		}})
	}
}

func (w *environment) delete(r *request) {
	if r.Deleting {
		return
	}
	r.Deleting = true
	m := w.remediator(r)
	if m.finishes == 0 {
		r.Gone = true
		return
	}
	w.schedule(event{w.now.Add(m.finishes), "the request of " + w.steps[r.Step].Name + " is gone", func(*environment) { r.Gone = true }})
}

// cleanUp is what the controller does for a healthy node.
func (w *environment) cleanUp() {
	for _, r := range w.requests {
		if !r.Gone && !r.Deleting {
			w.write("%-9s the request of %s", "delete", w.steps[r.Step].Name)
			w.delete(r)
		}
	}
}
