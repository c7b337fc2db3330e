package budget

import "time"

// Storm is the state of a storm: too many nodes of a NodeHealthCheck with a stormCooldownDuration are or recently were not healthy.
//
// After a common cause, such as a broken switch, is fixed, the nodes recover one by one. Without a cooldown, kubemend would remediate the
// slow nodes as soon as the limits allow it again.
type Storm struct {
	// Active says that a storm goes on or is cooling down.
	Active bool
	// CoolingSince is when the limits allowed remediation again; zero while they do not, and without a storm.
	CoolingSince time.Time
}

// StormTurn is a change of a storm that users are informed about.
type StormTurn int

const (
	// StormUnchanged means that there is no news. If too many nodes are unhealthy again during the cooldown, the storm just goes on.
	StormUnchanged StormTurn = iota
	// StormBegan means that too many nodes are unhealthy now.
	StormBegan
	// StormCooling means that the limits allow remediation again and the cooldown begins.
	StormCooling
	// StormEnded means that remediations may start again.
	StormEnded
)

// StormStep is a storm after one more reconcile.
type StormStep struct {
	Storm
	// Blocks says that no new remediation may start because of the storm. It is never set without a cooldown: then the limits alone block.
	Blocks bool
	// Recheck is when the cooldown is over; zero if no cooldown goes on.
	Recheck time.Time
	Turn    StormTurn
}

// Next returns the storm after a reconcile at now. Call it in every reconcile, also when no node is unhealthy: otherwise a storm would not
// end, and the next, unrelated failure would wait for the whole cooldown (weakness W11).
//
// cooldown is the spec's stormCooldownDuration: without it a storm ends at once, and if it changes the end moves. tooMany says that the
// limits short-circuit and a node is unhealthy.
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

// over returns the step that ends s.
func over(s Storm) StormStep {
	if s.Active {
		return StormStep{Turn: StormEnded}
	}
	return StormStep{}
}
