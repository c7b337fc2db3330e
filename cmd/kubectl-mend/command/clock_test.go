package command

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheClockOfTheServerCounts(t *testing.T) {
	here := time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC)
	for name, tc := range map[string]struct {
		date string // as the API server says it
		want time.Time
		says string
	}{
		"where both agree that of this machine is finer":   {"Thu, 01 Jan 2026 12:00:00 GMT", here, ""},
		"two seconds are nothing":                          {"Thu, 01 Jan 2026 12:00:02 GMT", here, ""},
		"in neither direction":                             {"Thu, 01 Jan 2026 11:59:57 GMT", here, ""},
		"a machine that is behind":                         {"Thu, 01 Jan 2026 12:00:45 GMT", here.Add(44500 * time.Millisecond), "warning: the clock of this machine is 45s behind that of"},
		"a machine that is ahead":                          {"Thu, 01 Jan 2026 11:59:00 GMT", here.Add(-59500 * time.Millisecond), "warning: the clock of this machine is 1m0s ahead of that of"},
		"who says no time is not believed to have another": {"", here, ""},
		"nor who says nonsense":                            {"tomorrow", here, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var errOut bytes.Buffer
			c := &serverClock{PassiveClock: clocktesting.NewFakePassiveClock(here)}
			o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}, Clock: c}
			ask := func(date string) {
				answered := roundTrip(func(*http.Request) (*http.Response, error) {
					return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
				})
				response, err := c.watch(answered).RoundTrip(nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			if !o.Clock.Now().Equal(here) {
				t.Error("before the first answer it is another time already")
			}
			ask(tc.date)
			for range 2 {
				o.sayClock()
			}
			if got := o.Clock.Now(); !got.Equal(tc.want) {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			if got := errOut.String(); !strings.HasPrefix(got, tc.says) || strings.Count(got, "warning") != strings.Count(tc.says, "warning") {
				t.Errorf("it says %q", got)
			}
			if tc.says != "" {
				ask("Thu, 01 Jan 2026 12:30:00 GMT")
				if got := o.Clock.Now(); !got.Equal(tc.want) {
					t.Errorf("in the middle of it the time becomes %s", got)
				}
			}
		})
	}
}

func TestWithoutAnAnswerItIsTheTimeOfThisMachine(t *testing.T) {
	here := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := &serverClock{PassiveClock: clocktesting.NewFakePassiveClock(here)}
	broken := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("the line is down") })
	if response, err := c.watch(broken).RoundTrip(nil); err == nil {
		_ = response.Body.Close()
		t.Error("the error is lost")
	}
	if !c.Now().Equal(here) || c.Since(here) != 0 || c.trouble() != "" {
		t.Errorf("it is %s: %s", c.Now(), c.trouble())
	}
}
