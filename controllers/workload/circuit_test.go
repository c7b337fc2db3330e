package workload

import (
	"testing"
	"time"
)

func TestAClusterIsAskedWhatItAnswers(t *testing.T) {
	opened := []string{"go", "go", "10s", "silence", "silence"}
	// What befalls the requests to a cluster, in order: "5s" passes; "go" and "refuse" are what becomes of the next one; "answer" and
	// "silence" end the oldest.
	for name, happens := range map[string][]string{
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
		t.Run(name, func(t *testing.T) {
			c, now := circuit{}, noon.Time
			var trials []bool
			for i, what := range happens {
				switch what {
				case "answer", "silence":
					c.end(now, what == "answer", trials[0])
					trials = trials[1:]
				case "go", "refuse":
					if rests := c.rests(now); rests != (what == "refuse") {
						t.Fatalf("%d: it rests: %t, want %q", i, rests, what)
					}
					if what == "go" {
						c.trial = c.open
						trials = append(trials, c.trial)
					}
				default:
					passed, err := time.ParseDuration(what)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(passed)
				}
			}
		})
	}
}
