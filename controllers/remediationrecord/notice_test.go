package remediationrecord

import (
	"fmt"
	"slices"
	"testing"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// moments are what a record waits for, minute after minute; empty for nothing.
func reportedOf(t *Reported, from time.Time, waits ...string) (all []string) {
	for i, wait := range waits {
		now := from.Add(time.Duration(i) * time.Minute)
		p := &Plan{Waiting: wait, Object: mendv1.RecordRef{Kind: "Node", Name: "n-" + wait}}
		for _, is := range t.Report(&Facts{Now: now}, p) {
			all = append(all, fmt.Sprintf("%d %s", i, is.Reason))
		}
	}
	return all
}

func TestWhatIsWaitedForIsReportedOnce(t *testing.T) {
	a := func(n int, wait string) []string { return slices.Repeat([]string{wait}, n) }
	for name, tc := range map[string]struct {
		waits []string
		want  []string
	}{
		"once it lasts":                               {a(90, "Drain"), []string{"1 Drain"}},
		"each of several":                             {slices.Concat(a(3, "Drain"), a(3, "NoHost")), []string{"1 Drain", "4 NoHost"}},
		"not what has passed":                         {[]string{"Drain", "NoHost", "Boot", "Boot"}, []string{"3 Boot"}},
		"once where two alternate":                    {slices.Repeat([]string{"Drain", "Drain", "NoHost", "NoHost"}, 10), []string{"1 Drain", "3 NoHost"}},
		"again after an hour of something else":       {slices.Concat(a(2, "Drain"), a(62, "NoHost"), a(2, "Drain")), []string{"1 Drain", "3 NoHost", "65 Drain"}},
		"again after exactly an hour of nothing":      {slices.Concat(a(2, "Drain"), a(58, ""), a(2, "Drain")), []string{"1 Drain", "61 Drain"}},
		"not a minute earlier":                        {slices.Concat(a(2, "Drain"), a(57, ""), a(2, "Drain")), []string{"1 Drain"}},
		"nothing while nothing is known":              {[]string{"", "", ""}, nil},
		"once more when it is known again, if later":  {slices.Concat(a(2, "Drain"), a(61, ""), a(2, "Drain")), []string{"1 Drain", "64 Drain"}},
		"not more when it is known again, if earlier": {slices.Concat(a(2, "Drain"), a(3, ""), a(2, "Drain")), []string{"1 Drain"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reportedOf(&Reported{}, noon, tc.waits...); !slices.Equal(got, tc.want) {
				t.Errorf("reported is %v, want %v", got, tc.want)
			}
		})
	}
}

// Another object is news. After an hour as many may be reported again: a record may be open for weeks.
func TestTheLimitIsOnWhatIsReportedWithinAnHour(t *testing.T) {
	reported := &Reported{}
	var first []int
	for i := range 120 {
		object := mendv1.RecordRef{Kind: "Machine", Name: fmt.Sprintf("m%d", i/2)}
		for _, is := range reported.Report(&Facts{Now: noon.Add(time.Duration(i) * time.Minute)}, &Plan{Waiting: "KubeadmDefers", Object: object}) {
			if first = append(first, i); is.Object != object {
				t.Errorf("of %s it tells %v", object.Name, is)
			}
		}
	}
	// One in two minutes until there are twelve, of which the first one counts until an hour has passed since.
	want := []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 61, 63, 65, 67, 69, 71, 73, 75, 77, 79, 81, 83}
	if !slices.Equal(first, want) {
		t.Errorf("it is reported in the minutes %v, want %v", first, want)
	}
}

// A deadline that has passed is no news again, also if something else was waited for meanwhile.
func TestAPassedDeadlineIsReportedOnce(t *testing.T) {
	reported := &Reported{}
	var late []int
	for i := range 240 {
		p := &Plan{Waiting: "NoNode", Overdue: i >= 10}
		if i/30%2 == 1 {
			p = &Plan{Waiting: "NodeNotReady", Object: mendv1.RecordRef{Kind: "Node", Name: fmt.Sprintf("n%d", i)}}
		}
		for _, is := range reported.Report(&Facts{Now: noon.Add(time.Duration(i) * time.Minute)}, p) {
			if is.News == Late {
				late = append(late, i)
			}
		}
	}
	if !slices.Equal(late, []int{10}) {
		t.Errorf("it is reported in the minutes %v", late)
	}
}

func TestWhatIsReportedOfTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		facts Facts
		plan  Plan
		want  []Notice
	}{
		"capacity that is back":                 {Facts{}, ended(mendv1.RecordReplaced), []Notice{{News: Back, Reason: "Replaced"}}},
		"a machine that is healthy again":       {Facts{}, ended(mendv1.RecordHealed), []Notice{{News: Back, Reason: "Healed"}}},
		"one that nothing acts on any more":     {Facts{}, ended(mendv1.RecordGivenUp), []Notice{{News: NotComing, Reason: "GivenUp"}}},
		"one that is gone for good":             {Facts{}, ended(mendv1.RecordGone), []Notice{{News: NotComing, Reason: "Gone"}}},
		"nothing of one that had no effect":     {Facts{}, ended(mendv1.RecordCancelled), nil},
		"nothing after the end":                 {Facts{Status: mendv1.RemediationRecordStatus{Ended: moment(noon)}}, ended(mendv1.RecordReplaced), nil},
		"nothing while the Cluster is paused":   {Facts{Paused: true}, Plan{Waiting: PausedReason}, nil},
		"nothing of what is not to be replaced": {Facts{Now: noon}, Plan{Waiting: "ScaledDown", Over: true, Overdue: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Reported{}).Report(&tc.facts, &tc.plan); !slices.Equal(got, tc.want) {
				t.Errorf("reported is %v, want %v", got, tc.want)
			}
		})
	}
}

func ended(outcome mendv1.RecordOutcome) Plan {
	return Plan{Status: mendv1.RemediationRecordStatus{Ended: moment(noon), Outcome: outcome}}
}
