package powercycle

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	thorough = flag.Bool("walk.thorough", false, "visit all situations, some four million, in minutes")
	seed     = flag.Uint64("walk.seed", rand.Uint64(), "which situations are visited, if that are not all")
)

// situations is how many situations the test visits; they take about a second.
const situations = 12_000

// walk visits each situation once, and fails the test if a rule is broken or if no end is reached.
type walk struct {
	t    *testing.T
	seen map[[21]byte]bool
	// settled are the situations from which an end is reached, in an environment that obeys (true) and in one that does not.
	settled map[bool]map[[21]byte]bool
	states  map[State]bool
}

// visit reports whether a situation is new, and checks it.
func (w *walk) visit(s scene) bool {
	w.t.Helper()
	k := s.key()
	if w.seen[k] {
		return false
	}
	w.seen[k], w.states[s.f.State] = true, true
	if _, step := s.stepped(); wrong(s, step) != "" {
		w.t.Fatalf("%s: %s -> %s\n%+v", wrong(s, step), s.f.State, step.Do, s)
	}
	quiet := s
	quiet.disturbances = 0
	for obeys, known := range w.settled {
		if undone := quiet.settles(obeys, known); undone != "" {
			w.t.Fatalf("in an environment that obeys (%t): %s\nfrom %+v", obeys, undone, s)
		}
	}
	return true
}

// starts returns the scenes in which a remediation begins.
func starts() []scene {
	var all []scene
	for _, change := range []func(*Facts){func(*Facts) {}, controlPlane, cannotBeOff, off, wellNow, noNode, blind, paused} {
		for _, cured := range []bool{true, false} {
			f := Facts{Power: Power{Wanted: true, PoweredOn: true, Provable: true}, Node: NodePresent, Looked: true}
			change(&f)
			f.State = Pending
			all = append(all, scene{f: f, cured: cured, disturbances: 2, rising: !f.PoweredOn})
		}
	}
	return all
}

// undisturbed returns the scenes that follow without a disturbance.
func (s scene) undisturbed() []scene {
	next, _ := s.stepped()
	return append(s.obeyed(), next, s.later().normal())
}

// possible removes contradictions from the scene.
func (s scene) possible() scene {
	if s.f.Machine == MachineGone {
		s.f.Healthy = false
	}
	return s
}

// everywhere visits all situations.
func (w *walk) everywhere() {
	w.t.Helper()
	for todo := starts(); len(todo) > 0; {
		s := todo[len(todo)-1].possible()
		todo = todo[:len(todo)-1]
		if w.visit(s) {
			todo = append(append(todo, s.undisturbed()...), s.disturbed()...)
		}
	}
}

// anywhere walks from start to end at random, until it has visited so many situations.
func (w *walk) anywhere(dice *rand.Rand, situations int) {
	w.t.Helper()
	for all := starts(); len(w.seen) < situations; {
		s := all[dice.IntN(len(all))]
		for range 100 {
			w.visit(s.possible())
			follow := s.undisturbed
			if s.disturbances > 0 && dice.IntN(8) == 0 {
				follow = s.disturbed
			}
			next := follow()
			s = next[dice.IntN(len(next))]
		}
	}
}

func TestEveryOrderOfEventsLeadsToAnEndThatHasReleasedTheHost(t *testing.T) {
	w := &walk{t: t, seen: map[[21]byte]bool{}, settled: map[bool]map[[21]byte]bool{true: {}, false: {}}, states: map[State]bool{}}
	if *thorough {
		w.everywhere()
	} else {
		t.Logf("with -walk.seed %d", *seed)
		w.anywhere(rand.New(rand.NewPCG(*seed, 0)), situations)
	}
	for _, s := range order {
		if !w.states[s] {
			t.Errorf("%s is never reached", s)
		}
	}
	t.Logf("%d situations", len(w.seen))
}
