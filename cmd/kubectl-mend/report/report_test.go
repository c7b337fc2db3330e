package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// one is a remediation of a machine: unhealthy at noon, counted after five minutes, begun ten seconds later, and replaced twenty minutes after that.
func one(machine string, edits ...func(*Remediation)) Remediation {
	r := Remediation{
		Record: explain.Ref{Kind: "RemediationRecord", Namespace: "metal", Name: machine + "-1"}, Mode: mendv1.RecordActive,
		Target:  explain.Ref{Kind: "Machine", Namespace: "metal", Name: machine},
		Cluster: explain.Ref{Kind: "Cluster", Namespace: "metal", Name: "prod"}, Check: explain.Ref{Kind: "MachineHealthCheck", Namespace: "metal", Name: "workers"},
		Host: explain.Ref{Kind: "BareMetalHost", Namespace: "metal", Name: "host-of-" + machine}, HostModel: "ACME R1", Cause: "Ready=Unknown", Evident: true,
		UnhealthySince: noon, Due: at(300), Decided: at(305), Begun: at(310), CapacityBack: at(1510), Ended: at(1511), Outcome: mendv1.RecordReplaced,
	}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

func later(d time.Duration) func(*Remediation) {
	return func(r *Remediation) {
		for _, t := range []*time.Time{&r.UnhealthySince, &r.Due, &r.Decided, &r.Begun, &r.CapacityBack, &r.Ended} {
			if !t.IsZero() {
				*t = t.Add(d)
			}
		}
	}
}

func open(r *Remediation) { r.CapacityBack, r.Ended, r.Outcome = time.Time{}, time.Time{}, "" }

func notBegun(r *Remediation) {
	r.Begun, r.CapacityBack, r.Outcome = time.Time{}, time.Time{}, mendv1.RecordCancelled
}

func ended(as mendv1.RecordOutcome) func(*Remediation) {
	return func(r *Remediation) {
		if r.Outcome = as; as != mendv1.RecordHealed && as != mendv1.RecordReplaced {
			r.CapacityBack = time.Time{}
		}
	}
}

// back is that capacity was back so long after noon.
func back(seconds int) func(*Remediation) {
	return func(r *Remediation) { r.CapacityBack, r.Ended = at(seconds), at(seconds+1) }
}

func byHand(r *Remediation) {
	r.ByHand, r.Evident, r.UnhealthySince, r.Due, r.Check, r.Cause = true, false, time.Time{}, time.Time{}, explain.Ref{}, ""
}

func sums(seconds ...int) Summary {
	d := func(i int) time.Duration { return time.Duration(seconds[i]) * time.Second }
	return Summary{Count: seconds[0], Mean: d(1), P95: d(2), Max: d(3)}
}

// The numbers are computed by hand.
func TestRemediationsAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []Remediation
		q    Question
		want Group
	}{
		"none": {nil, Question{}, Group{}},
		"one": {[]Remediation{one("a")}, Question{}, Group{
			Remediations: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1},
			Detect: sums(1, 300, 300, 300), Begin: sums(1, 10, 10, 10), Repair: sums(1, 1200, 1200, 1200), Back: sums(1, 1510, 1510, 1510),
		}},
		"three, of which the slowest is the 95th percentile": {[]Remediation{one("a"), one("b", back(910)), one("c", back(610), ended("Healed"))}, Question{}, Group{
			Remediations: 3, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 2, "Healed": 1},
			Detect: sums(3, 300, 300, 300), Begin: sums(3, 10, 10, 10), Repair: sums(3, 700, 1200, 1200), Back: sums(3, 1010, 1510, 1510),
		}},
		"an open one has no end": {[]Remediation{one("a"), one("b", open)}, Question{}, Group{
			Remediations: 2, Open: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1},
			Detect: sums(2, 300, 300, 300), Begin: sums(2, 10, 10, 10), Repair: sums(1, 1200, 1200, 1200), Back: sums(1, 1510, 1510, 1510),
		}},
		"one that did not begin counts nowhere": {[]Remediation{one("a", notBegun)}, Question{}, Group{NotBegun: 1}},
		"one that was given up, one that was withdrawn, and one whose target is gone, have no capacity back": {
			[]Remediation{one("a", ended("GivenUp")), one("b", ended("Cancelled")), one("c", ended("Gone"))}, Question{}, Group{
				Remediations: 3, Outcomes: map[mendv1.RecordOutcome]int{"GivenUp": 1, "Cancelled": 1, "Gone": 1},
				Detect: sums(3, 300, 300, 300), Begin: sums(3, 10, 10, 10),
			},
		},
		"of one that a user asked for it is not known how long it was unhealthy": {[]Remediation{one("a", byHand)}, Question{}, Group{
			Remediations: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1}, Begin: sums(1, 5, 5, 5), Repair: sums(1, 1200, 1200, 1200),
		}},
		"a timeout that had not expired when a user asked": {[]Remediation{one("a", func(r *Remediation) { r.Due = at(3600) })}, Question{}, Group{
			Remediations: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1},
			Detect: sums(1, 305, 305, 305), Begin: sums(1, 5, 5, 5), Repair: sums(1, 1200, 1200, 1200), Back: sums(1, 1510, 1510, 1510),
		}},
		"a clock that is behind": {[]Remediation{one("a", func(r *Remediation) { r.UnhealthySince = at(302) })}, Question{}, Group{
			Remediations: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1},
			Detect: sums(1, 0, 0, 0), Begin: sums(1, 10, 10, 10), Repair: sums(1, 1200, 1200, 1200), Back: sums(1, 1208, 1208, 1208),
		}},
		"one that began while no manager ran": {[]Remediation{one("a", func(r *Remediation) { r.Begun = time.Time{} })}, Question{}, Group{
			Remediations: 1, Outcomes: map[mendv1.RecordOutcome]int{"Replaced": 1}, Detect: sums(1, 300, 300, 300), Back: sums(1, 1510, 1510, 1510),
		}},
		"one that was decided before":       {[]Remediation{one("a")}, Question{Since: at(306)}, Group{}},
		"one of another cluster":            {[]Remediation{one("a")}, Question{Cluster: "test"}, Group{}},
		"one that kubemend only observes":   {[]Remediation{one("a", func(r *Remediation) { r.Mode = mendv1.RecordObserved })}, Question{}, Group{}},
		"one that was decided at that time": {[]Remediation{one("a", notBegun)}, Question{Since: at(305)}, Group{NotBegun: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of(tc.all, tc.q).Total); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestThePercentileIsThatOfTheNearestRank(t *testing.T) {
	upTo := func(n int) []time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(n-i) * time.Second // in the wrong order
		}
		return all
	}
	for n, want := range map[int]int{1: 1, 2: 2, 10: 10, 19: 19, 20: 19, 21: 20, 40: 38, 41: 39, 100: 95, 101: 96, 1000: 950} {
		if got := Summarize(upTo(n)).P95; got != time.Duration(want)*time.Second {
			t.Errorf("of 1 s to %d s it is %s, want %d s", n, got, want)
		}
	}
	year := 365 * 24 * time.Hour
	if got := Summarize(slices.Repeat([]time.Duration{year}, 30000)); got != (Summary{30000, year, year, year}) {
		t.Errorf("of 30,000 years: %+v", got)
	}
}

