package clockerror

import (
	"net/http"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

func TestAhead(t *testing.T) {
	server := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		sent, took time.Duration // by the clock of this process, after the server's
		date       string
		want       time.Duration
	}{
		"the same clock":                          {0, time.Second, server.Format(http.TimeFormat), 0},
		"30 s ahead are tolerated":                {31 * time.Second, 0, server.Format(http.TimeFormat), 0},
		"ahead, by at least that":                 {10*time.Minute + time.Second, time.Second, server.Format(http.TimeFormat), 10 * time.Minute},
		"behind, by at least that":                {-10 * time.Minute, time.Second, server.Format(http.TimeFormat), -(10*time.Minute - time.Second)},
		"30 s behind are tolerated":               {-30 * time.Second, 0, server.Format(http.TimeFormat), 0},
		"an answer without a Date says nothing":   {time.Hour, 0, "", 0},
		"nor does one with a Date that is none":   {time.Hour, 0, "today", 0},
		"nor does one that came late":             {time.Hour, 6 * time.Second, server.Format(http.TimeFormat), 0},
		"a Date in another format of HTTP counts": {time.Hour + time.Second, 0, server.Format(time.RFC850), time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{}
			defer s.Forget()
			sent := server.Add(tc.sent)
			s.Note(sent, sent.Add(tc.took), http.Header{"Date": {tc.date}})
			must.Is(t, tc.want, s.Ahead(), "Ahead() =")
		})
	}
}

// Several API servers, each with its own clock, may share one address.
func TestMostAnswersDecide(t *testing.T) {
	const off, far = 10 * time.Minute, 10*time.Minute - time.Second // the Date may be a second old
	for name, tc := range map[string]struct {
		ahead []time.Duration // of the server that answers, one answer after the other
		want  time.Duration   // after the last one
	}{
		"the first answer counts":                            {[]time.Duration{off}, far},
		"at first an error counts more":                      {[]time.Duration{0, off}, far},
		"also if the clock is behind":                        {[]time.Duration{0, -off}, -off},
		"one of three servers is wrong":                      {[]time.Duration{0, 0, off, 0, 0, off, 0, 0, off}, 0},
		"it answers twice in a row":                          {[]time.Duration{0, 0, 0, off, off}, 0},
		"one of three is right, and two show the error":      {[]time.Duration{off, off, 0, off, off, 0, off, off, 0}, far},
		"an error ends once most answers show that it ended": {[]time.Duration{off, off, off, off, off, off, off, 0, 0, 0, 0}, 0},
		"and not before":                                     {[]time.Duration{off, off, off, off, off, off, off, 0, 0, 0}, far},
		"it begins once most show it":                        {[]time.Duration{0, 0, 0, 0, 0, 0, 0, off, off, off, off}, far},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := &Server{}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			defer s.Forget()
			for _, ahead := range tc.ahead {
				s.Note(now, now, http.Header{"Date": {now.Add(-ahead).Format(http.TimeFormat)}})
			}
			must.Is(t, tc.want, s.Ahead(), "Ahead() =")
		})
	}
}
