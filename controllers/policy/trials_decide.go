package policy

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

const (
	// provenAfter is for how long the capacity of a remediation has to be back for it to count as proven.
	provenAfter = 5 * time.Minute
	// firstPause is how long nothing begins in a group after a remediation that failed; it doubles with each that follows, up to
	// longestPause.
	firstPause, longestPause = time.Minute, 10 * time.Minute
)

// trials are the remediations of a group that were begun: when, and, for slowStart, how they turn out. A process that was started again
// knows from records when, and begins slowStart anew, which is careful.
type trials struct {
	begun map[types.UID][]time.Time
	// unproven are those that were begun, and when their capacity was back; zero while it is not.
	unproven map[types.UID]time.Time
	// width is how many unproven ones there may be, 0 for the first one; pause is how long nothing began after the last failure, and
	// until when.
	width int
	pause time.Duration
	until time.Time
}

// saw notes that a remediation of target was begun at a moment. Its check and its record say so a few seconds apart: two moments within a
// minute are one remediation.
func (t *trials) saw(target types.UID, at time.Time) {
	if t.begun == nil {
		t.begun = map[types.UID][]time.Time{}
	}
	if !slices.ContainsFunc(t.begun[target], func(known time.Time) bool { return known.Sub(at).Abs() < time.Minute }) {
		t.begun[target] = append(t.begun[target], at)
	}
}

// within are the moments of the hour before now at which remediations were begun.
func (t *trials) within(now time.Time) []time.Time {
	all := slices.Concat(slices.Collect(maps.Values(t.begun))...)
	return slices.DeleteFunc(all, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
}

// observe takes in which remediations of a group are under way, by when they began, and which targets are unavailable.
func (t *trials) observe(flying map[types.UID]time.Time, unavailable map[types.UID]bool, now time.Time) {
	if t.unproven == nil {
		t.unproven = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(t.begun, func(_ types.UID, at []time.Time) bool {
		return now.Sub(slices.MaxFunc(at, time.Time.Compare)) >= time.Hour
	})
	for uid, at := range flying {
		if _, known := t.unproven[uid]; !known {
			t.unproven[uid] = time.Time{}
			t.saw(uid, at)
		}
	}
	for uid, back := range t.unproven {
		_, flies := flying[uid]
		switch {
		case flies && back.IsZero():
		case flies, unavailable[uid]: // it was given up, is stalled, or was bad again before it was proven
			if t.width, t.pause = 0, min(max(2*t.pause, firstPause), longestPause); flies {
				t.unproven[uid] = time.Time{}
			} else {
				delete(t.unproven, uid)
			}
			t.until = now.Add(t.pause)
		case back.IsZero():
			t.unproven[uid] = now
		case now.Sub(back) >= provenAfter:
			delete(t.unproven, uid)
			t.width = max(t.width, 1) + 1
		}
	}
	if len(flying)+len(unavailable)+len(t.unproven) == 0 {
		t.width, t.pause = 0, 0
	}
}

// slow is until when slowStart lets nothing begin beside so many that were claimed and not begun yet; zero if it lets one begin. Where that
// depends on those that are under way it is after their capacity may have been back for long enough.
func (t *trials) slow(claimed int, now time.Time) (until time.Time, blocks bool) {
	switch {
	case now.Before(t.until):
		return t.until, true
	case len(t.unproven)+claimed < max(t.width, 1):
		return time.Time{}, false
	}
	for _, back := range t.unproven {
		if !back.IsZero() {
			until = health.Earliest(until, back.Add(provenAfter))
		}
	}
	return until, true
}

// rate is until when no more may begin, as so many have within an hour; zero if one may.
func (t *trials) rate(most, claimed int, now time.Time) time.Time {
	begun := t.within(now)
	if len(begun)+claimed < most {
		return time.Time{}
	}
	return slices.MinFunc(append(begun, now), time.Time.Compare).Add(time.Hour) // with 0 none may begin, and it is asked again
}
