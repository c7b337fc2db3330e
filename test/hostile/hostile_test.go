package hostile

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// managersWorkers is the default of --machinehealthcheck-concurrency.
const managersWorkers = 50

// patience is that of all tests here. Only one that fails takes this long: without the bounds no healthy cluster is looked at again.
const patience = 8 * time.Minute

var allHostile = slices.Sorted(maps.Keys(Hostilities))

// mostAtOnce is how many requests are open at a hostile server at the same time: five of reconciles, one to see whether it
// answers again, and those of the cache of nodes, which holds no worker.
const mostAtOnce = 5 + 1 + 2

// Each hostile cluster has more checks than there are workers, and each of these has something to ask of it. A worker that
// waits for an answer is away for 10 s. Unbounded, all of them are, again and again.
func TestHostileClustersBlockNoWorkerThatOthersNeed(t *testing.T) {
	const clusters = 4
	f := newFleet(t, clusters, 2*managersWorkers, allHostile...)
	f.work(managersWorkers)
	f.healthy(clusters)
	eventually(t, "the hostile servers are asked", func() bool { return f.hostilesAsked() >= 2 })
	for i := range clusters {
		f.marks(i)
	}
	for name, s := range f.servers {
		s.mu.Lock()
		if s.most > mostAtOnce {
			t.Errorf("%s: %d requests were open at the same time, want %d at most", name, s.most, mostAtOnce)
		}
		s.mu.Unlock()
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		t.Fatalf("not so: %s", what)
	}
}

// hostilesAsked is how many hostile servers were asked for something that they do not answer.
func (f *fleet) hostilesAsked() int {
	asked := 0
	for name, s := range f.servers {
		if name[:len("hostile")] == "hostile" && s.asked.Load() > 0 {
			asked++
		}
	}
	return asked
}
