package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The tests below run in bubbles of synctest: one ends only when every goroutine that was started in it has ended, and fails if one
// never does.

// server is the API server as its watches are seen from here.
type server struct {
	*fakeCluster
	refuses error
	hangs   bool

	mu      sync.Mutex
	streams []*watch.RaceFreeFakeWatcher
	since   []string // from which versions of lists the streams go on
	woken   []string
}

func (s *server) nodes() *Nodes {
	s.fakeCluster = &fakeCluster{config: &rest.Config{}}
	n := NewNodes(s, func(at Place) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.woken = append(s.woken, at.Cluster.Name+"/"+at.Node)
	})
	n.open = s.open
	return n
}

func (s *server) open(ctx context.Context, _ *rest.Config, _, since string) (watch.Interface, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.refuses != nil {
		return nil, s.refuses
	}
	stream := watch.NewRaceFreeFake()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams, s.since = append(s.streams, stream), append(s.since, since)
	return stream, nil
}

// reported are the nodes that were reported since the last call.
func (s *server) reported() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	woken := s.woken
	s.woken = nil
	return woken
}

// ended are the streams that were stopped.
func (s *server) ended() []bool {
	synctest.Wait()
	ended := make([]bool, 0, len(s.streams))
	for _, stream := range s.streams {
		ended = append(ended, stream.IsStopped())
	}
	return ended
}

// watching runs a test in a bubble, with nodes of the server, which are closed after it.
func watching(t *testing.T, s *server, play func(*testing.T, *Nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := s.nodes()
		defer n.Close()
		play(t, n)
	})
}

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func mustWatch(t *testing.T, n *Nodes, node string) {
	t.Helper()
	if err := n.Watch(t.Context(), cluster, node, Seen{}); err != nil {
		t.Fatal(err)
	}
}

// told is a pod of which only the metadata came, told to end within some seconds; none if negative.
func told(grace int64) *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if grace >= 0 {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	}
	return pod
}

func TestWhatIsReportedOfANode(t *testing.T) {
	s := &server{}
	watching(t, s, func(t *testing.T, n *Nodes) {
		mustWatch(t, n, "n")
		for _, tc := range []struct {
			name string
			send func(*watch.RaceFreeFakeWatcher)
			want []string
		}{
			{"a pod is there", func(w *watch.RaceFreeFakeWatcher) { w.Add(told(-1)) }, nil},
			{"a pod changes", func(w *watch.RaceFreeFakeWatcher) { w.Modify(told(-1)) }, nil},
			{"a pod is asked to end", func(w *watch.RaceFreeFakeWatcher) { w.Modify(told(30)) }, nil},
			{"a pod is deleted by force, and kept by a finalizer", func(w *watch.RaceFreeFakeWatcher) { w.Modify(told(0)) }, []string{"c/n"}},
			{"a pod is gone", func(w *watch.RaceFreeFakeWatcher) { w.Delete(told(-1)) }, []string{"c/n"}},
		} {
			tc.send(s.streams[0])
			same(t, tc.name, tc.want, s.reported())
		}
	})
}

func TestWatches(t *testing.T) {
	for name, play := range map[string]func(*testing.T, *server, *Nodes){
		"a watch goes on from what was seen, so that what has left meanwhile is reported": func(t *testing.T, s *server, n *Nodes) {
			if err := n.Watch(t.Context(), cluster, "n", Seen{pods: "17"}); err != nil {
				t.Fatal(err)
			}
			same(t, "versions", []string{"17"}, s.since)
		},
		"a watch is opened once": func(t *testing.T, s *server, n *Nodes) {
			for range 3 {
				mustWatch(t, n, "n")
			}
			mustWatch(t, n, "m")
			same(t, "streams that have ended", []bool{false, false}, s.ended())
		},
		"a watch outlives the pass that asked for it": func(t *testing.T, s *server, n *Nodes) {
			ctx, cancel := context.WithCancel(t.Context())
			if err := n.Watch(ctx, cluster, "n", Seen{}); err != nil {
				t.Fatal(err)
			}
			cancel()
			same(t, "streams that have ended", []bool{false}, s.ended())
			s.streams[0].Delete(told(-1))
			same(t, "reported", []string{"c/n"}, s.reported())
		},
		"other watches go on": func(t *testing.T, s *server, n *Nodes) {
			mustWatch(t, n, "n")
			mustWatch(t, n, "m")
			n.Unwatch(cluster, "n")
			n.Forget(client.ObjectKey{Namespace: "ns", Name: "another"})
			same(t, "streams that have ended", []bool{true, false}, s.ended())
		},
		"a watch that ends is not missed by who needs it no more": func(t *testing.T, s *server, n *Nodes) {
			mustWatch(t, n, "n")
			s.streams[0].Stop()
			synctest.Wait()
			n.Unwatch(cluster, "n")       // during the pause
			time.Sleep(2 * pauseAfterEnd) //nolint:forbidigo // the clock of the bubble
			same(t, "reported", nil, s.reported())
		},
		"a new connection gets a new watch": func(t *testing.T, s *server, n *Nodes) {
			mustWatch(t, n, "n")
			s.config = &rest.Config{}
			mustWatch(t, n, "n")
			same(t, "streams that have ended", []bool{true, false}, s.ended())
			s.streams[1].Delete(told(-1))
			same(t, "reported", []string{"c/n"}, s.reported())
		},
		"a cluster without a connection is not watched": func(t *testing.T, s *server, n *Nodes) {
			s.down = true
			mustWatch(t, n, "n")
			if len(s.streams) > 0 || n.watched(Place{cluster, "n"}) {
				t.Error("it is watched")
			}
		},
		"Close returns when nothing runs any more": func(t *testing.T, s *server, n *Nodes) {
			mustWatch(t, n, "n")
			mustWatch(t, n, "m")
			n.Unwatch(cluster, "m")
			n.Close()
			for i, stream := range s.streams {
				if !stream.IsStopped() { // only Close waits for it here
					t.Errorf("stream %d is still open", i)
				}
			}
		},
		"nothing is watched after Close": func(t *testing.T, s *server, n *Nodes) {
			n.Close()
			mustWatch(t, n, "n")
			if len(s.streams) > 0 {
				t.Error("a watch was opened")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			watching(t, s, func(t *testing.T, n *Nodes) { play(t, s, n) })
		})
	}
}

