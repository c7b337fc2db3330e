package policy

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

const (
	// provenAfter is how long capacity must be back until the remediation counts as proven.
	provenAfter = 5 * time.Minute
	// firstPause is how long nothing begins in a group after a failure. It doubles with each further failure, up to longestPause.
	firstPause, longestPause = time.Minute, 10 * time.Minute
)

// trials are the remediations that were begun in a group, and for slowStart how they turn out. After a restart the times come from records,
// and slowStart starts anew, which is the careful choice.
type trials struct {
	begun map[types.UID][]time.Time
	// unproven has when the capacity of each remediation that was begun was back; zero while it is not.
	unproven map[types.UID]time.Time
	// width is how many unproven remediations there may be; 0 counts as 1.
	width int
	// pause is how long nothing began after the last failure, until is when that ends.
	pause time.Duration
	until time.Time
}

// saw notes when a remediation of target was begun. A check and a record report it some seconds apart: times within a minute are the same.
func (t *trials) saw(target types.UID, at time.Time) {
	if t.begun == nil {
		t.begun = map[types.UID][]time.Time{}
	}
	if !slices.ContainsFunc(t.begun[target], func(known time.Time) bool { return known.Sub(at).Abs() < time.Minute }) {
		t.begun[target] = append(t.begun[target], at)
	}
}

// within returns when remediations were begun in the hour before now.
func (t *trials) within(now time.Time) []time.Time {
	all := slices.Concat(slices.Collect(maps.Values(t.begun))...)
	return slices.DeleteFunc(all, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
}

// observe notes which remediations of the group are under way, since when, and which targets are unavailable.
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
		case flies, unavailable[uid]: // given up, stalled, or unhealthy again before it was proven
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

// slow reports whether slowStart blocks one more remediation beside those claimed. until is when that may end; zero if it is not known.
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

// rate returns until when no more may begin, because most have begun within an hour; zero if one may.
func (t *trials) rate(most, claimed int, now time.Time) time.Time {
	begun := t.within(now)
	if len(begun)+claimed < most {
		return time.Time{}
	}
	return slices.MinFunc(append(begun, now), time.Time.Compare).Add(time.Hour) // with 0 none may begin; ask again in an hour
}
