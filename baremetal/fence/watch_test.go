package fence

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The tests below run in bubbles of synctest: one ends only when every goroutine that was started in it has ended, and fails if one
// never does.

// server is the API server as its pods are seen from here.
type server struct {
	*fakeCluster
	pods *cachetesting.FakeControllerSource

	mu    sync.Mutex
	asked []string // nodes for which informers were made
	woken []string
}

// watching runs a test in a bubble, with nodes of a server that has one pod, which are closed after it.
func watching(t *testing.T, play func(*testing.T, *server, *Nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{fakeCluster: &fakeCluster{config: &rest.Config{}}, pods: cachetesting.NewFakeControllerSource()}
		s.pods.Add(told(-1))
		n := NewNodes(s, func(at Place) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.woken = append(s.woken, at.Cluster.Name+"/"+at.Node)
		})
		n.pods = func(_ *rest.Config, node string) (toolscache.SharedIndexInformer, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked = append(s.asked, node)
			return toolscache.NewSharedIndexInformer(s.pods, &metav1.PartialObjectMetadata{}, 0, nil), nil
		}
		defer s.pods.Shutdown()
		defer n.Close()
		play(t, s, n)
	})
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

// watches makes sure that a node is watched, and waits for the first report.
func (s *server) watches(t *testing.T, n *Nodes, node string) {
	t.Helper()
	must.Do(t, n.Watch(t.Context(), cluster, node))
	s.reported()
}

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	must.Equal(t, want, got, "%s", what)
}

// told is a pod of which only the metadata came, told to end within some seconds; none if negative.
func told(grace int64) *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
	if grace >= 0 {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	}
	return pod
}

func TestWhatIsReportedOfANode(t *testing.T) {
	watching(t, func(t *testing.T, s *server, n *Nodes) {
		for _, tc := range []struct {
			name string
			do   func()
			want []string
		}{
			{"what has left before", func() { _ = n.Watch(t.Context(), cluster, "n") }, []string{"c/n"}},
			{"a pod is there", func() { s.pods.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "q"}}) }, nil},
			{"a pod changes", func() { s.pods.Modify(told(-1)) }, nil},
			{"a pod is asked to end", func() { s.pods.Modify(told(30)) }, nil},
			{"a pod is deleted by force, and kept by a finalizer", func() { s.pods.Modify(told(0)) }, []string{"c/n"}},
			{"a pod is gone", func() { s.pods.Delete(told(0)) }, []string{"c/n"}},
		} {
			tc.do()
			same(t, tc.name, tc.want, s.reported())
		}
	})
}

func TestWatches(t *testing.T) {
	for name, play := range map[string]func(*testing.T, *server, *Nodes){
		"a node is watched once": func(t *testing.T, s *server, n *Nodes) {
			for range 3 {
				s.watches(t, n, "n")
			}
			s.watches(t, n, "m")
			same(t, "watched", []string{"n", "m"}, s.asked)
		},
		"a watch outlives the reconcile that asked for it": func(t *testing.T, s *server, n *Nodes) {
			ctx, cancel := context.WithCancel(t.Context())
			must.Do(t, n.Watch(ctx, cluster, "n"))
			s.reported()
			cancel()
			s.pods.Delete(told(-1))
			same(t, "reported", []string{"c/n"}, s.reported())
		},
		"other watches go on": func(t *testing.T, s *server, n *Nodes) {
			s.watches(t, n, "n")
			s.watches(t, n, "m")
			n.Unwatch(cluster, "n")
			n.Forget(client.ObjectKey{Namespace: "ns", Name: "another"})
			s.pods.Delete(told(-1))
			same(t, "reported", []string{"c/m"}, s.reported())
		},
		"a new connection gets a new watch": func(t *testing.T, s *server, n *Nodes) {
			s.watches(t, n, "n")
			s.config = &rest.Config{}
			s.watches(t, n, "n")
			same(t, "watched", []string{"n", "n"}, s.asked)
			s.pods.Delete(told(-1))
			same(t, "reported", []string{"c/n"}, s.reported())
		},
		"a cluster without a connection is not watched": func(t *testing.T, s *server, n *Nodes) {
			s.down = true
			s.watches(t, n, "n")
			if len(s.asked) > 0 || n.watched(Place{cluster, "n"}) {
				t.Error("it is watched")
			}
		},
		"nothing is watched after Close": func(t *testing.T, s *server, n *Nodes) {
			n.Close()
			s.watches(t, n, "n")
			same(t, "watched", nil, s.asked)
		},
	} {
		t.Run(name, func(t *testing.T) { watching(t, play) })
	}
}

