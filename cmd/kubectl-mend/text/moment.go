package text

import (
	"fmt"
	"time"
)

// Clock is at as a person reads it at now: the time of day, with the date if it is another day. It is in the zone of now.
func Clock(at, now time.Time) string {
	at = at.In(now.Location())
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// Moment is Clock, and how far away it is.
func Moment(at, now time.Time) string { return Clock(at, now) + " (" + Away(at, now) + ")" }

// Away is how far at is from now: "in 3m10s", "5m ago", "now".
func Away(at, now time.Time) string {
	switch away := at.Sub(now).Round(time.Second); {
	case away > 0:
		return "in " + span(away)
	case away < 0:
		return span(-away) + " ago"
	}
	return "now"
}

// span is how long d is, in at most two units; with seconds below ten minutes, and with minutes below a day.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Minute:
		return units(d, time.Minute, time.Second, "m", "s")
	case d < day:
		return units(d, time.Hour, time.Minute, "h", "m")
	}
	return units(d, day, time.Hour, "d", "h")
}

// units is d in two units; what there is none of is left out.
func units(d, large, small time.Duration, largeName, smallName string) string {
	many, few := d/large, d%large/small
	switch {
	case many == 0:
		return fmt.Sprintf("%d%s", few, smallName)
	case few == 0:
		return fmt.Sprintf("%d%s", many, largeName)
	}
	return fmt.Sprintf("%d%s%d%s", many, largeName, few, smallName)
}
