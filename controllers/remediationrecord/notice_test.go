package remediationrecord

import (
	"fmt"
	"slices"
	"testing"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// reportedOf is what is reported of a record that waits for this, minute after minute; empty for nothing that is known.
func reportedOf(waits ...string) (reasons []string) {
	reported, status := Reported{}, mendv1.RemediationRecordStatus{}
	for i, wait := range waits {
		now := noon.Add(time.Duration(i) * time.Minute)
		if step := waitingFor(&status); wait != "" && (step == nil || step.Reason != wait) {
			status.Steps = append(status.Steps, aStep(now, wait))
		}
		plan := &Plan{Status: status, Waiting: wait, Object: mendv1.RecordRef{Kind: "Node", Name: "n-" + wait}}
		for _, notice := range reported.Report(&Facts{Now: now}, plan) {
			reasons = append(reasons, fmt.Sprintf("%d %s", i, notice.Reason))
		}
	}
	return reasons
}

func TestWhatIsWaitedForIsReportedOnce(t *testing.T) {
	a := func(n int, wait string) []string { return slices.Repeat([]string{wait}, n) }
	for name, tc := range map[string]struct {
		waits []string
		want  []string
	}{
		"once it lasts":                          {a(90, "Drain"), []string{"1 Drain"}},
		"each of several":                        {slices.Concat(a(3, "Drain"), a(3, "NoHost")), []string{"1 Drain", "4 NoHost"}},
		"not what has passed":                    {[]string{"Drain", "NoHost", "Boot", "Boot"}, []string{"3 Boot"}},
		"once where two alternate":               {slices.Repeat([]string{"Drain", "Drain", "NoHost", "NoHost"}, 10), []string{"1 Drain", "3 NoHost"}},
		"again after an hour of something else":  {slices.Concat(a(2, "Drain"), a(62, "NoHost"), a(2, "Drain")), []string{"1 Drain", "3 NoHost", "65 Drain"}},
		"nothing while nothing is known":         {[]string{"", "", ""}, nil},
		"not again when it is known again after": {slices.Concat(a(2, "Drain"), a(61, ""), a(2, "Drain")), []string{"1 Drain"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reportedOf(tc.waits...); !slices.Equal(got, tc.want) {
				t.Errorf("reported is %v, want %v", got, tc.want)
			}
		})
	}
}

// Another object is news. After an hour as many may be reported again: a record may be open for weeks.
func TestTheLimitIsOnWhatIsReportedWithinAnHour(t *testing.T) {
	reported, status := Reported{}, mendv1.RemediationRecordStatus{Steps: []mendv1.RecordStep{aStep(noon.Add(-time.Minute), "KubeadmDefers")}}
	var first []int
	for i := range 120 {
		object := mendv1.RecordRef{Kind: "Machine", Name: fmt.Sprintf("m%d", i/2)}
		plan := &Plan{Status: status, Waiting: "KubeadmDefers", Object: object}
		for _, notice := range reported.Report(&Facts{Now: noon.Add(time.Duration(i) * time.Minute)}, plan) {
			if first = append(first, i); notice.Object != object {
				t.Errorf("of %s it reports %v", object.Name, notice)
			}
		}
	}
	// One in two minutes until there are twelve, of which the first one counts until an hour has passed since.
	want := []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 60, 62, 64, 66, 68, 70, 72, 74, 76, 78, 80, 82}
	if !slices.Equal(first, want) {
		t.Errorf("it is reported in the minutes %v, want %v", first, want)
	}
}

// A deadline that has passed is no news again, also if something else was waited for meanwhile.
func TestAPassedDeadlineIsReportedOnce(t *testing.T) {
	reported := Reported{}
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
			if got := (Reported{}).Report(&tc.facts, &tc.plan); !slices.Equal(got, tc.want) {
				t.Errorf("reported is %v, want %v", got, tc.want)
			}
		})
	}
}

func ended(outcome mendv1.RecordOutcome) Plan {
	return Plan{Status: mendv1.RemediationRecordStatus{Ended: moment(noon), Outcome: outcome}}
}
