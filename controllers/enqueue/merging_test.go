package enqueue

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func called(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// Moments are milliseconds. Looks are those that events make due; the queue has a check once, so that those at the same moment are one.
func TestWhenEventsAreLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		events []int
		looks  []int
	}{
		"a change that comes alone is looked at at once":          {[]int{0}, []int{0}},
		"so is the next one, when the check was quiet":            {[]int{0, 100}, []int{0, 100}},
		"what follows within the window is merged":                {[]int{0, 1, 50, 99}, []int{0, 100, 100, 100}},
		"a burst is a look for each window":                       {[]int{0, 30, 60, 90, 120, 150, 180, 210}, []int{0, 100, 100, 100, 200, 200, 200, 300}},
		"a merged look is no quiet time":                          {[]int{0, 50, 150}, []int{0, 100, 200}},
		"after it a change is looked at at once again":            {[]int{0, 50, 200}, []int{0, 100, 200}},
		"many at the very same moment are looked at at that time": {[]int{0, 0, 0}, []int{0, 100, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			var m Merging
			var looks []int
			for _, ms := range tc.events {
				at := noon.Add(time.Duration(ms) * time.Millisecond)
				looks = append(looks, int(at.Add(m.wait(called("check"), at)).Sub(noon).Milliseconds()))
			}
			if diff := cmp.Diff(tc.looks, looks); diff != "" {
				t.Errorf("looks (-want +got):\n%s", diff)
			}
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
	if len(m.looks) != 1 {
		t.Errorf("%d checks are remembered, want the last one alone", len(m.looks))
	}
}
