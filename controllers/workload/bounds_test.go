package workload

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnAnswerThatDoesNotEndIsCutOff(t *testing.T) {
	var sent int64
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[`)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, `{"metadata":{"name":"`+strings.Repeat("n", 2*bytesPerItem)+`"}},`)
			if sent += int64(n); err != nil {
				return
			}
		}
	}), "")
	err := c.List(t.Context(), &corev1.NodeList{})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("List() = %v", err)
	}
	if sent > 16<<20 { // what is on its way besides is in the buffers of the connection
		t.Errorf("%d bytes were taken", sent)
	}
}

// intervals is a clock that goes on each time that it is looked at.
type intervals struct {
	*testclock.FakeClock
	each *testclock.SimpleIntervalClock
}

func (i intervals) Now() time.Time { return i.each.Now() }

// heard is how many events a watch tells that goes on for ever, each of them taking so long, and how it ends.
func heard(t *testing.T, each time.Duration) (int, watch.EventType) {
	t.Helper()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, "")
		for i := 0; r.Context().Err() == nil; i++ {
			metadata := fmt.Sprintf(`{"name":"n%d","annotations":{"a":%q}}`, i, strings.Repeat("x", 1<<10))
			_, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":%s}}`+"\n", metadata)
			if err != nil {
				return
			}
		}
	})
	transports := routed(t, c1, server, NewTransports(64<<10, 0, intervals{
		testclock.NewFakeClock(noon.Time), &testclock.SimpleIntervalClock{Time: noon.Time, Duration: each},
	}))
	c, err := client.NewWithWatch(configOf(transports), client.Options{Mapper: nodesOnly()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), &corev1.NodeList{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	count := 0
	for e := range events.ResultChan() {
		if e.Type != watch.Added {
			return count, e.Type
		}
		count++
	}
	return count, ""
}

func TestAWatchThatTellsMuchEnds(t *testing.T) {
	for each, want := range map[time.Duration]watch.EventType{
		flood:            "", // over time, as if the connection broke
		time.Millisecond: watch.Error,
	} {
		if got, ended := heard(t, each); ended != want || got < 64 || got > 128 {
			t.Errorf("one each %s: %d events were heard before %q, want %q", each, got, ended, want)
		}
	}
}

// A reflector asks again at once if the version that it begins with has expired, and would do so for ever if it begins with none.
func TestAServerForWhichAllHasExpiredDoesNotAnswer(t *testing.T) {
	for query, want := range map[string]error{
		"watch=true&sendInitialEvents=true":                    errSpins,
		"watch=true&sendInitialEvents=true&resourceVersion=7":  nil,
		"watch=true&sendInitialEvents=false&resourceVersion=7": nil,
	} {
		for _, code := range []int{http.StatusGone, http.StatusGatewayTimeout} {
			answer := &http.Response{
				StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, ContentLength: -1,
				Request: &http.Request{URL: &url.URL{Path: nodesPath, RawQuery: query}},
			}
			if err := (binding{limit: 1 << 20}).bind(answer); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%d to %s: %v, want %v", code, query, err, want)
			}
		}
	}
}

func TestRedirectionsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server is asked") })
	c, _ := through(t, serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}); err == nil || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("Get() = %v", err)
	}
}

func TestTheNodesAreUnsureForAWhileAfterAnAnswerAboutThemWasCutOff(t *testing.T) {
	redirects := true
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if redirects && r.URL.Path == nodesPath {
			http.Redirect(w, r, "https://elsewhere.example.com", http.StatusFound)
			return
		}
		writeJSON(w, "{}")
	})
	now := testclock.NewFakeClock(noon.Time)
	transports := routed(t, c1, server, NewTransports(1<<20, 0, now))
	ask := func(path string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "workload://"+hostOf(c1)+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transports.RoundTrip(request); err == nil {
			_ = answer.Body.Close()
		}
	}
	lasts := func(want time.Duration) {
		t.Helper()
		if !transports.routeOf(c1).answers.unsure(now.Now().Add(want-1)) || transports.routeOf(c1).answers.unsure(now.Now().Add(want)) {
			t.Errorf("the nodes are not unsure for %s", want)
		}
	}
	ask(nodesPath + "/n")
	ask("/")
	if transports.routeOf(c1).answers.unsure(now.Now()) {
		t.Error("other answers make the nodes unsure")
	}
	ask(nodesPath)
	lasts(10 * time.Second)
	now.Step(9 * time.Second)
	ask(nodesPath) // a reflector that asks again
	lasts(10 * time.Second)
	now.Step(10 * time.Second)
	ask(nodesPath)
	lasts(20 * time.Second)
	if _, err := transports.route(c1, kubeconfigOf(server, "token: new", "")); err != nil {
		t.Fatal(err)
	}
	lasts(20 * time.Second) // a tenant writes the Secret
	now.Step(calm + time.Minute)
	redirects = false
	ask(nodesPath)
	redirects = true
	ask(nodesPath)
	lasts(10 * time.Second)
}