func TestAWatchEndsWhenToldTo(t *testing.T) {
	for name, end := range map[string]func(*Nodes){
		"unwatched":         func(n *Nodes) { n.Unwatch(cluster, "n") },
		"cluster forgotten": func(n *Nodes) { n.Forget(cluster) },
		"closed":            func(n *Nodes) { n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(t *testing.T, s *server, n *Nodes) {
				s.watches(t, n, "n")
				end(n)
				end(n) // to repeat it does no harm
				s.pods.Delete(told(-1))
				same(t, "reported", nil, s.reported())
				if n.watched(Place{cluster, "n"}) {
					t.Error("it is still watched")
				}
			})
		})
	}
}

// For the race detector, and for what is left running.
func TestManyAtOnce(t *testing.T) {
	watching(t, func(t *testing.T, _ *server, n *Nodes) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				name := fmt.Sprintf("n%d", i%4)
				if err := n.Watch(t.Context(), cluster, name); err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					n.Unwatch(cluster, name)
				}
			})
		}
		all.Wait()
	})
}

func TestWhatIsNoPodWasNotDeletedByForce(t *testing.T) {
	for _, obj := range []any{nil, &metav1.Status{}, told(-1), told(1)} {
		if forced(obj) {
			t.Errorf("%v was", obj)
		}
	}
}

// asked answers as an API server that does not tell a list as a watch, and has one pod. It notes how long each request may take.
type asked struct {
	mu       sync.Mutex
	timeouts []string
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	a.mu.Lock()
	a.timeouts = append(a.timeouts, query.Get("timeout"))
	a.mu.Unlock()
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	content := `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[
		{"metadata":{"namespace":"ns","name":"p","uid":"u","annotations":{"a":"much"}}}]}`
	switch {
	case query.Get("sendInitialEvents") == "true":
		answer.StatusCode = http.StatusUnprocessableEntity
		content = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`
	case query.Has("watch"):
		body, end := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = end.Close() })
		answer.Body = body
		return answer, nil
	}
	answer.Body = io.NopCloser(strings.NewReader(content))
	return answer, nil
}

func TestPodsAreAskedForAsOfACacheForWhichNoWorkerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &asked{}
		pods, err := newPods(&rest.Config{Host: "http://there", Transport: server, Timeout: 10 * time.Second}, "n")
		must.Do(t, err)
		ctx, end := context.WithCancel(t.Context())
		go pods.RunWithContext(ctx)
		if !toolscache.WaitFor(ctx, "", pods.HasSyncedChecker()) {
			t.Fatal("the pods were not read")
		}
		synctest.Wait() // until it watches
		kept := pods.GetStore().List()
		end()
		synctest.Wait()
		if len(kept) != 1 {
			t.Fatalf("kept: %v", kept)
		}
		if pod := kept[0].(*metav1.PartialObjectMetadata); pod.UID != "u" || pod.Annotations != nil {
			t.Errorf("more is kept of a pod than what tells that it leaves: %v", pod)
		}
		for _, timeout := range server.timeouts {
			if d, err := time.ParseDuration(timeout); err != nil || d < time.Minute {
				t.Errorf("a request may take %q", timeout)
			}
		}
	})
}

// A server can invent pods with every watch, without end.
func TestANodeWithMorePodsThanAreReadIsNotWatched(t *testing.T) {
	watching(t, func(t *testing.T, s *server, n *Nodes) {
		var pods toolscache.SharedIndexInformer
		n.pods = func(*rest.Config, string) (toolscache.SharedIndexInformer, error) {
			pods = toolscache.NewSharedIndexInformer(s.pods, &metav1.PartialObjectMetadata{}, 0, nil)
			return pods, nil
		}
		s.watches(t, n, "n")
		for i := range mostPages * podsPerPage {
			s.pods.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}})
			if i%50 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if !pods.IsStopped() {
			t.Errorf("%d pods are kept", len(pods.GetStore().ListKeys()))
		}
	})
}
