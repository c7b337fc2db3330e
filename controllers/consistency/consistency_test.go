package consistency

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnObjectIsStaleUntilTheCacheShowsWhatWasWritten(t *testing.T) {
	at := func(uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
	}
	var w Writes
	for _, step := range []struct {
		name    string
		written string
		uid     types.UID
		cached  string
		want    bool
	}{
		{"what was never written is not", "", "u", "7", false},
		{"what was read before the write is", "12", "u", "7", true},
		{"and stays so", "", "u", "11", true},
		{"the write itself is not", "", "u", "12", false},
		{"nor what came after it", "", "u", "13", false},
		{"versions are numbers", "100", "u", "99", true},
		{"an older answer that comes later changes nothing", "98", "u", "99", true},
		{"another object of the name was not written", "", "other", "99", false},
	} {
		if step.written != "" {
			w.Note(at("u", step.written))
		}
		if got := w.Stale(at(step.uid, step.cached)); got != step.want {
			t.Errorf("%s: stale: %t", step.name, got)
		}
	}
}

func TestWhatNoCacheShowsIsPending(t *testing.T) {
	at := func(name, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version}}
	}
	var w Writes
	w.Note(at("a", "12"))
	w.Note(at("b", "13"))
	w.Stale(at("a", "11"))
	if got := len(w.Pending()); got != 2 {
		t.Errorf("%d are pending, want both", got)
	}
	w.Stale(at("a", "12"))
	if got := w.Pending(); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("%v are pending, want b", got)
	}
	w.Forget(client.ObjectKey{Name: "b"})
	if got := w.Pending(); len(got) != 0 {
		t.Errorf("%v are pending", got)
	}
}

func TestACacheThatStandsStillIsReadLessAndLessOften(t *testing.T) {
	for times, want := range map[int]time.Duration{0: Lag, 1: Lag, 2: 2 * Lag, 4: 8 * Lag, 7: 64 * Lag, 8: 64 * Lag, 1000: 64 * Lag} {
		if got := Wait(times); got != want {
			t.Errorf("found stale %d times in a row: again after %v, want %v", times, got, want)
		}
	}
}
