package workload

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// numbered is the cluster of that number.
func numbered(i int) client.ObjectKey {
	return client.ObjectKey{Namespace: "ns", Name: strconv.Itoa(i)}
}

// Each of them may keep five workers waiting for ten seconds: four of them, all that carry out power cycles.
func TestClustersThatFallSilentTogetherHoldNoMoreWorkersThanAFew(t *testing.T) {
	server := hangs(t)
	clusters, clock := gatedClusters(server)
	const silent = 6
	asking, giveUp := context.WithCancelCause(t.Context())
	ended := make(chan error, silent*atOnce)
	ask := func(cluster int) {
		_, err := clusters.NodesExist(asking, numbered(cluster), []string{"n"})
		ended <- err
	}
	for i := range silent * atOnce {
		go ask(i % silent)
	}
	eventually(t, "all are asking", func() bool { return server.asked.Load() == silent*atOnce && clock.Waiters() == silent*atOnce })
	clock.Step(queueWithin)
	for range silent*atOnce - mostWaiting {
		if err := <-ended; !errors.Is(err, errCrowded) || !errors.Is(err, ErrSilent) {
			t.Fatalf("one that is too many hears %v", err)
		}
	}
	crowd := clusters.Gates.crowd
	crowd.mu.Lock()
	left := map[*gate]int{}
	for _, w := range crowd.waits {
		left[w.at]++
	}
	crowd.mu.Unlock()
	for _, n := range left {
		if n > (mostWaiting+silent-1)/silent {
			t.Errorf("one cluster keeps %d of %d workers", n, mostWaiting)
		}
	}
	for i := range silent {
		if open, _ := clusters.Gates.silent(numbered(i), clock.Now()); !open {
			t.Errorf("cluster %d is asked again at once", i)
		}
	}
	giveUp(context.DeadlineExceeded)
	for range mostWaiting {
		if err := <-ended; errors.Is(err, errCrowded) {
			t.Errorf("one that is not too many hears %v", err)
		}
	}
	eventually(t, "all have ended", func() bool {
		crowd.mu.Lock()
		defer crowd.mu.Unlock()
		return len(crowd.waits) == 0 && clock.Waiters() == 0
	})
}

func TestAnAnswerThatHasBegunAndDoesNotEndIsGivenUpToo(t *testing.T) {
	var begun atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		begun.Add(1)
		<-r.Context().Done()
	}))
	defer server.Close()
	clock := testclock.NewFakeClock(noon.Time)
	clusters := NewClusters(&Gates{ClusterCache: oneServer{config: &rest.Config{Host: server.URL}}, Clock: clock, MostWaiting: 1})
	ended := make(chan error)
	asking, giveUp := context.WithCancel(t.Context())
	for i := range 2 {
		go func() {
			_, err := clusters.NodesExist(asking, numbered(i), []string{"n"})
			ended <- err
		}()
	}
	eventually(t, "both answers have begun", func() bool { return begun.Load() == 2 })
	clock.Step(queueWithin)
	if err := <-ended; !errors.Is(err, errCrowded) {
		t.Errorf("one of two hears %v", err)
	}
	giveUp()
	if err := <-ended; errors.Is(err, errCrowded) {
		t.Errorf("the other one hears %v", err)
	}
}

func TestARequestThatHasEndedIsNotGivenUp(t *testing.T) {
	c := &crowd{most: 1}
	w := &waiting{at: &gate{}, cut: func(error) { t.Error("it is given up") }}
	c.part(w)
	c.join(w) // its second has ended just now
	for range 2 {
		c.join(&waiting{at: w.at, cut: func(error) {}})
	}
	if len(c.waits) != 1 {
		t.Errorf("%d wait", len(c.waits))
	}
}

func TestAClusterThatIsSlowIsBehindThoseThatAreSilent(t *testing.T) {
	c := &crowd{most: 4}
	slow, silent := &gate{}, &gate{}
	kept, keep := context.WithCancelCause(t.Context())
	c.join(&waiting{at: slow, cut: keep})
	var givenUp int
	for range 10 {
		c.join(&waiting{at: silent, cut: func(error) { givenUp++ }})
	}
	if kept.Err() != nil || givenUp != 7 || len(c.waits) != c.most {
		t.Errorf("the slow one: %v; %d others were given up, and %d wait", kept.Err(), givenUp, len(c.waits))
	}
}

func TestAWatchThatHasBegunIsNotGivenUp(t *testing.T) {
	server := hangs(t)
	server.goOn()
	clusters, clock := gatedClusters(server)
	config, err := clusters.Gates.GetRESTConfig(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	through, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/nodes?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := through.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	clock.Step(time.Minute)
	if crowd := clusters.Gates.crowd; len(crowd.waits) != 0 || clock.Waiters() != 0 {
		t.Errorf("%d requests wait, and %d timers", len(crowd.waits), clock.Waiters())
	}
}
