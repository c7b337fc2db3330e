package hostile

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/workload"
)

// managersWorkers is the default of --machinehealthcheck-concurrency.
const managersWorkers = 50

var allHostile = slices.Sorted(maps.Keys(Hostilities))

// mostAtOnce is how many requests are open at a hostile server at the same time: five of reconciles, one to see whether it answers again, and those of the
// cache of nodes, which holds no worker.
const mostAtOnce = 5 + 1 + 2

// Each hostile cluster has more checks than there are workers, and each of these has something to ask of it. A worker that waits for an answer is away for
// 10 s. Unbounded, all of them are, again and again.
func TestHostileClustersBlockNoWorkerThatOthersNeed(t *testing.T) {
	const clusters = 4
	f := newFleet(t, clusters, 2*managersWorkers, allHostile...)
	f.work(managersWorkers)
	f.healthy(clusters)
	eventually(t, "the hostile servers are asked", func() bool { return f.hostilesAsked() >= 2 })
	for i := range clusters {
		f.timeToMark(i)
	}
	for name, s := range f.servers {
		s.mu.Lock()
		if s.most > mostAtOnce {
			t.Errorf("%s: %d requests were open at the same time, want %d at most", name, s.most, mostAtOnce)
		}
		s.mu.Unlock()
	}
}

// One cluster may keep five workers for 10 s. As many clusters as keep all of them are not tenants that know this, but a switch that is lost.
func TestManySilentClustersBlockNoWorkerThatOthersNeed(t *testing.T) {
	const clusters, silent = 2, 12
	f := newFleet(t, clusters, 10, slices.Repeat([]string{"hangs on every verb"}, silent)...)
	f.work(managersWorkers)
	f.healthy(clusters)
	eventually(t, "the hostile servers are asked", func() bool { return f.hostilesAsked() == silent })
	for i := range clusters {
		if took := f.timeToMark(i); took > workload.AnswerWithin/2 {
			t.Errorf("a machine is marked after %s", took)
		}
	}
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return so(), nil })
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

// BenchmarkTimeToMark measures what docs/reliability.md aims at, with 20 checks of each hostile cluster. It needs a machine that does nothing else: go test ./test/hostile -run '^$' -bench . -benchtime 3x.
func BenchmarkTimeToMark(b *testing.B) {
	for name, hostile := range map[string][]string{"50 healthy clusters": nil, "50 healthy clusters and 3 hostile": allHostile} {
		b.Run(name, func(b *testing.B) {
			log.SetLogger(logr.Discard())
			var took []time.Duration
			var most uint64
			for b.Loop() {
				const clusters, marks = 50, 1000
				f := newFleet(b, clusters, 20, hostile...)
				f.work(managersWorkers)
				f.healthy(clusters)
				ended := make(chan struct{})
				peak := make(chan uint64)
				go func() { peak <- peakOfMemory(ended) }()
				runtime.GC()
				next := time.NewTicker(20 * time.Millisecond) // so that it lasts for as long as hostile servers need to do their worst
				for i := range marks {
					took = append(took, f.timeToMark(i%clusters))
					<-next.C
				}
				close(ended)
				most = max(most, <-peak)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(most)/(1<<20), "MiB")
		})
	}
}

// peakOfMemory is the most memory that the process has in use until ended, as Go's runtime counts it.
func peakOfMemory(ended <-chan struct{}) uint64 {
	var most uint64
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse+m.StackInuse)
		select {
		case <-ended:
			return most
		case <-time.After(20 * time.Millisecond):
		}
	}
}
