package repeats

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }

// begun returns an open record of a remediation that began minutes after noon, when its target failed.
func begun(minutes float64, changes ...func(*mendv1.RemediationRecord)) mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{}
	record.Spec.UnhealthySince, record.Status.Begun = new(metav1.NewTime(at(minutes))), new(metav1.NewTime(at(minutes)))
	for _, change := range changes {
		change(record)
	}
	return *record
}

// healed closes a record whose target was healthy minutes after noon.
func healed(minutes float64) func(*mendv1.RemediationRecord) {
	return func(record *mendv1.RemediationRecord) {
		record.Status.CapacityBack, record.Status.Ended = new(metav1.NewTime(at(minutes))), new(metav1.NewTime(at(minutes+1)))
	}
}

func ended(minutes float64, outcome mendv1.RecordOutcome, by string) func(*mendv1.RemediationRecord) {
	return func(record *mendv1.RemediationRecord) {
		record.Status.Ended, record.Status.Outcome, record.Status.EndedBy = new(metav1.NewTime(at(minutes))), outcome, by
	}
}

func requested(kinds ...string) func(*mendv1.RemediationRecord) {
	return func(record *mendv1.RemediationRecord) {
		for _, kind := range kinds {
			record.Status.Requests = append(record.Status.Requests, mendv1.RecordRef{Kind: kind})
		}
	}
}

func notBegun(record *mendv1.RemediationRecord) { record.Status.Begun = nil }

func TestHowOftenAndUntilWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		records []mendv1.RemediationRecord
		failed  float64 // minutes after noon
		times   int
		wait    time.Duration
	}{
		"nothing before":         {nil, 10, 0, 0},
		"one that has not begun": {[]mendv1.RemediationRecord{begun(0, notBegun)}, 10, 0, 0},
		"one before":             {[]mendv1.RemediationRecord{begun(0)}, 10, 1, time.Minute},
		"three, in any order":    {[]mendv1.RemediationRecord{begun(30), begun(0), begun(10)}, 40, 3, 4 * time.Minute},
		"seven wait for the longest": {
			[]mendv1.RemediationRecord{begun(0), begun(1), begun(2), begun(3), begun(4), begun(5), begun(6)}, 10, 7, time.Hour,
		},
		"those begun together are one": {[]mendv1.RemediationRecord{begun(0), begun(0.2), begun(0.4), begun(3)}, 10, 2, 2 * time.Minute},
		"those begun one by one are not": {
			[]mendv1.RemediationRecord{begun(0), begun(0.4), begun(0.5), begun(0.9), begun(1.1)}, 10, 3, 4 * time.Minute,
		},
		"healthy for less than an hour": {
			[]mendv1.RemediationRecord{begun(0, healed(5)), begun(60, healed(65))}, 124, 2, 2 * time.Minute,
		},
		"healthy for an hour since":        {[]mendv1.RemediationRecord{begun(0, healed(5)), begun(60, healed(65))}, 125, 0, 0},
		"healthy for an hour in between":   {[]mendv1.RemediationRecord{begun(0, healed(5)), begun(65, healed(70))}, 80, 1, time.Minute},
		"given up, and an hour has passed": {[]mendv1.RemediationRecord{begun(0, ended(20, mendv1.RecordGivenUp, ""))}, 80, 0, 0},
		"given up, and less has":           {[]mendv1.RemediationRecord{begun(0, ended(20, mendv1.RecordGivenUp, ""))}, 79, 1, time.Minute},
		"cancelled":                        {[]mendv1.RemediationRecord{begun(0, ended(2, mendv1.RecordCancelled, "Withdrawn"))}, 5, 0, 0},
		"healthy before anything was done": {
			[]mendv1.RemediationRecord{begun(0, healed(2), ended(3, mendv1.RecordHealed, "Recovered"))}, 5, 0, 0,
		},
		"a remediator that deletes its request": {
			[]mendv1.RemediationRecord{begun(0, requested("Reboot", "Reboot", "Reboot"))}, 10, 3, 4 * time.Minute,
		},
		"two steps of an escalation": {[]mendv1.RemediationRecord{begun(0, requested("Reboot", "Replace"))}, 10, 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			loop := Of(tc.records, at(tc.failed))
			var want time.Time
			if tc.wait > 0 {
				want = at(tc.failed).Add(tc.wait)
			}
			if until := loop.Until(at(tc.failed), time.Hour); loop.Times != tc.times || !until.Equal(want) {
				t.Errorf("%d times, until %v, want %d times, until %v", loop.Times, until, tc.times, want)
			}
		})
	}
}

func TestTheLongestWaitIsTheCallersAndCountsFromTheLastBeginning(t *testing.T) {
	loop := Of([]mendv1.RemediationRecord{begun(0), begun(10), begun(20)}, at(30))
	if until := loop.Until(at(30), 3*time.Minute); !until.Equal(at(33)) || !loop.Since.Equal(noon) {
		t.Errorf("it waits until %v, since %v", until, loop.Since)
	}
	if until := loop.Until(at(1), time.Hour); !until.Equal(at(24)) { // a node's failure is older than its first request
		t.Errorf("it waits until %v", until)
	}
}
