package policy

import (
	"maps"
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

// trials are the remediations of a group that were begun: how many within an hour, and, for slowStart, how they turn out. They are
// forgotten with the process, which makes slowStart careful.
type trials struct {
	begun map[types.UID]time.Time
	// unproven are those that were begun, and when their capacity was back; zero while it is not.
	unproven map[types.UID]time.Time
	// width is how many unproven ones there may be, 0 for the first one; pause is how long nothing began after the last failure, and
	// until when.
	width int
	pause time.Duration
	until time.Time
}

// observe takes in which remediations of a group are under way, by when they began, and which targets are unavailable.
func (t *trials) observe(flying map[types.UID]time.Time, unavailable map[types.UID]bool, now time.Time) {
	if t.begun == nil {
		t.begun, t.unproven = map[types.UID]time.Time{}, map[types.UID]time.Time{}
	}
	maps.DeleteFunc(t.begun, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= time.Hour })
	for uid, at := range flying {
		if _, known := t.unproven[uid]; !known {
			t.unproven[uid] = time.Time{}
			if now.Sub(at) < time.Hour {
				t.begun[uid] = at
			}
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
	if len(t.begun)+claimed < most {
		return time.Time{}
	}
	oldest := now // with 0 none may begin, and it is asked again
	for _, at := range t.begun {
		oldest = health.Earliest(oldest, at)
	}
	return oldest.Add(time.Hour)
}
