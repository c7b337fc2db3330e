package controlplane

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// environment is a control plane as it really is: a member that runs has a vote. Only Against lets a member go, and one that went comes
// back, or dies.
type environment struct {
	plane Plane
	now   time.Time
}

func anyEnvironment(t *rapid.T) *environment {
	return &environment{now: noon, plane: Plane{API: Answers, Members: members(rapid.IntRange(1, 7).Draw(t, "members"))}}
}

// happens lets something happen to a member that is none of our doing, or ends what we have done.
func (w *environment) happens(t *rapid.T) {
	m := &w.plane.Members[rapid.IntRange(0, len(w.plane.Members)-1).Draw(t, "member")]
	switch rapid.SampledFrom([]string{"dies", "is switched off", "recovers", "is asked for", "is replaced", "has joined", "API"}).Draw(t, "event") {
	case "dies":
		dead(m)
	case "is switched off":
		switchedOff(m)
	case "recovers":
		if m.ReplacedBy == "" {
			*m = Member{Name: m.Name, Node: Alive, APIServer: rapid.SampledFrom([]Sign{Unknown, Alive}).Draw(t, "lease"), Due: m.Due}
		}
	case "is asked for":
		if m.Remediation == "" && m.Due.IsZero() {
			m.Due = w.now
		}
	case "is replaced":
		m.ReplacedBy, m.ReplacedSince = "Machine", w.now
	case "has joined":
		*m = Member{Name: m.Name, Node: Alive, APIServer: Alive}
	case "API":
		w.plane.API = rapid.SampledFrom([]API{Connecting, Answers, NoAnswer}).Draw(t, "api")
	}
}

// goes lets every member that waits and may go, go: all of them are asked before the first one has gone.
func (w *environment) goes(t *rapid.T) {
	var gone []int
	for i, m := range w.plane.Members {
		if !m.Due.IsZero() && len(w.plane.Against(m.Name, w.now)) == 0 {
			gone = append(gone, i)
		}
	}
	if len(gone) > 1 {
		t.Fatalf("members %v may go at once: %+v", gone, w.plane)
	}
	for _, i := range gone {
		if first := w.plane.First(w.now); first != w.plane.Members[i].Name {
			t.Fatalf("%q goes first, and another one may go: %+v", first, w.plane)
		}
		m, before := &w.plane.Members[i], w.votes()
		alive := m.Alive()
		m.Remediation, m.Began, m.Due = "power cycle", w.now, time.Time{}
		dead(m)
		needed := Majority(len(w.plane.Members))
		if w.plane.API == Answers && before >= needed && w.votes() < needed {
			t.Fatalf("%s may go, and of %d votes %d are left: %+v", m.Name, before, w.votes(), w.plane)
		}
		if needed > 0 && w.plane.API == Answers && alive && w.votes() < needed {
			t.Fatalf("%s was alive, and may go without a majority: %+v", m.Name, w.plane)
		}
	}
}

func (w *environment) votes() int {
	n := 0
	for _, m := range w.plane.Members {
		if m.Votes() {
			n++
		}
	}
	return n
}

func (w *environment) underway() (busy int) {
	for _, m := range w.plane.Members {
		if m.Remediation != "" {
			busy++
		}
	}
	return busy
}

func TestNeverTwoAtOnceAndNeverAMajorityLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyEnvironment(t)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			w.happens(t)
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 45).Draw(t, "minutes")) * time.Minute)
			w.goes(t)
			if n := w.underway(); n > 1 {
				t.Fatalf("%d members are being remediated: %+v", n, w.plane)
			}
		}
	})
}

// Whatever has happened: once nothing is under way and replacements have had their time, one of those that wait goes, unless all of them
// are alive and the majority needs them.
func TestSomebodyMayGoInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyEnvironment(t)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			w.happens(t)
		}
		w.now = w.now.Add(ReplacementPatience)
		if w.plane.API == Connecting {
			w.plane.API = NoAnswer // so much is known after a minute
		}
		waits, needless := 0, 0
		for _, m := range w.plane.Members {
			if m.Due.IsZero() {
				continue
			}
			waits++
			if needed := Majority(len(w.plane.Members)); m.Alive() && w.plane.API == Answers && votesWithout(w.plane.Members, m) < needed {
				needless++
			}
			if len(w.plane.Against(m.Name, w.now)) == 0 {
				return
			}
		}
		if waits > needless {
			t.Fatalf("%d wait, and none may go: %+v", waits, w.plane)
		}
	})
}
