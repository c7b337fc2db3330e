package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func recordOf(sightings ...sighting) *record {
	r := newRecord(&narrator{out: io.Discard})
	r.add(sightings...)
	return r
}

func TestWhatIsExpectedInOrderHasToBeSeenInOrder(t *testing.T) {
	unknown := expectation{text: "Unknown", within: time.Millisecond, fact: nodeUnknown}
	failed := expectation{text: "unhealthy", within: time.Millisecond, fact: machineFailed}
	r := recordOf(sighting{fact: machineFailed, about: "a"}, sighting{fact: nodeUnknown, about: "a"})

	if err := r.inAnyOrder(t.Context(), unknown, failed); err != nil {
		t.Errorf("in any order: %v", err)
	}
	r.cursor = 0
	var unseen *unseenError
	if err := r.inOrder(t.Context(), unknown, failed); !errors.As(err, &unseen) || unseen.text != "unhealthy" {
		t.Errorf("in order: %v", err)
	}
}

func TestWhatIsExpectedOfEachIsMissedOfTheOthers(t *testing.T) {
	r := recordOf(sighting{fact: nodeUnknown, about: "a"}, sighting{fact: nodeUnknown, about: "a"}, sighting{fact: nodeUnknown, about: "c"})
	var unseen *unseenError
	err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown, each: []string{"a", "b", "c"}})
	if !errors.As(err, &unseen) || !cmp.Equal(unseen.missing, []string{"b"}) {
		t.Errorf("the error is %v", err)
	}
}

func TestWhatWasSeenBeforeASceneDoesNotCount(t *testing.T) {
	r := recordOf(sighting{fact: nodeUnknown})
	r.begin()
	if err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown}); err == nil {
		t.Error("it counts")
	}
}

func TestWhatMustNeverBeSeenFailsAtOnce(t *testing.T) {
	r := recordOf(sighting{fact: nodeUnknown}, sighting{fact: handedOver, text: "handed over"})
	if err := r.never(t.Context(), 0, time.Hour, machineGone, handedOver); err == nil {
		t.Error("it went unnoticed")
	}
	if err := r.never(t.Context(), 2, time.Millisecond, machineGone, handedOver); err != nil {
		t.Errorf("what was seen earlier counts: %v", err)
	}
}

func TestTheSumLeavesOutWhatThereIsNothingOf(t *testing.T) {
	for message, want := range map[string]string{
		"Remediation is not allowed, too many (total: 5). 3 of 5 targets are not healthy: 0 unhealthy, 3 suspect, 0 starting, 0 being deleted; 40% of 5 allows 2": "3 of 5 targets are not healthy: 3 suspect; 40% of 5 allows 2",
		"10 of 30 targets are not healthy: 10 unhealthy, 0 unjudged; 20% of 30 allows 6":                                                                          "10 of 30 targets are not healthy: 10 unhealthy; 20% of 30 allows 6",
		"Remediation is not allowed, spec: a limit is impossible":                                                                                                 "Remediation is not allowed, spec: a limit is impossible",
	} {
		if got := sumOf(message); got != want {
			t.Errorf("%q\nbecomes %q", message, got)
		}
	}
}

func TestSuspicionIsReadFromTheMetricsOfTheCheck(t *testing.T) {
	got, err := suspicionIn(`# TYPE kubemend_machinehealthcheck_targets gauge
kubemend_machinehealthcheck_targets{cluster="demo",name="demo-node-unhealthy-5m",namespace="default",state="healthy"} 4
kubemend_machinehealthcheck_targets{cluster="demo",name="demo-node-unhealthy-5m",namespace="default",state="suspect"} 1
kubemend_machinehealthcheck_targets{cluster="demo",name="another",namespace="default",state="suspect"} 7
# TYPE kubemend_machinehealthcheck_next_deadline_timestamp_seconds gauge
kubemend_machinehealthcheck_next_deadline_timestamp_seconds{cluster="demo",name="demo-node-unhealthy-5m",namespace="default"} 1.79517946e+09
`)
	want := suspicion{suspects: 1, total: 5, until: time.Unix(1795179460, 0)}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(suspicion{})); err != nil || diff != "" {
		t.Errorf("error %v, difference %s", err, diff)
	}
}

func TestLongLinesAreBrokenAtSpaces(t *testing.T) {
	got := wrap("one two three\nfour incomprehensibilities", 9)
	if diff := cmp.Diff([]string{"one two", "three", "four", "incomprehensibilities"}, got); diff != "" {
		t.Error(diff)
	}
}
