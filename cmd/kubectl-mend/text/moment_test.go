package text

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		at   time.Time
		want string
	}{
		"soon":                                   {noon.Add(90 * time.Second), "12:01:30 (in 90s)"},
		"a while ago":                            {noon.Add(-10 * time.Minute), "11:50:00 (10m ago)"},
		"now":                                    {noon.Add(300 * time.Millisecond), "12:00:00 (now)"},
		"half a minute":                          {noon.Add(-30 * time.Second), "11:59:30 (30s ago)"},
		"within ten minutes seconds are printed": {noon.Add(599 * time.Second), "12:09:59 (in 9m59s)"},
		"and no more after that":                 {noon.Add(659 * time.Second), "12:10:59 (in 10m)"},
		"hours have minutes":                     {noon.Add(119 * time.Minute), "13:59:00 (in 119m)"},
		"days have hours":                        {noon.Add(-(49*time.Hour + 59*time.Minute)), "2025-12-30 10:01:00 (2d1h ago)"},
		"yesterday, with the date":               {noon.Add(-24 * time.Hour), "2025-12-31 12:00:00 (24h ago)"},
		"in another zone, as read here":          {noon.Add(time.Minute).In(time.FixedZone("", 7200)), "12:01:00 (in 60s)"},
	} {
		if got := Moment(tc.at, noon); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
