package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// plainly is what memory.has finds, by looking at every entry.
func plainly(recorded []Entry, e Entry) bool {
	return slices.ContainsFunc(recorded, func(said Entry) bool {
		now := said.At.Sub(e.At).Abs() <= alike
		soon := now || said.At.Sub(e.latest()).Abs() <= alike
		quoted := telling(said.Text) && strings.Contains(e.Text, said.Text)
		return said.Object == e.Object && now && (said.Reason == e.Reason || e.Text != "" && mentions(said.Text, e.Text)) ||
			said.Object == e.Object && soon && quoted ||
			slices.Contains(ofEnds, e.Reason) && soon && slices.Contains(outcomes, said.Reason) ||
			e.Reason == mendv1.EventCapacityAwaited && !said.At.After(e.At) && quoted ||
			said.Text != "" && said.Reason == e.Reason && said.Text == e.Text && soon
	})
}

func TestWhatRecordsSayIsFoundWithoutLookingAtEachEntry(t *testing.T) {
	objects := []explain.Ref{{Kind: machineKind, Namespace: "metal", Name: "a"}, {Kind: machineKind, Namespace: "metal", Name: "b"}}
	texts := []string{"", "Machine a is deleting", "Machine a is deleting: 2 pods", "is back", "no host fits b", "metal: no host fits b, too", "a  b"}
	reasons := []string{"Draining", backReason, string(mendv1.RecordReplaced), mendv1.EventCapacityAwaited, mendv1.EventCapacityBack}
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Custom(func(t *rapid.T) Entry {
			at := func(label string) time.Time { return at(rapid.IntRange(0, 20).Draw(t, label) * 15) }
			return Entry{
				At: at("at"), Object: rapid.SampledFrom(objects).Draw(t, "object"), Reason: rapid.SampledFrom(reasons).Draw(t, "reason"),
				Text: rapid.SampledFrom(texts).Draw(t, "text"),
			}
		})
		recorded := rapid.SliceOfN(entry, 0, 4).Draw(t, "recorded")
		e := entry.Draw(t, "event")
		if rapid.Bool().Draw(t, "repeated") {
			e.Last = e.At.Add(rapid.SampledFrom([]time.Duration{0, alike, alike + 1, 3 * alike}).Draw(t, "until"))
		}
		if got, want := newMemory(recorded).has(e), plainly(recorded, e); got != want {
			t.Fatalf("it is said: %t, want %t", got, want)
		}
	})
}