func TestRemediationsAreDivided(t *testing.T) {
	of := func(cluster, check, cause, model string) func(*Remediation) {
		return func(r *Remediation) {
			r.Cluster.Name, r.Check.Name, r.Cause, r.HostModel = cluster, check, cause, model
			r.FailureDomain = "rack-" + cluster
		}
	}
	all := []Remediation{
		one("a", of("prod", "workers", "Ready=Unknown", "R1")), one("b", of("prod", "workers", "Ready=False", "R1")),
		one("c", of("prod", "gpu", "Ready=Unknown", "R2"), open), one("d", of("test", "workers", "Ready=Unknown", ""), notBegun),
	}
	for name, tc := range map[string]struct {
		by   []Dimension
		want []string
	}{
		"by nothing":            {nil, nil},
		"by cluster":            {[]Dimension{ByCluster}, []string{"metal/prod: 3, 1 open", "metal/test: 0, 0 open"}},
		"by check":              {[]Dimension{ByCheck}, []string{"metal/workers: 2, 0 open", "metal/gpu: 1, 1 open"}},
		"by cause":              {[]Dimension{ByCause}, []string{"Ready=Unknown: 2, 1 open", "Ready=False: 1, 0 open"}},
		"by model":              {[]Dimension{ByHostModel}, []string{"R1: 2, 0 open", "R2: 1, 1 open", ": 0, 0 open"}},
		"by failure domain":     {[]Dimension{ByFailureDomain}, []string{"rack-prod: 3, 1 open", "rack-test: 0, 0 open"}},
		"by cluster, and check": {[]Dimension{ByCluster, ByCheck}, []string{"metal/prod metal/workers: 2, 0 open", "metal/prod metal/gpu: 1, 1 open", "metal/test metal/workers: 0, 0 open"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range Of(all, Question{By: tc.by}).Groups {
				var values []string
				for _, by := range tc.by {
					values = append(values, g.value(by, named))
				}
				got = append(got, fmt.Sprintf("%s: %d, %d open", strings.Join(values, " "), g.Remediations, g.Open))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

const day = 24 * time.Hour

func TestWhatIsRemediatedAgainAndAgainIsNamed(t *testing.T) {
	onHost := func(host string, d time.Duration, edits ...func(*Remediation)) Remediation {
		edits = append([]func(*Remediation){later(d), func(r *Remediation) { r.Host.Name = host }}, edits...)
		return one(fmt.Sprintf("m-%s", d), edits...) // a machine that was replaced has another name
	}
	node := func(cluster string, d time.Duration) Remediation {
		return one("n", later(d), func(r *Remediation) {
			r.Target, r.Host, r.Cluster.Name = explain.Ref{Kind: "Node", Name: "n"}, explain.Ref{}, cluster
		})
	}
	q := Question{AtLeast: 3, Within: 7 * day}
	for name, tc := range map[string]struct {
		all  []Remediation
		want []string
	}{
		"twice":                              {[]Remediation{onHost("h", 0), onHost("h", day)}, nil},
		"three times":                        {[]Remediation{onHost("h", 2*day), onHost("h", 0), onHost("h", day)}, []string{"BareMetalHost/h 3 of 3"}},
		"three times in just that time":      {[]Remediation{onHost("h", 0), onHost("h", day), onHost("h", 7*day)}, []string{"BareMetalHost/h 3 of 3"}},
		"three times in longer":              {[]Remediation{onHost("h", 0), onHost("h", day), onHost("h", 7*day+time.Second)}, nil},
		"three of four times":                {[]Remediation{onHost("h", 0), onHost("h", 20*day), onHost("h", 21*day), onHost("h", 22*day)}, []string{"BareMetalHost/h 3 of 4"}},
		"two of one host and two of another": {[]Remediation{onHost("h", 0), onHost("h", day), onHost("g", 2*day), onHost("g", 3*day)}, nil},
		"three, of which one did not begin":  {[]Remediation{onHost("h", 0), onHost("h", day), onHost("h", 2*day, notBegun)}, nil},
		"a machine that stays on its host": {[]Remediation{one("a"), one("a", later(day)), one("a", later(2*day))},
			[]string{"Machine/a 3 of 3", "BareMetalHost/host-of-a 3 of 3"}},
		"one whose target is the host": {[]Remediation{
			onHost("h", 0, hostAlone), onHost("h", day, hostAlone), onHost("h", 2*day, hostAlone)}, []string{"BareMetalHost/h 3 of 3"}},
		"nodes of the same name": {[]Remediation{node("a", 0), node("b", day), node("a", 2*day), node("b", 3*day)}, nil},
		"one node":               {[]Remediation{node("a", 0), node("b", day), node("a", 2*day), node("a", 3*day)}, []string{"Node/n 3 of 3"}},
		"the one with most first": {[]Remediation{
			onHost("h", 0), onHost("h", day), onHost("h", 2*day), onHost("g", 3*day), onHost("g", 4*day), onHost("g", 5*day), onHost("g", 6*day)},
			[]string{"BareMetalHost/g 4 of 4", "BareMetalHost/h 3 of 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range Of(tc.all, q).Repeated {
				got = append(got, fmt.Sprintf("%s/%s %d of %d", r.Object.Kind, r.Object.Name, r.Most, r.Remediations))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	causes := []Remediation{onHost("h", 0), onHost("h", day, func(r *Remediation) { r.Cause = "Ready=False" }), onHost("h", 2*day)}
	got := Of(causes, q).Repeated[0]
	want := Repeated{Object: explain.Ref{Kind: "BareMetalHost", Namespace: "metal", Name: "h"}, Cluster: "prod", HostModel: "ACME R1", Remediations: 3, Most: 3,
		First: at(310), Last: at(310).Add(2 * day), Causes: []string{"Ready=Unknown", "Ready=False"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func hostAlone(r *Remediation) { r.Target = r.Host }

// A user who may write records in a namespace may name in one what is in another.
func TestARecordCountsForNothingOfAnotherNamespace(t *testing.T) {
	there := func(kind string) *mendv1.RecordRef {
		return &mendv1.RecordRef{Kind: kind, Namespace: "theirs", Name: "x"}
	}
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "r"}}
	record.Spec.Target = mendv1.RecordTarget{ClusterName: "c", Machine: there("Machine"), Host: there("BareMetalHost")}
	if is := RemediationOf(record); is.Target.Namespace != "ours" || is.Host.Namespace != "ours" || is.Cluster.Namespace != "ours" {
		t.Errorf("it counts for %v on %v", is.Target, is.Host)
	}
	record.Spec.Target = mendv1.RecordTarget{Machine: there("Machine"), Node: there("Node")}
	if is := RemediationOf(record); is.Target.Namespace != "theirs" || is.Host != (explain.Ref{}) {
		t.Errorf("that of a node counts for %v on %v", is.Target, is.Host)
	}
}

func observed(r *Remediation) { r.Mode = mendv1.RecordObserved }

func TestARecordOfWhatWasObservedShowsOneComparison(t *testing.T) {
	unknown := map[string]bool{"it was cancelled": true, "nothing was done, and the target is gone": true, "it was replaced by what is not known": true}
	for name, tc := range map[string]struct {
		edit       func(*Remediation)
		want       cliv1.Comparison
		difference time.Duration
	}{
		"others began later":                                      {both(90), cliv1.BothBegin, 90 * time.Second},
		"others began earlier":                                    {both(-45), cliv1.BothBegin, -45 * time.Second},
		"others began while the timeout ran":                      {func(r *Remediation) { r.Due = r.Decided.Add(1) }, cliv1.OnlyOthersBegin, 0},
		"others began what a limit blocks":                        {others("TooManyUnhealthy"), cliv1.OnlyOthersBegin, 0},
		"others began what is healthy":                            {func(r *Remediation) { r.Due, r.Evident = time.Time{}, false }, cliv1.OnlyOthersBegin, 0},
		"a finding without a timeout":                             {func(r *Remediation) { r.Due = time.Time{} }, cliv1.BothBegin, 5 * time.Second},
		"a user asked":                                            {byHand, cliv1.BothBegin, 5 * time.Second},
		"nothing was done yet":                                    {alone, cliv1.OnlyKubemendBegins, 0},
		"nothing was done, and the target is gone":                {func(r *Remediation) { alone(r); r.Outcome = mendv1.RecordGone }, cliv1.NotComparable, 0},
		"it was replaced by what is not known":                    {func(r *Remediation) { r.Begun = time.Time{} }, cliv1.NotComparable, 0},
		"it healed after":                                         {healed(60), cliv1.HealedAfterKubemend, 0},
		"it has healed, and the record is open":                   {func(r *Remediation) { healed(60)(r); r.Ended, r.Outcome = time.Time{}, "" }, cliv1.HealedAfterKubemend, 0},
		"it healed before":                                        {func(r *Remediation) { healed(60)(r); r.Due = r.Ended }, cliv1.HealedBeforeKubemend, 0},
		"others began, and it healed":                             {func(r *Remediation) { both(90)(r); r.Outcome = mendv1.RecordHealed }, cliv1.BothBegin, 90 * time.Second},
		"it was cancelled":                                        {notBegun, cliv1.NotComparable, 0},
		"kubemend would not have begun, and nothing was done yet": {func(r *Remediation) { alone(r); r.BlockedBy = "Pending" }, cliv1.NotComparable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			report := ShadowOf([]Remediation{one("a", observed, tc.edit)}, Question{})
			s := &report.Shadows[0]
			difference, is := s.Difference()
			if s.Comparison != tc.want || report.Count[tc.want] != 1 || is != (tc.want == cliv1.BothBegin) || is && difference != tc.difference {
				t.Errorf("got %s by %s, want %s by %s", s.Comparison, difference, tc.want, tc.difference)
			}
			if would := !s.WouldBegin().IsZero(); would != (tc.want == cliv1.BothBegin || tc.want == cliv1.OnlyKubemendBegins || tc.want == cliv1.HealedAfterKubemend || unknown[name]) {
				t.Errorf("that kubemend would have begun: %t", would)
			}
		})
	}
	if report := ShadowOf([]Remediation{one("a")}, Question{}); report.Active != 1 || len(report.Shadows) != 0 {
		t.Errorf("of one that kubemend began: %+v", report)
	}
	if report := ShadowOf([]Remediation{one("a", observed)}, Question{Cluster: "test"}); len(report.Shadows) != 0 {
		t.Errorf("of another cluster: %+v", report)
	}
}

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
