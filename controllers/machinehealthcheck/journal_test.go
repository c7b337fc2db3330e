package machinehealthcheck

import (
	"slices"
	"strconv"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAJournalTellsWhatWasNotedSinceOrThatItDoesNotKnow(t *testing.T) {
	var j journal
	one, other := client.ObjectKey{Name: "one"}, client.ObjectKey{Name: "other"}
	j.note(one, "before anybody asked")
	_, start, known := j.since(one, position{})
	if known || len(j.clusters[one].names) > 0 {
		t.Error("what was noted before anybody asked is known")
	}
	j.note(one, "a")
	j.note(other, "b")
	j.note(one, "c")
	names, next, known := j.since(one, start)
	if !known || !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("got %v, known: %t", names, known)
	}
	if names, _, known = j.since(one, next); !known || len(names) > 0 {
		t.Errorf("names that were returned already are returned again: %v", names)
	}
	if names, _, known = j.since(one, start); !known || len(names) != 2 {
		t.Errorf("another check that asks later gets %v", names)
	}
	if _, _, known = j.since(other, next); known {
		t.Error("a position in the journal of one cluster is known in that of another one")
	}
	for i := range 2 * mostEntries {
		j.note(one, strconv.Itoa(i))
	}
	if _, _, known = j.since(one, start); known {
		t.Error("what is not kept any more is known")
	}
	if names, _, known = j.since(one, position{next.in, next.at + mostEntries + 7}); !known || names[0] != strconv.Itoa(mostEntries+7) || len(names) != mostEntries-7 {
		t.Errorf("of what is kept, %d names are returned", len(names))
	}
	if kept := len(j.clusters[one].names); kept > 2*mostEntries {
		t.Errorf("%d names are kept", kept)
	}
	j.forget(one)
	if _, _, known = j.since(one, next); known {
		t.Error("of a cluster that was forgotten all is known")
	}
}
