package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/explain"
)

func told(check, reason string, at time.Time) eventsv1.Event {
	return eventsv1.Event{Regarding: corev1.ObjectReference{Kind: "MachineHealthCheck", Namespace: "metal", Name: check}, Reason: reason, EventTime: metav1.NewMicroTime(at)}
}

func restricted(check string, at time.Time) eventsv1.Event {
	return told(check, "RemediationRestricted", at)
}

func allowed(check string, at time.Time) eventsv1.Event {
	return told(check, "RemediationAllowed", at)
}

func TestShortCircuitsAreThoseThatConditionsAndEventsKnow(t *testing.T) {
	now, is := at(36000), func(status metav1.ConditionStatus, seconds int) *metav1.Condition {
		return &metav1.Condition{Status: status, Reason: "TooManyUnhealthy", LastTransitionTime: metav1.NewTime(at(seconds))}
	}
	again := restricted("c", at(1000))
	again.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(at(5000))}
	old := restricted("c", time.Time{})
	old.DeprecatedFirstTimestamp = metav1.NewTime(at(1000))
	for name, tc := range map[string]struct {
		allowed *metav1.Condition
		events  []eventsv1.Event
		since   int
		want    []string
	}{
		"never":                         {is("True", 0), nil, 0, nil},
		"a check that says nothing yet": {nil, nil, 0, nil},
		"now":                           {is("False", 30000), nil, 0, []string{"30000 to now: 6000 s, Condition TooManyUnhealthy"}},
		"now, and for longer than the report is about":           {is("False", 30000), nil, 35000, []string{"30000 to now: 1000 s, Condition TooManyUnhealthy"}},
		"now, and the event says so too":                         {is("False", 30001), []eventsv1.Event{restricted("c", at(30000))}, 0, []string{"30001 to now: 5999 s, Condition TooManyUnhealthy"}},
		"once":                                                   {is("True", 2000), []eventsv1.Event{allowed("c", at(2000)), restricted("c", at(1000))}, 0, []string{"1000 to 2000: 1000 s, Event"}},
		"once, by an older recorder of events":                   {is("True", 2000), []eventsv1.Event{old}, 0, []string{"1000 to 2000: 1000 s, Event"}},
		"once, and ended before the report":                      {is("True", 2000), []eventsv1.Event{allowed("c", at(2000)), restricted("c", at(1000))}, 2001, nil},
		"once, and the event about its end is missing":           {is("True", 2000), []eventsv1.Event{restricted("c", at(1000))}, 0, []string{"1000 to 2000: 1000 s, Event"}},
		"once, and the event about its begin is no longer there": {is("True", 2000), []eventsv1.Event{allowed("c", at(2000))}, 0, nil},
		"twice, in one series":                                   {is("True", 6000), []eventsv1.Event{again, allowed("c", at(2000))}, 0, []string{"1000 to 2000: 1000 s, Event", "5000 to 6000: 1000 s, Event"}},
		"once, and again now": {is("False", 30000), []eventsv1.Event{restricted("c", at(1000)), allowed("c", at(2000)), restricted("c", at(30000))}, 0,
			[]string{"1000 to 2000: 1000 s, Event", "30000 to now: 6000 s, Condition TooManyUnhealthy"}},
		"another check, or another event":          {is("True", 0), []eventsv1.Event{restricted("d", at(1000)), told("c", "RemediationStarted", at(1))}, 0, nil},
		"a condition that is older than the event": {is("True", 500), []eventsv1.Event{restricted("c", at(1000))}, 0, []string{"1000 to 1000: 0 s, Event"}},
	} {
		t.Run(name, func(t *testing.T) {
			checks := []Check{{Ref: explain.Ref{Kind: "MachineHealthCheck", Namespace: "metal", Name: "c"}, Cluster: "prod", Allowed: tc.allowed}}
			var got []string
			for _, s := range ShortCircuitsOf(checks, tc.events, Question{Now: now, Since: at(tc.since)}) {
				end := "now"
				if !s.End.IsZero() {
					end = fmt.Sprint(s.End.Sub(noon).Seconds())
				}
				line := fmt.Sprintf("%v to %s: %v s, %s", s.Begin.Sub(noon).Seconds(), end, s.For.Seconds(), s.Source)
				if s.Reason != "" {
					line += " " + s.Reason
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if of := ShortCircuitsOf(checks, tc.events, Question{Now: now, Cluster: "test"}); len(of) > 0 {
				t.Errorf("of another cluster: %+v", of)
			}
		})
	}
}
