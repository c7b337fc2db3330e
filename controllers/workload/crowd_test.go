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
	clusters, clock := gatedClusters(at(server.Server), 0)
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
	clock.Step(slowAfter)
	for range silent*atOnce - mostWaiting {
		if err := <-ended; !errors.Is(err, errCrowded) || !errors.Is(err, ErrSilent) {
			t.Fatalf("one that is too many hears %v", err)
		}
	}
	left := map[*gate]int{}
	clusters.Kubeconfigs.Transports.gates.mu.Lock()
	for _, r := range clusters.Kubeconfigs.Transports.gates.slow {
		left[r.gate]++
	}
	clusters.Kubeconfigs.Transports.gates.mu.Unlock()
	for _, n := range left {
		if n > (mostWaiting+silent-1)/silent {
			t.Errorf("one cluster keeps %d of %d workers", n, mostWaiting)
		}
	}
	for i := range silent {
		if open, _ := clusters.silent(numbered(i), clock.Now()); !open {
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
		clusters.Kubeconfigs.Transports.gates.mu.Lock()
		defer clusters.Kubeconfigs.Transports.gates.mu.Unlock()
		return len(clusters.Kubeconfigs.Transports.gates.slow) == 0 && clock.Waiters() == 0
	})
}

func TestAnAnswerThatHasBegunAndDoesNotEndIsGivenUpToo(t *testing.T) {
	var begun atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, "")
		_ = http.NewResponseController(w).Flush()
		begun.Add(1)
		<-r.Context().Done()
	}))
	defer server.Close()
	clusters, clock := gatedClusters(at(server), 1)
	ended := make(chan error)
	asking, giveUp := context.WithCancel(t.Context())
	for i := range 2 {
		go func() {
			_, err := clusters.NodesExist(asking, numbered(i), []string{"n"})
			ended <- err
		}()
	}
	eventually(t, "both answers have begun", func() bool { return begun.Load() == 2 })
	clock.Step(slowAfter)
	if err := <-ended; !errors.Is(err, errCrowded) {
		t.Errorf("one of two hears %v", err)
	}
	giveUp()
	if err := <-ended; errors.Is(err, errCrowded) {
		t.Errorf("the other one hears %v", err)
	}
}

// gatesOf are gates of so many slow requests, and some of them.
func gatesOf(most int) (*gates, []*gate) {
	return &gates{clock: testclock.NewFakeClock(noon.Time), most: most}, []*gate{&newAnswers(numbered(0)).gate, &newAnswers(numbered(1)).gate}
}

// sendTo sends a request through a gate, which must let it, and returns the context that ends if it is given up.
func sendTo(t *testing.T, gates *gates, at *gate) (*request, context.Context) {
	t.Helper()
	ctx, cut := context.WithCancelCause(t.Context())
	sent, err := gates.enter(ctx, at, cut)
	if err != nil {
		t.Fatal(err)
	}
	return sent, ctx
}

func TestARequestThatHasEndedIsNotGivenUp(t *testing.T) {
	gates, at := gatesOf(1)
	ended, kept := sendTo(t, gates, at[0])
	gates.leave(ended, nil)
	gates.becomesSlow(ended) // its second has ended just now
	other, _ := sendTo(t, gates, at[0])
	gates.becomesSlow(other)
	if len(gates.slow) != 1 || kept.Err() != nil {
		t.Errorf("%d wait, and that which has ended: %v", len(gates.slow), kept.Err())
	}
}

func TestAClusterThatIsSlowIsBehindThoseThatAreSilent(t *testing.T) {
	gates, at := gatesOf(2)
	slow, kept := sendTo(t, gates, at[0])
	gates.becomesSlow(slow)
	var sent []*request
	var silent []context.Context
	for range atOnce {
		r, ctx := sendTo(t, gates, at[1])
		sent, silent = append(sent, r), append(silent, ctx)
	}
	givenUp := 0
	for _, r := range sent {
		gates.becomesSlow(r)
	}
	for _, ctx := range silent {
		if errors.Is(context.Cause(ctx), errCrowded) {
			givenUp++
		}
	}
	if kept.Err() != nil || givenUp != 4 || silent[atOnce-1].Err() != nil {
		t.Errorf("the slow one: %v; %d others were given up, the last one: %v", kept.Err(), givenUp, silent[atOnce-1].Err())
	}
}

func TestARequestThatQueuesGoesOnceAnotherHasEnded(t *testing.T) {
	gates, at := gatesOf(0)
	slow, _ := sendTo(t, gates, at[0])
	first, _ := sendTo(t, gates, at[0])
	for range atOnce - 2 {
		sendTo(t, gates, at[0])
	}
	gates.becomesSlow(slow)
	if _, err := gates.enter(t.Context(), at[0], nil); !errors.Is(err, ErrSilent) {
		t.Errorf("behind a slow one the next hears %v", err)
	}
	gates.leave(slow, nil)
	sendTo(t, gates, at[0])
	entered := make(chan error)
	go func() {
		_, err := gates.enter(t.Context(), first.gate, func(error) {})
		entered <- err
	}()
	select {
	case err := <-entered:
		t.Fatalf("more than %d go at once: %v", atOnce, err)
	case <-time.After(10 * time.Millisecond):
	}
	gates.leave(first, nil)
	if err := <-entered; err != nil {
		t.Error(err)
	}
}

func TestOneRequestAloneTriesACircuitThatWasOpen(t *testing.T) {
	gates, at := gatesOf(0)
	at[0].circuit.open = true
	trial, _ := sendTo(t, gates, at[0])
	if _, err := gates.enter(t.Context(), at[0], nil); !errors.Is(err, ErrSilent) {
		t.Errorf("beside the trial the next hears %v", err)
	}
	gates.leave(trial, nil)
	sendTo(t, gates, at[0])
	sendTo(t, gates, at[0])
}

func TestAWatchThatHasBegunIsNotGivenUp(t *testing.T) {
	server := hangs(t)
	server.goOn()
	clusters, clock := gatedClusters(at(server.Server), 0)
	config, err := clusters.cache.GetRESTConfig(t.Context(), gated)
	if err != nil {
		t.Fatal(err)
	}
	through, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/nodes?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := through.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	clock.Step(time.Minute)
	if slow := clusters.Kubeconfigs.Transports.gates.slow; len(slow) != 0 || clock.Waiters() != 0 {
		t.Errorf("%d requests wait, and %d timers", len(slow), clock.Waiters())
	}
}
