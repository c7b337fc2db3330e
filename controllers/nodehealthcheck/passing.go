package nodehealthcheck

import (
	"fmt"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// A step that cannot be about a node, since its requests are about Machines and the node is none's where they would be, is passed over: waiting
// for it would be waiting without end, with a remedy left that could help. A check that has no other one says why nothing is done.

// ask is what the ladder says of t, of the steps that can be about it.
func (w *observed) ask(t *target, ladder []escalation.Request) escalation.Step {
	answer := escalation.Climb(w.rungs, ladder, w.now)
	if answer.Do != escalation.Start {
		return answer
	}
	from := answer.Rung
	answer.Rung = w.passing(t, from)
	switch {
	case w.passed(t, answer.Rung) && from > 0:
		answer.Do, answer.Reason = escalation.Exhausted, escalation.NoTemplateLeft
		answer.Why = w.rungs[from-1].Name + " was given up, and none of the remedies that are left can be about the node."
	case answer.Rung != from:
		answer.Why = fmt.Sprintf("%s cannot be about the node, %s is next.", w.rungs[from].Name, w.rungs[answer.Rung].Name)
	}
	return answer
}

// passing is the first step from rung on that can be about t; the last one if none can.
func (w *observed) passing(t *target, rung int) int {
	for rung+1 < len(w.remedies) && w.passed(t, rung) {
		rung++
	}
	return rung
}

// passed reports whether the step cannot be about t. It can, as far as is known, before its Machine was looked for.
func (w *observed) passed(t *target, rung int) bool {
	return t.machine.sought && w.remedies[rung].homeless(t) != ""
}

// passedBelow says which steps right before rung are passed over for t.
func (w *observed) passedBelow(t *target, rung int) []string {
	var all []string
	for i := rung - 1; i >= 0 && w.passed(t, i); i-- {
		m := &w.remedies[i]
		all = append(all, fmt.Sprintf("Passed over %s for node %s, because %s", m.place(), t.name, m.homeless(t)))
	}
	return all
}
