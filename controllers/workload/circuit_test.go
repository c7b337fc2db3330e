package workload

import (
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// requests are what befalls the requests to a cluster, in order: "5s" passes; "go", "queue" and "refuse" are what becomes of the next one; "answer" and
// "silence" end the oldest.
func requests(t *testing.T, happens ...string) {
	t.Helper()
	c, now := circuit{}, noon.Time
	var trials []bool
	for i, what := range happens {
		if d, err := time.ParseDuration(what); err == nil {
			now = now.Add(d)
			continue
		}
		switch what {
		case "answer", "silence":
			c = c.end(c.begun[0], now, what == "answer", trials[0])
			trials = trials[1:]
			continue
		}
		is, until := c.admit(now)
		if got := map[admission]string{goes: "go", queues: "queue", refused: "refuse"}[is]; got != what {
			t.Fatalf("%d: it is %q, want %q", i, got, what)
		}
		if is == queues && !until.After(now) {
			t.Fatalf("%d: it queues until %s, and it is %s", i, until, now)
		}
		if is == goes {
			c = c.begin(now)
			trials = append(trials, c.trial)
		}
	}
}

func TestAClusterIsAskedWhatItAnswers(t *testing.T) {
	five := []string{"go", "go", "go", "go", "go"}
	opened := []string{"go", "go", "10s", "silence", "silence"}
	for name, happens := range map[string][]string{
		"five at a time, and the next one queues":            append(five, "queue", "answer", "go", "queue"),
		"behind a slow one no request queues":                append(five, "1s", "refuse", "refuse"),
		"one without an answer is nothing":                   {"go", "10s", "silence", "go"},
		"after two none is sent":                             append(opened, "refuse", "9s", "refuse"),
		"an answer in between is no excuse":                  {"go", "10s", "silence", "go", "answer", "go", "10s", "silence", "refuse"},
		"but one an hour is":                                 {"go", "10s", "silence", "1h", "go", "10s", "silence", "go"},
		"then one tries, and it alone":                       append(opened, "10s", "go", "refuse", "1h", "refuse"),
		"an answer closes it":                                append(opened, "10s", "go", "answer", "go", "go"),
		"else the next tries after twice the time":           append(opened, "10s", "go", "10s", "silence", "19s", "refuse", "1s", "go"),
		"after a minute at the latest":                       append(opened, "10s", "go", "silence", "20s", "go", "silence", "40s", "go", "silence", "59s", "refuse", "1s", "go"),
		"one that answers trials alone is left alone longer": append(opened, "10s", "go", "answer", "go", "go", "silence", "silence", "19s", "refuse", "1s", "go"),
		"long after that it is a new failure":                append(opened, "10s", "go", "answer", "10m", "go", "go", "silence", "silence", "9s", "refuse", "1s", "go"),
		"what was asked before says nothing new":             {"go", "go", "go", "10s", "silence", "silence", "silence", "10s", "go"},
		"not even if it is answered":                         {"go", "go", "go", "10s", "silence", "silence", "answer", "refuse", "10s", "go", "refuse"},
	} {
		t.Run(name, func(t *testing.T) { requests(t, happens...) })
	}
}

func TestNoClusterIsAskedMoreThanAFewThingsAtOnceNorForgottenForGood(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, now := circuit{}, noon.Time
		var trials []bool
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
			if len(c.begun) > 0 && rapid.Bool().Draw(rt, "ends") {
				c = c.end(c.begun[0], now, rapid.Bool().Draw(rt, "answered"), trials[0])
				trials = trials[1:]
			} else if is, _ := c.admit(now); is == goes {
				c = c.begin(now)
				trials = append(trials, c.trial)
			}
			if limit := atOnce + 1; len(c.begun) > limit { // the one is a trial
				rt.Fatalf("%d are under way", len(c.begun))
			}
			if is, _ := c.admit(now.Add(longestPause)); c.open() && !c.trial && is != goes {
				rt.Fatalf("nothing goes after %s: %+v", longestPause, c)
			}
		}
	})
}

func TestADoubtBecomesCertaintyThatTheClusterIsDown(t *testing.T) {
	since := noon.Time
	cases := map[string]struct {
		after     time.Duration
		failures  int
		answered  bool
		connected bool
		link      Link
		recheck   time.Duration
	}{
		"one probe that failed is nothing":                      {time.Second, 1, false, true, Unsure, time.Second / 2},
		"two are an outage":                                     {time.Second, 2, false, true, Down, time.Second / 2},
		"a connection that is being made is awaited":            {time.Second, 0, false, false, Unsure, time.Second / 2},
		"at first it is looked at often":                        {0, 0, false, false, Unsure, time.Second / 4},
		"later as often as the cluster is probed":               {50 * time.Second, 0, false, false, Unsure, ProbeInterval},
		"but not for ever":                                      {time.Minute, 0, false, false, Down, 0},
		"also when it can be probed and not be read":            {time.Minute, 0, false, true, Down, ProbeInterval},
		"just before that nothing is lost":                      {time.Minute - 1, 0, false, true, Unsure, ProbeInterval},
		"that it is connected again is an event":                {time.Second, 2, false, false, Down, 0},
		"no event says that a cache has caught up":              {time.Second, 0, true, true, Unsure, catchUpInterval},
		"not even if that takes so long that it counts as down": {time.Minute, 0, true, true, Down, catchUpInterval},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doubt{since: since, answered: tc.answered}
			got := d.view(since.Add(tc.after), tc.connected, clustercache.HealthCheckingState{ConsecutiveFailures: tc.failures})
			if got.Link != tc.link || got.Recheck != tc.recheck {
				t.Errorf("link %d, again after %s; want %d, %s", got.Link, got.Recheck, tc.link, tc.recheck)
			}
		})
	}
}
