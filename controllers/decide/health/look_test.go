package health

import (
	"testing"
	"time"
)

// A stamp is of a clock of somebody else, or missing. (The clock of a kubelet after a loss of power is that of 2020.)
func TestSinceWhenAConditionCounts(t *testing.T) {
	const m, h = time.Minute, time.Hour
	rules := []Rule{{OnNode, "Ready", "False", 5 * m}}
	was := func(status string, since time.Duration) []Signal {
		return []Signal{{OnNode, "Ready", status, "", ago(since), false}}
	}
	first := Look{Now: noon, Created: ago(24 * h)}
	seen := func(was []Signal) Look { return Look{noon, ago(24 * h), ago(m), rules, was, false} }
	blind := seen(was("False", h))
	blind.Blind = true
	unruled := seen(nil)
	unruled.Rules = nil
	for name, tc := range map[string]struct {
		look  Look
		stamp time.Time
		want  time.Duration // ago; below zero: from now, as it has no stamp that can be true
	}{
		"since its stamp, at the first look":                              {first, ago(h), h},
		"a stamp older than the object, at the first look":                {first, ago(25 * h), -1},
		"none, at the first look":                                         {first, time.Time{}, -1},
		"one in the future, at the first look":                            {first, ago(-6 * h), -1},
		"it turned since the last look":                                   {seen(nil), ago(m), m},
		"it turned before, by a clock that is behind":                     {seen(nil), ago(45 * m), -1},
		"it turned, by one that is years behind":                          {seen(nil), noon.AddDate(-6, 0, 0), -1},
		"it turned, by one that is ahead":                                 {seen(nil), ago(-6 * h), -1},
		"it turned, and has no stamp":                                     {seen(nil), time.Time{}, -1},
		"a few seconds behind":                                            {seen(nil), ago(m + 10*time.Second), m + 10*time.Second},
		"a few seconds ahead":                                             {seen(nil), ago(-10 * time.Second), -10 * time.Second},
		"the same status under a new stamp":                               {seen(was("False", h)), ago(time.Second), h},
		"the same status under none":                                      {seen(was("False", h)), time.Time{}, h},
		"a new stamp after a time in which a turn would have been missed": {blind, ago(time.Second), time.Second},
		"after such a time, the stamp that it had":                        {blind, ago(h), h},
		"after such a time, one in the future":                            {blind, ago(-6 * h), h},
		"there was no rule about it at the last look":                     {unruled, ago(h), h},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.look.Dated([]Signal{{OnNode, "Ready", "False", "", tc.stamp, false}})[0]
			want := ago(tc.want)
			if tc.want == -1 {
				want = noon
			}
			if !s.Since.Equal(want) || s.Undated != (tc.want == -1) {
				t.Errorf("counts since %s, undated %t, want %s", s.Since, s.Undated, want)
			}
			tc.look.Now, tc.look.Before, tc.look.Was = noon.Add(h), noon, []Signal{s}
			if again := tc.look.Dated([]Signal{{OnNode, "Ready", "False", "", tc.stamp, false}})[0]; again != s {
				t.Errorf("an hour later it is %+v, and was %+v", again, s)
			}
		})
	}
}
