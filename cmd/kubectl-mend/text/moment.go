package text

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
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

// Away is how far at is from now, as kubectl writes ages: "in 3m10s", "5m ago", "now".
func Away(at, now time.Time) string {
	switch away := at.Sub(now).Round(time.Second); {
	case away > 0:
		return "in " + duration.HumanDuration(away)
	case away < 0:
		return duration.HumanDuration(-away) + " ago"
	}
	return "now"
}
