package health_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// environment is what one health check watches, with a controller that does what the verdicts and the limits say.
type environment struct {
	policy   health.Policy
	atMost   string        // as in a spec
	inFlight int           // zero is no limit here: a story states only what is special
	repair   time.Duration // what a remediation takes until the node is ready; zero: it never is

	machines []*machine
	events   []event
	gate     health.Gate
	cutOff   bool
	reached  time.Time // when the connection came back

	now   time.Time
	said  map[string]string // the last line about each name
	story strings.Builder
}

type machine struct {
	name         string
	node         health.Node
	awaitedSince time.Time
	signals      []health.Signal
	marked       bool
	deleting     bool
	begun        bool // its remediation has begun and is not over
	verdict      health.Verdict
}

// event is something that happens to an environment from outside.
type event struct {
	at   time.Time
	text string
	do   func(*environment)
}

// say writes a line about name, unless it would repeat the last one.
func (w *environment) say(name, format string, args ...any) bool {
	line := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if w.said[name] == line {
		return false
	}
	w.said[name] = line
	w.write(fmt.Sprintf("%-10s %s", name, line))
	return true
}

func (w *environment) write(line string) { fmt.Fprintf(&w.story, "%8s  %s\n", w.now.Sub(noon), line) }

// play tells what becomes of w. Time only ever moves to the next event, or to the next
// moment at which a verdict says that it will change.
func (w *environment) play(t *testing.T) string {
	t.Helper()
	w.now, w.said = noon, map[string]string{}
	for step := 0; ; step++ {
		if step > 60 {
			t.Fatalf("still going after %d steps: the story spins\n%s", step, w.story.String())
		}
		happened := w.happen()
		changed := w.judge()
		if !happened && !changed && step > 0 {
			t.Errorf("%s: woken for nothing", w.now.Sub(noon))
		}
		for w.remediate(t) {
			continue // what was begun changes what may begin
		}
		next := w.next()
		if next.IsZero() {
			return w.story.String()
		}
		if !next.After(w.now) {
			t.Fatalf("%s: the clock stands still\n%s", w.now.Sub(noon), w.story.String())
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
		w.write("* " + e.text)
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

// judge gives every machine its verdict, and reports whether any has changed.
func (w *environment) judge() bool {
	changed := false
	for _, m := range w.machines {
		m.verdict = health.Verdict{}
		if !m.deleting {
			m.verdict = health.Judge(w.target(m), w.policy, w.now)
		}
		changed = w.say(m.name, "%-10s %s", m.state(), w.held(m)) || changed
		if m.begun && !m.deleting && m.verdict.State == health.Healthy {
			m.begun = false
			w.write(fmt.Sprintf("%-10s remediation ends", m.name))
		}
	}
	return changed
}

func (w *environment) target(m *machine) health.Target {
	t := health.Target{
		Marked: m.marked, Gate: w.gate, Node: m.node, AwaitedSince: m.awaitedSince, Signals: m.signals, Reached: w.reached,
	}
	if m.node != health.NodeAwaited {
		t.NodeName = "node-of-" + m.name
	}
	if w.cutOff {
		t.Node = health.NodeUnseen
	}
	return t
}

func (m *machine) state() string {
	if m.deleting {
		return "deleting"
	}
	return m.verdict.State.String()
}

// held is what is held against m, and from when on if that is still to come.
func (w *environment) held(m *machine) string {
	held := make([]string, 0, len(m.verdict.Findings)+1)
	switch {
	case m.verdict.Gate != health.Open:
		held = append(held, string(m.verdict.Gate))
	case m.verdict.State == health.Unknown:
		held = append(held, "no connection")
	}
	for _, f := range m.verdict.Findings {
		text := told(f)
		if !f.DueAt(w.now) {
			text = fmt.Sprintf("from %s: %s", f.Due.Sub(noon), text)
		}
		held = append(held, text)
	}
	return strings.Join(held, "; ")
}

// told is a finding as a story tells it. What users read is package explain's.
func told(f health.Finding) string {
	switch {
	case f.Signal != (health.Signal{}):
		return fmt.Sprintf("%s %s=%s (%s) for %s", f.Reason, f.Signal.Type, f.Signal.Status, f.Signal.Reason, f.Limit)
	case f.Limit > 0:
		return fmt.Sprintf("%s in %s", f.Reason, f.Limit)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s%s", f.Reason, f.Node, f.Failure))
}

// remediate begins what may begin, and reports whether anything did.
func (w *environment) remediate(t *testing.T) bool {
	p, waiting := w.count()
	if p.Total() != len(w.machines) {
		t.Errorf("%s: %d machines are counted, there are %d", w.now.Sub(noon), p.Total(), len(w.machines))
	}
	g := budget.Decide(p, w.limits(t))
	refusal := ""
	if g.Reason != budget.Enough {
		refusal = fmt.Sprintf(" (%s)", g.Reason)
	}
	w.say("budget", "%d of %d may start%s, %d of %d not healthy, %d more may turn bad",
		g.Start, p.Waiting, refusal, p.NotHealthy(), p.Total(), g.Remaining)
	if g.Start > len(waiting) || (w.inFlight > 0 && g.Start > 0 && p.InFlight+g.Start > w.inFlight) {
		t.Fatalf("%s: %+v is too much for %+v", w.now.Sub(noon), g, p)
	}
	for _, m := range waiting[:g.Start] {
		w.begin(m)
	}
	return g.Start > 0
}

func (w *environment) limits(t *testing.T) budget.Limits {
	amount, err := budget.ParseAmount(w.atMost)
	if err != nil {
		t.Fatal(err)
	}
	return budget.Limits{
		AtMost:   amount.Of(len(w.machines)),
		InFlight: cmp.Or(w.inFlight, budget.Unlimited),
	}
}

// count returns the population, and who waits in the order in which they go: the longest overdue first.
func (w *environment) count() (p budget.Population, waiting []*machine) {
	for _, m := range w.machines {
		if m.begun {
			p.InFlight++
		}
		if m.deleting {
			p.Deleting++
			continue
		}
		switch m.verdict.State {
		case health.Healthy:
			p.Healthy++
		case health.Starting:
			p.Starting++
		case health.Pending:
			p.Pending++
		case health.Unknown:
			p.Unknown++
		case health.Unhealthy:
			p.Unhealthy++
			if !m.begun {
				p.Waiting++
				waiting = append(waiting, m)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *machine) int {
		return cmp.Or(a.verdict.OverdueSince(w.now).Compare(b.verdict.OverdueSince(w.now)), cmp.Compare(a.name, b.name))
	})
	return p, waiting
}

func (w *environment) begin(m *machine) {
	m.begun = true
	w.write(fmt.Sprintf("%-10s remediation begins", m.name))
	if w.repair > 0 {
		w.schedule(event{w.now.Add(w.repair), m.name + " is repaired", reports("True", m.name)})
	}
}

// next is when the environment is to be looked at again; zero if never.
func (w *environment) next() time.Time {
	var next time.Time
	if len(w.events) > 0 {
		next = w.events[0].at
	}
	for _, m := range w.machines {
		next = health.Earliest(next, m.verdict.Recheck)
	}
	return next
}
