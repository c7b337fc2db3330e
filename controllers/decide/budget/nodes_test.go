package budget

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// C83: what the thresholds make of the nodes of a check.
func TestThresholds(t *testing.T) {
	cases := map[string]struct {
		minHealthy, maxUnhealthy string
		total, bad               int
		allowed                  bool
	}{
		"C83: as many healthy as the number":                         {"3", "", 5, 2, true},
		"C83: one fewer healthy than the number":                     {"3", "", 5, 3, false},
		"C83: as many healthy as the percentage":                     {"60%", "", 5, 2, true},
		"C83: one fewer healthy than the percentage":                 {"60%", "", 5, 3, false},
		"C83: a percentage of healthy nodes is rounded up":           {"51%", "", 7, 4, false},
		"C83: and no further than that":                              {"51%", "", 7, 3, true},
		"C83: all have to be healthy":                                {"100%", "", 4, 1, false},
		"C83: none has to be healthy":                                {"0", "", 4, 4, true},
		"C83: more have to be healthy than there are":                {"5", "", 4, 1, false},
		"C83: as many unhealthy as the number":                       {"", "2", 5, 2, true},
		"C83: one more unhealthy than the number":                    {"", "2", 5, 3, false},
		"C83, W15: 49% of 3 may be unhealthy, rounded down":          {"", "49%", 3, 1, true},
		"C83, W15: 49% of 3 is not 2":                                {"", "49%", 3, 2, false},
		"C83, W15, seed 0.6, seed 0.12: 40% of 6 is 2":               {"", "40%", 6, 3, false},
		"C83, W15: more may be unhealthy than there are":             {"", "9", 4, 4, true},
		"C83: none may be unhealthy":                                 {"", "0", 4, 1, false},
		"C83, seed 0.11, seed 1.4: without thresholds 51% are asked": {"", "", 3, 1, true},

		"seed 0.11: without thresholds 51% of 3 are not 1":                     {"", "", 3, 2, false},
		"seed 0.13: at most maxUnhealthy, which is not below":                  {"", "40%", 5, 2, true},
		"seed 1.10: at least minHealthy, which is not above":                   {"2", "", 3, 1, true},
		"W16: a single node is not remediated without asking":                  {"", "", 1, 1, false},
		"a single node is remediated where none has to be healthy":             {"0%", "", 1, 1, true},
		"all may be unhealthy":                                                 {"", "100%", 4, 4, true},
		"no node at all is fine by any number of healthy ones":                 {"3", "", 0, 0, true},
		"no node at all is fine without thresholds":                            {"", "", 0, 0, true},
		"all are healthy, which is enough although fewer are there than asked": {"9", "", 4, 0, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := NodeLimits(tc.minHealthy, tc.maxUnhealthy, tc.total)
			if err != nil {
				t.Fatal(err)
			}
			want := Grant{Reason: TooMany}
			if tc.allowed {
				want = Grant{Start: tc.bad, Remaining: max(l.AtMost-tc.bad, 0)}
			}
			if got := Decide(Population{Healthy: tc.total - tc.bad, Unhealthy: tc.bad, Waiting: tc.bad}, l); got != want {
				t.Errorf("%d of %d nodes are bad, limits %+v: %+v, want %+v", tc.bad, tc.total, l, got, want)
			}
		})
	}
}

// thresholdRow is a row of the table of examples: total, threshold, has to be healthy, may be bad.
var thresholdRow = regexp.MustCompile("(?m)^\\| ([0-9]+) \\| (?:`(min|max)(?:H|Unh)ealthy: ([0-9]+%?)`|none) \\| ([0-9]+) \\| ([0-9]+|none) \\|")

func TestTheDocumentedThresholds(t *testing.T) {
	page, err := os.ReadFile("../../../docs/nodehealthcheck.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := thresholdRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != 13 {
		t.Fatalf("%d rows can be read, there were 13", len(rows))
	}
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			given := map[string]string{row[2]: row[3]}
			total, err := strconv.Atoi(row[1])
			if err != nil {
				t.Fatal(err)
			}
			l, err := NodeLimits(given["min"], given["max"], total)
			if err != nil {
				t.Fatal(err)
			}
			mayBeBad := strconv.Itoa(l.AtMost)
			if l.AtMost < 0 {
				mayBeBad = "none"
			}
			if healthy := strconv.Itoa(total - l.AtMost); healthy != row[4] || mayBeBad != row[5] {
				t.Errorf("%s have to be healthy and %s may be bad", healthy, mayBeBad)
			}
		})
	}
}

func TestNodeLimitsRefuse(t *testing.T) {
	cases := map[string]struct{ minHealthy, maxUnhealthy, says string }{
		"both":                          {"51%", "49%", "minHealthy and maxUnhealthy cannot be specified at the same time"},
		"both, before anything else":    {"-1", "x", "minHealthy and maxUnhealthy cannot be specified at the same time"},
		"W34: a negative minHealthy":    {"-1", "", "minHealthy must not be negative: -1"},
		"W34: a negative maxUnhealthy":  {"", "-2", "maxUnhealthy must not be negative: -2"},
		"a minHealthy that is no value": {"most", "", `minHealthy must be a number such as 2 or a percentage such as 40%, not "most"`},
		"a maxUnhealthy that is none":   {"", "%", `maxUnhealthy must be a number such as 2 or a percentage such as 40%, not "%"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := NodeLimits(tc.minHealthy, tc.maxUnhealthy, 5)
			if err == nil || err.Error() != tc.says {
				t.Errorf("NodeLimits() = %v, want an error that says %q", err, tc.says)
			}
			if g := Decide(of(1), l); g.Start != 0 {
				t.Errorf("with an error beside it, %+v starts %d", l, g.Start)
			}
		})
	}
}
