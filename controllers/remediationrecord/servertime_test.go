package remediationrecord

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheTimeOfTheAPIServerIsThatOfItsAnswers(t *testing.T) {
	date := noon.Format(http.TimeFormat)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	s := &ServerTime{Clock: clocktesting.NewFakeClock(noon.Add(time.Hour))}
	if _, known := s.Now(); known {
		t.Error("it is known before an answer")
	}
	ask := func() {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: s.Watch(http.DefaultTransport)}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	ask()
	date = "what a proxy says"
	ask()
	if got, known := s.Now(); !known || !got.Equal(noon) {
		t.Errorf("it is %s, %t", got, known)
	}
}

// A manager whose clock is ahead by a whole retention must not delete all records, nor one whose clock is right where that of the API server is ahead.
func TestNoRecordIsTooOldByOneClockAlone(t *testing.T) {
	month := 720 * time.Hour
	for name, tc := range map[string]struct {
		own, server time.Duration // from noon on
		unknown     bool
		want        string
	}{
		"by neither":                         {0, 0, false, "new old"},
		"by both":                            {month, month, false, "new"},
		"by that of the manager":             {month, 0, false, "new old"},
		"by that of the manager, much ahead": {100 * month, 0, false, "new old"},
		"by that of the API server":          {0, month, false, "new old"},
		"while the API server says no time":  {month, 0, true, "new old"},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := retention(t, Options{Keep: month, PerCluster: 10, PerHost: 10}, closedOne("old", "c", "", 2), closedOne("new", "c", "", -1))
			r.Clock = clocktesting.NewFakeClock(noon.Add(tc.own))
			r.Server = func() (time.Time, bool) { return noon.Add(tc.server), !tc.unknown }
			if err := r.Sweep(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if got := left(t, c); got != tc.want {
				t.Errorf("left are %q, want %q", got, tc.want)
			}
		})
	}
}

// What could be found out about no more is an open record that is deleted by its age, too.
func TestNoOpenRecordExpiresByOneClockAlone(t *testing.T) {
	r, _ := retention(t, Options{Keep: time.Hour})
	o := &observed{now: noon.Add(100 * time.Hour)}
	o.facts.Decided = noon
	server := noon
	r.Server = func() (time.Time, bool) { return server, true }
	if r.expired(o) {
		t.Error("it expires by the clock of the manager")
	}
	if server = o.now; !r.expired(o) {
		t.Error("it does not expire by both")
	}
}
