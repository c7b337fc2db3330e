package budget

import "time"

// Storm is what a NodeHealthCheck with a stormCooldownDuration remembers of the last time when too many nodes were not healthy.
//
// A common cause, such as a broken switch, ends at one moment, and the nodes are healthy again one by one. Without a cooldown those that
// are slow would be remediated as soon as few enough are left.
type Storm struct {
	// Active says that there is one, or that one is cooling down.
	Active bool
	// CoolingSince is when few enough nodes were unhealthy again; zero while there are too many, and without a storm.
	CoolingSince time.Time
}

// StormTurn is what there is to tell about a storm.
type StormTurn int

const (
	// StormUnchanged has nothing to tell. A storm that is back while it was cooling down has not ended, so that is no news either.
	StormUnchanged StormTurn = iota
	// StormBegan means that too many nodes are unhealthy now.
	StormBegan
	// StormCooling means that few enough nodes are unhealthy again and the cooldown begins.
	StormCooling
	// StormEnded means that remediations may start again.
	StormEnded
)

// StormStep is a storm after one more reconcile.
type StormStep struct {
	Storm
	// Blocks says that nothing new may start because of the storm. While there are too many unhealthy nodes the limits say so
	// as well; they alone do where no cooldown is configured, which never blocks.
	Blocks bool
	// Recheck is when the cooldown is over; zero if time alone changes nothing.
	Recheck time.Time
	Turn    StormTurn
}

// Next returns what becomes of s at now. It has to be called in every reconcile, also when no node is unhealthy: a storm that is not looked
// at does not end, and would hold up the next, unrelated failure for the whole cooldown (weakness W11).
//
// cooldown is the spec's stormCooldownDuration: without one any storm ends at once, and with a changed one the end moves. tooMany says that
// the limits short-circuit, as Grant does: never when no node is unhealthy.
func (s Storm) Next(cooldown *time.Duration, tooMany bool, now time.Time) StormStep {
	switch {
	case cooldown == nil:
		return over(s)
	case tooMany:
		turn := StormUnchanged
		if !s.Active {
			turn = StormBegan
		}
		return StormStep{Storm: Storm{Active: true}, Blocks: true, Turn: turn}
	case !s.Active:
		return over(s)
	}
	turn := StormUnchanged
	if s.CoolingSince.IsZero() {
		s.CoolingSince, turn = now, StormCooling
	}
	due := s.CoolingSince.Add(*cooldown)
	if !now.Before(due) {
		return over(s)
	}
	return StormStep{Storm: s, Blocks: true, Recheck: due, Turn: turn}
}

// over is the step after which there is no storm.
func over(s Storm) StormStep {
	if s.Active {
		return StormStep{Turn: StormEnded}
	}
	return StormStep{}
}
