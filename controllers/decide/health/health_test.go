package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }
func in(d time.Duration) time.Time  { return noon.Add(d) }

func TestDueFindingsAreThoseWhoseMomentHasCome(t *testing.T) {
	atOnce := Finding{Node: "at once"}
	past := Finding{Node: "past", Due: ago(time.Nanosecond)}
	present := Finding{Node: "present", Due: noon}
	future := Finding{Node: "future", Due: in(time.Nanosecond)}

	v := Verdict{Findings: []Finding{future, present, atOnce, past}}
	if diff := cmp.Diff([]Finding{present, atOnce, past}, v.Due(noon)); diff != "" {
		t.Errorf("Due(): -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]Finding{future, present, atOnce, past}, v.Due(future.Due)); diff != "" {
		t.Errorf("Due() a moment later: -want +got\n%s", diff)
	}
}

func TestOverdueSince(t *testing.T) {
	at := func(due ...time.Time) (fs []Finding) {
		for _, d := range due {
			fs = append(fs, Finding{Due: d})
		}
		return fs
	}
	var unknown time.Time

	cases := map[string]struct {
		given []Finding
		want  time.Time
	}{
		"nothing was ever due":                        {given: nil, want: unknown},
		"what is not due yet does not count":          {given: at(in(time.Minute)), want: unknown},
		"what is due just now counts":                 {given: at(noon), want: noon},
		"the first that was due counts":               {given: at(ago(2*time.Minute), ago(3*time.Minute), ago(1*time.Minute)), want: ago(3 * time.Minute)},
		"a finding without a moment tells nothing":    {given: at(unknown), want: unknown},
		"a known moment is better than an unknown":    {given: at(unknown, ago(time.Minute)), want: ago(time.Minute)},
		"an unknown moment does not hide a known one": {given: at(ago(time.Minute), unknown, in(time.Minute)), want: ago(time.Minute)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (Verdict{Findings: tc.given}).OverdueSince(noon); !got.Equal(tc.want) {
				t.Errorf("OverdueSince() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestEarliest(t *testing.T) {
	var never time.Time
	cases := map[string]struct{ a, b, want time.Time }{
		"the first comes first":          {noon, in(1), noon},
		"the second comes first":         {in(1), noon, noon},
		"both come at once":              {noon, noon, noon},
		"the first never comes":          {never, noon, noon},
		"the second never comes":         {noon, never, noon},
		"two that never come stay never": {never, never, never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Earliest(tc.a, tc.b); !got.Equal(tc.want) {
				t.Errorf("Earliest(%v, %v) = %v, want %v", tc.a, tc.b, got, tc.want)
			}
		})
	}
}

// The names are the values of a metric's label, so changing one breaks dashboards.
func TestStatesAreSpelledInLowerCase(t *testing.T) {
	var got []string
	for _, s := range []State{Healthy, Starting, Pending, Unknown, Unhealthy} {
		got = append(got, s.String())
	}
	if diff := cmp.Diff([]string{"healthy", "starting", "pending", "unknown", "unhealthy"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
