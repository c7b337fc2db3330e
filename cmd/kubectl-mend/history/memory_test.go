package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// How long it takes to put a history together of all that a namespace has: each event is looked for among all entries of all records.
func BenchmarkOf(b *testing.B) {
	for _, records := range []int{3000, 30_000} {
		b.Run(strconv.Itoa(records), func(b *testing.B) {
			o := Objects{Now: at(60 * records)}
			for i := range records {
				r := replaced()
				r.Name, r.Spec.Decided = fmt.Sprint("r", i), stamp(60*i)
				r.Spec.Target.Machine = &mendv1.RecordRef{Kind: machineKind, Namespace: "metal", Name: fmt.Sprint("m", i)}
				r.Status.Steps = nil
				for n := range 8 {
					r.Status.Steps = append(r.Status.Steps, mendv1.RecordStep{Time: r.Spec.Decided, Reason: fmt.Sprint("Step", n), Message: fmt.Sprint("what has happened to Machine m", i)})
				}
				o.Records = append(o.Records, r)
			}
			for i := range 2000 {
				o.Events = append(o.Events, eventsv1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: fmt.Sprint("e", i)}, EventTime: metav1.NewMicroTime(at(60 * i)), ReportingController: "kubemend",
					Regarding: corev1.ObjectReference{Kind: machineCheckKind, Namespace: "metal", Name: "workers"}, Reason: mendv1.EventCapacityAwaited,
					Note: fmt.Sprintf("The capacity of Machine m%d is not back: waits for a host that fits. To do: add one, or wait until one is free", i),
				})
			}
			for b.Loop() {
				if got := len(Of(o, Scope{Namespace: "metal"})); got < 9*records {
					b.Fatalf("%d entries", got)
				}
			}
		})
	}
}
