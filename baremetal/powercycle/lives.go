package powercycle

// A check deletes its request as soon as the node is Ready that lives on: what that proves of the host is noted before the end.
var (
	overAlive = is("over, node shows life, fenced by us", func(s situation) bool {
		return s.over() && s.livedOn() && !s.NewBoot && s.fencedHere() && s.patient()
	})
	overRefuted = is("over, node shows life after it was fenced", func(s situation) bool {
		return s.over() && refuted.holds(s)
	}).tells(ProofWrong)
	overWatched = guard{
		name: "over, node may live on", until: situation.watched,
		holds: func(s situation) bool {
			return s.over() && s.Lived && !s.NewBoot && s.Node == NodePresent && !s.past(s.watched())
		},
	}
)

// lives come before the endings in the states in which a fence that was put up by the proof may stand: the power cycle that follows would
// believe the same proof.
func lives(s State) []row {
	return []row{
		{overAlive, Unfence, s, SignOfLifeReason},
		{overRefuted, Disprove, Failed, SignOfLifeReason},
		{overWatched, Wait, s, WatchingForLifeReason},
	}
}
