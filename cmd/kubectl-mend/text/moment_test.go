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
		"soon":                          {noon.Add(90 * time.Second), "12:01:30 (in 90s)"},
		"a while ago":                   {noon.Add(-10 * time.Minute), "11:50:00 (10m ago)"},
		"now":                           {noon.Add(300 * time.Millisecond), "12:00:00 (now)"},
		"yesterday, with the date":      {noon.Add(-24 * time.Hour), "2025-12-31 12:00:00 (24h ago)"},
		"in another zone, as read here": {noon.Add(time.Minute).In(time.FixedZone("", 7200)), "12:01:00 (in 60s)"},
	} {
		if got := Moment(tc.at, noon); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
