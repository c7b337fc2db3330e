package workload

import (
	"sync"
	"time"
)

const (
	// firstPauseOfList and longestPauseOfList are how long what was cut off is not asked for again.
	firstPauseOfList, longestPauseOfList = 10 * time.Second, 5 * time.Minute
	// mostPauses is how many are remembered of a cluster.
	mostPauses = 100
)

// pauses are what is not asked of one cluster for a while, by path, because the last answer was cut off. The server that has sent the one sends the next, and
// reflectors ask again within half a minute at the latest, for ever.
type pauses struct {
	mu sync.Mutex
	of map[string]pause
}

// pause is how long something is not asked for, and until when.
type pause struct {
	lasts time.Duration
	until time.Time
}

// rests reports whether path is not asked for at now.
func (p *pauses) rests(path string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.of[path].until)
}

// cutOff notes that an answer for path was cut off at now. The pauses grow, until nothing was cut off for a while.
func (p *pauses) cutOff(path string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.of[path]
	if now.Before(before.until) { // another one that was under way
		return
	}
	next := pause{lasts: firstPauseOfList}
	if known && now.Sub(before.until) < calm {
		next.lasts = min(2*before.lasts, longestPauseOfList)
	}
	next.until = now.Add(next.lasts)
	if p.of == nil || len(p.of) >= mostPauses {
		p.of = map[string]pause{}
	}
	p.of[path] = next
}