func TestAWatchEndsWhenToldTo(t *testing.T) {
	for name, end := range map[string]func(*Nodes){
		"unwatched":         func(n *Nodes) { n.Unwatch(cluster, "n") },
		"cluster forgotten": func(n *Nodes) { n.Forget(cluster) },
		"closed":            func(n *Nodes) { n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			watching(t, s, func(t *testing.T, n *Nodes) {
				mustWatch(t, n, "n")
				end(n)
				end(n) // to repeat it does no harm
				same(t, "streams that have ended", []bool{true}, s.ended())
				same(t, "reported", nil, s.reported())
				if n.watched(Place{cluster, "n"}) {
					t.Error("it is still watched")
				}
			})
		})
	}
}

// The end of a stream is reported like any other change, and the reconcile that follows opens the next one. Nothing is opened in between.
func TestAStreamThatEndsIsReportedAfterAPause(t *testing.T) {
	for name, end := range map[string]func(*watch.RaceFreeFakeWatcher){
		"the server ends it": func(w *watch.RaceFreeFakeWatcher) { w.Stop() },
		"the server tells of an error": func(w *watch.RaceFreeFakeWatcher) {
			w.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			watching(t, s, func(t *testing.T, n *Nodes) {
				mustWatch(t, n, "n")
				began := time.Now() //nolint:forbidigo // the clock of the bubble
				end(s.streams[0])
				same(t, "reported at once", nil, s.reported())
				mustWatch(t, n, "n")
				same(t, "streams that have ended", []bool{true}, s.ended()[:1])
				waitFor(t, func() bool { return !n.watched(Place{cluster, "n"}) })
				if pause := time.Since(began); pause != pauseAfterEnd { //nolint:forbidigo // the clock of the bubble
					t.Errorf("woken after %v, want %v", pause, pauseAfterEnd)
				}
				same(t, "reported", []string{"c/n"}, s.reported())
				mustWatch(t, n, "n")
				same(t, "number of streams", 2, len(s.streams))
			})
		})
	}
}

// waitFor lets the time of the bubble pass until something is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		synctest.Wait()
		if so() {
			return
		}
		<-tick.C
	}
	t.Fatal("it never came to that")
}

func TestAWatchThatCannotBeOpenedIsAnErrorAndLeavesNothing(t *testing.T) {
	refused := errors.New("refused")
	for name, s := range map[string]*server{"refused": {refuses: refused}, "no answer": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			watching(t, s, func(t *testing.T, n *Nodes) {
				if err := n.Watch(t.Context(), cluster, "n", Seen{}); err == nil {
					t.Error("no error")
				}
				if n.watched(Place{cluster, "n"}) {
					t.Error("it counts as watched")
				}
				s.refuses, s.hangs = nil, false
				mustWatch(t, n, "n")
				n.Close()
				same(t, "streams that have ended", []bool{true}, s.ended())
			})
		})
	}
}

// For the race detector, and for what is left running.
func TestManyAtOnce(t *testing.T) {
	s := &server{}
	watching(t, s, func(t *testing.T, n *Nodes) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				name := fmt.Sprintf("n%d", i%4)
				if err := n.Watch(t.Context(), cluster, name, Seen{}); err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					n.Unwatch(cluster, name)
				}
			})
		}
		all.Wait()
		n.Close()
		for i, ended := range s.ended() {
			if !ended {
				t.Errorf("stream %d goes on", i)
			}
		}
	})
}

func TestEventsThatAreNoPods(t *testing.T) {
	for _, e := range []watch.Event{{Type: watch.Bookmark, Object: &corev1.Pod{}}, {Type: watch.Modified}, {Type: watch.Modified, Object: &metav1.Status{}}} {
		if hasLeft(e) {
			t.Errorf("%s %T is reported", e.Type, e.Object)
		}
	}
}
