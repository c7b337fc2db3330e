package escalation_test

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/golden"
)

// ladder is the one of the documentation.
var ladder = []step{
	{Name: "SelfNodeRemediation from template ops/self", Timeout: 5 * time.Minute},
	{Name: "HostRemediation from template metal/power-cycle", Timeout: 15 * time.Minute},
	{Name: "MachineDeletionRemediation from template ops/replace", Timeout: 30 * time.Minute},
}

// twins has two templates of one kind in front.
var twins = []step{
	{Name: "SelfNodeRemediation from template ops/gentle", Timeout: 3 * time.Minute},
	{Name: "SelfNodeRemediation from template ops/rough", Timeout: 20 * time.Minute},
	{Name: "HostRemediation from template metal/power-cycle", Timeout: 15 * time.Minute},
}

// classic is a check with a remediationTemplate.
var classic = []step{{Name: "SelfNodeRemediation from template ops/self"}}

func at(minutes float64, text string, do func(*environment)) event {
	return event{noon.Add(time.Duration(minutes * float64(time.Minute))), text, do}
}

// deletes lets a person delete the newest request of a step.
func deletes(step int) func(*environment) {
	return func(w *environment) {
		asked := w.on(step)
		w.delete(asked[len(asked)-1])
	}
}

// losesStatus lets the check forget all that can be read off a request that is there.
func losesStatus(w *environment) {
	for _, r := range w.requests {
		if !r.Gone {
			r.inStatus, r.recorded = false, time.Time{}
		}
	}
}

// givesUp is medik8s' operator, which writes its annotation on remediations that have no ladder too (W13).
func givesUp(w *environment) {
	for _, r := range w.requests {
		r.Notified, r.annotated = true, w.now
		w.hears(r)
	}
}

const minute = time.Minute

// stories are made anew each time: playing one uses it up.
func stories() map[string]*environment {
	return map[string]*environment{
		"the documented example": {
			steps: ladder, remediators: []remediator{{fails: 100 * minute}, {fails: 4 * minute}, {succeeds: 9 * minute, heals: 11 * minute, finishes: 2 * minute}},
		},
		"nothing helps": {
			steps: ladder, remediators: []remediator{{fails: minute}, {succeeds: 2 * minute}, {}},
		},
		"W1 two templates of one kind": {
			steps: twins, remediators: []remediator{{}, {}, {heals: 6 * minute}},
		},
		"seed 2.14 an old remediator stops without a word": {
			steps: ladder, remediators: []remediator{{old: true, fails: 2 * minute}, {heals: minute}},
		},
		"a remediator takes our annotation off": {
			steps: ladder, remediators: []remediator{{succeeds: 50 * minute, strips: true}, {fails: 6 * minute}, {heals: minute}},
		},
		"a status is lost": {
			steps: ladder, remediators: []remediator{{fails: minute}, {succeeds: 2 * minute}, {heals: 5 * minute}},
			events: []event{at(1.5, "the status is lost", losesStatus), at(17, "the status is lost", losesStatus)},
		},
		"a crash after the annotation": {
			steps: ladder, remediators: []remediator{{fails: minute}, {heals: minute}}, crashes: map[int]bool{4: true},
		},
		"a crash after the status": {
			steps: ladder, remediators: []remediator{{succeeds: 50 * minute}, {heals: minute}}, crashes: map[int]bool{4: true}, statusFirst: true,
		},
		"a request is deleted by hand": {
			steps: ladder, remediators: []remediator{{succeeds: 50 * minute}, {heals: minute}},
			events: []event{at(2, "somebody deletes the request", deletes(0))},
		},
		"a finalizer is kept for ever": {
			steps: ladder, remediators: []remediator{{succeeds: 50 * minute, finishes: 100000 * time.Hour}, {heals: minute}},
			events: []event{at(2, "somebody deletes the request", deletes(0))},
		},
		"a template without a ladder fails": {
			steps: classic, remediators: []remediator{{fails: 2 * minute}},
			events: []event{at(60, "somebody repairs the node", func(w *environment) { w.healthy = true })},
		},
		"W13 another operator gives up a template without a ladder": {
			steps: classic, remediators: []remediator{{succeeds: 50 * minute}},
			events: []event{at(30, "medik8s' operator gives up", givesUp), at(40, "somebody deletes the request", deletes(0))},
		},
	}
}

func TestStories(t *testing.T) {
	golden.Stories(t, stories(), func(t *testing.T, w *environment) string {
		w.play(noon.Add(24 * time.Hour))
		for _, fault := range w.faults {
			t.Error(fault)
		}
		return w.story.String()
	})
}
