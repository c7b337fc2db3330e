package enqueue

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func called(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// Times are in milliseconds. For each event, due has the time of the reconcile. Equal times are one reconcile, because the queue has a
// check only once.
func TestWhenEventsAreLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		events []int
		due    []int
	}{
		"a single change is reconciled at once":                 {[]int{0}, []int{0}},
		"so is the next one, when the check was quiet":          {[]int{0, 100}, []int{0, 100}},
		"what follows within the window is merged":              {[]int{0, 1, 50, 99}, []int{0, 100, 100, 100}},
		"a burst is one reconcile for each window":              {[]int{0, 30, 60, 90, 120, 150, 180, 210}, []int{0, 100, 100, 100, 200, 200, 200, 300}},
		"a merged reconcile is no quiet time":                   {[]int{0, 50, 150}, []int{0, 100, 200}},
		"after quiet time a change is reconciled at once again": {[]int{0, 50, 200}, []int{0, 100, 200}},
		"many at the very same moment are reconciled once":      {[]int{0, 0, 0}, []int{0, 100, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			var m Merging
			var due []int
			for _, ms := range tc.events {
				at := noon.Add(time.Duration(ms) * time.Millisecond)
				due = append(due, int(at.Add(m.wait(called("check"), at)).Sub(noon).Milliseconds()))
			}
			must.Equal(t, tc.due, due, "due")
		})
	}
}

func TestChecksAreMergedEachByItself(t *testing.T) {
	var m Merging
	m.wait(called("a"), noon)
	if wait := m.wait(called("b"), noon.Add(time.Millisecond)); wait != 0 {
		t.Errorf("the first change of a check waits %s because of another one's", wait)
	}
}

func TestQuietChecksAreForgotten(t *testing.T) {
	var m Merging
	for i := range 1000 {
		m.wait(called(strconv.Itoa(i)), noon)
	}
	m.wait(called("last"), noon.Add(time.Hour))
	if len(m.due) != 1 {
		t.Errorf("%d checks are remembered, want the last one alone", len(m.due))
	}
}
