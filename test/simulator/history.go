package simulator

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

// Power is what the power of a host was changed to.
type Power = bmo.Power

// What the power of a host can be changed to.
const (
	On    = bmo.On
	Off   = bmo.Off
	Reset = bmo.Reset
)

// PowerChange is one change that really happened to the power of a host, whether BMO knows of it or not.
type PowerChange = bmo.Change

// History is all that has happened to the power of a host, oldest first.
type History []PowerChange

// Since is the part of the history that is not older than that.
func (h History) Since(moment time.Time) History {
	return slices.DeleteFunc(slices.Clone(h), func(c PowerChange) bool { return c.At.Before(moment) })
}

// MostOff is how many of the hosts were off at the same moment, at most, for having been switched off.
func MostOff(histories ...History) int {
	type turn struct {
		at   time.Time
		more int
	}
	var turns []turn
	for _, history := range histories {
		off := false
		for _, change := range history {
			switch {
			case change.To == Off && !off:
				turns = append(turns, turn{change.At, 1})
			case change.To == On && off:
				turns = append(turns, turn{change.At, -1})
			}
			off = change.To == Off
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), a.more-b.more) })
	now, most := 0, 0
	for _, t := range turns {
		now += t.more
		most = max(most, now)
	}
	return most
}
