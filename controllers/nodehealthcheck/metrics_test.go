package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// oldest is what is exported of the oldest request of the check nhc; false if nothing is.
func oldest(t *testing.T) (time.Time, bool) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(oldestRequest)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "oldest" {
				return time.Unix(int64(m.GetGauge().GetValue()), 0), true
			}
		}
	}
	return time.Time{}, false
}

func TestTheOldestRequestIsExportedUntilTheCheckGoes(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), check("oldest"))...)
	k.settle("oldest")
	if at, exported := oldest(t); !exported || at.Unix() != 0 {
		t.Errorf("without requests %s, %t; want zero", at, exported)
	}
	k.bad("a")
	k.settle("oldest")
	first := k.clock.Now()
	k.clock.SetTime(first.Add(time.Hour))
	k.bad("b")
	k.settle("oldest")
	if at, _ := oldest(t); !at.Equal(first) || len(k.requests()) != 2 {
		t.Errorf("of the requests %v, the oldest is said to be of %s, want %s", k.requests(), at, first)
	}
	k.remove(k.check("oldest"))
	k.reconcile("oldest")
	if at, exported := oldest(t); exported {
		t.Errorf("without the check %s is exported, want nothing", at)
	}
}

// The requests of a check that is gone are no news of another one that has its name.
func TestWhatACheckHasLeftIsNoEndOfARemediationOfTheNextOne(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Replace", "replace", false), replacing("again", "first"))...)
	k.bad("b")
	k.settle("again")
	k.atWork()
	k.goes("again")
	k.reconcile("again")
	k.create(replacing("again", "second"))
	k.settle("again")
	if n := finished.DeletePartialMatch(prometheus.Labels{"name": "again"}); n > 0 || len(k.requests()) != 1 {
		t.Errorf("%d remediations of the check have ended, and the requests are %v", n, k.requests())
	}
}
