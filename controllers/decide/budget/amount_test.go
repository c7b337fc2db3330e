package budget

import (
	"flag"
	"math"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

// The flag has no effect here, but without it go test ./controllers/... -update would fail in this package.
var _ = flag.Bool("update", false, "rewrite golden files")

func TestParseAmount(t *testing.T) {
	const negative, unreadable = "must not be negative", "must be a number such as 2 or a percentage such as 40%, not "
	cases := map[string]struct {
		given string
		want  Amount
		says  string // the beginning of the error
	}{
		"a number":                              {"2", Amount{value: 2}, ""},
		"zero":                                  {"0", Amount{}, ""},
		"a percentage":                          {"40%", Amount{value: 40, percent: true}, ""},
		"zero percent":                          {"0%", Amount{percent: true}, ""},
		"all":                                   {"100%", All, ""},
		"the largest number that fits a status": {"2147483647", Amount{value: math.MaxInt32}, ""},
		"a number that fits no status":          {"2147483648", Amount{value: math.MaxInt32}, ""},
		"a number that fits no integer":         {"99999999999999999999", Amount{value: math.MaxInt32}, ""},

		"a negative number":                    {"-1", Amount{}, negative},
		"a negative percentage":                {"-10%", Amount{}, negative},
		"nothing":                              {"", Amount{}, unreadable + `""`},
		"a percent sign alone":                 {"%", Amount{}, unreadable + `"%"`},
		"two percent signs":                    {"40%%", Amount{}, unreadable + `"40%%"`},
		"a percent sign in front":              {"%40", Amount{}, unreadable + `"%40"`},
		"a fraction":                           {"1.5%", Amount{}, unreadable + `"1.5%"`},
		"a space":                              {"40 %", Amount{}, unreadable + `"40 %"`},
		"a word":                               {"most", Amount{}, unreadable + `"most"`},
		"a range":                              {"[3-5]", Amount{}, unreadable + `"[3-5]"`},
		"a negative that fits no integer":      {"-99999999999999999999", Amount{}, "must"},
		"a percentage with a number behind it": {"40%5", Amount{}, unreadable + `"40%5"`},
		"a word that starts very large":        {"99999999999999999999x", Amount{}, unreadable + `"99999999999999999999x"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAmount(tc.given)
			must.Is(t, tc.want, got, "ParseAmount(%q) =", tc.given)
			if tc.says != "" {
				must.Is(t, true, err != nil && strings.HasPrefix(err.Error(), tc.says), "%v begins with %q:", err, tc.says)
				return
			}
			must.Do(t, err)
			again, err := ParseAmount(got.String())
			must.Do(t, err)
			must.Is(t, tc.want, again, "%s, read back:", got)
		})
	}
}

func TestOfRoundsDown(t *testing.T) {
	cases := map[string]struct {
		amount      string
		total, want int
	}{
		"a percentage that fits":             {"40%", 25, 10},
		"a percentage that does not":         {"40%", 6, 2},
		"just below one":                     {"33%", 3, 0},
		"just above one":                     {"34%", 3, 1},
		"all":                                {"100%", 7, 7},
		"more than all":                      {"150%", 10, 15},
		"none":                               {"0%", 7, 0},
		"a percentage of none":               {"40%", 0, 0},
		"a number is what it is":             {"2", 7, 2},
		"even of fewer":                      {"2", 1, 2},
		"a percentage of very many machines": {"99%", 10_000_000, 9_900_000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, err := ParseAmount(tc.amount)
			must.Do(t, err)
			must.Is(t, tc.want, a.Of(tc.total), "%s of %d =", tc.amount, tc.total)
		})
	}
}

func TestParseRange(t *testing.T) {
	const unreadable = "must be a range such as [3-5], not "
	cases := map[string]struct {
		given string
		want  Range
		says  string
	}{
		"an ordinary range":                    {"[3-5]", Range{3, 5}, ""},
		"one number":                           {"[3-3]", Range{3, 3}, ""},
		"nothing at all":                       {"[0-0]", Range{}, ""},
		"zeros in front":                       {"[03-005]", Range{3, 5}, ""},
		"the largest end that fits a status":   {"[0-2147483647]", Range{0, math.MaxInt32}, ""},
		"an end that fits no status":           {"[0-2147483648]", Range{0, math.MaxInt32}, ""},
		"an end that upstream lets overflow":   {"[0-99999999999]", Range{0, math.MaxInt32}, ""},
		"a start that is out of reach as well": {"[99999999999-99999999999999999999]", Range{math.MaxInt32, math.MaxInt32}, ""},

		"an impossible range":           {"[5-3]", Range{}, "[5-3] is empty: its start is greater than its end"},
		"a start out of reach":          {"[99999999999-3]", Range{}, "[99999999999-3] is empty: its start is greater than its end"},
		"a negative start":              {"[-1-3]", Range{}, unreadable + `"[-1-3]"`},
		"a negative end":                {"[3--5]", Range{}, unreadable + `"[3--5]"`},
		"a sign":                        {"[+3-5]", Range{}, unreadable + `"[+3-5]"`},
		"no start":                      {"[-5]", Range{}, unreadable + `"[-5]"`},
		"no end":                        {"[3-]", Range{}, unreadable + `"[3-]"`},
		"neither":                       {"[-]", Range{}, unreadable + `"[-]"`},
		"three ends":                    {"[3-5-7]", Range{}, unreadable + `"[3-5-7]"`},
		"one number alone":              {"[3]", Range{}, unreadable + `"[3]"`},
		"no opening bracket":            {"3-5]", Range{}, unreadable + `"3-5]"`},
		"no closing bracket":            {"[3-5", Range{}, unreadable + `"[3-5"`},
		"no brackets":                   {"3-5", Range{}, unreadable + `"3-5"`},
		"brackets in brackets":          {"[[3-5]]", Range{}, unreadable + `"[[3-5]]"`},
		"round brackets":                {"(3-5)", Range{}, unreadable + `"(3-5)"`},
		"a space":                       {"[3 - 5]", Range{}, unreadable + `"[3 - 5]"`},
		"percentages":                   {"[10%-20%]", Range{}, unreadable + `"[10%-20%]"`},
		"nothing between brackets":      {"[]", Range{}, unreadable + `"[]"`},
		"nothing":                       {"", Range{}, unreadable + `""`},
		"an end that starts very large": {"[0-99999999999x]", Range{}, unreadable + `"[0-99999999999x]"`},
		"three ends, one very large":    {"[3-99999999999-7]", Range{}, unreadable + `"[3-99999999999-7]"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRange(tc.given)
			must.Is(t, tc.want, got, "ParseRange(%q) =", tc.given)
			if tc.says == "" {
				must.Do(t, err)
			} else {
				must.Is(t, true, err != nil && err.Error() == tc.says, "%v is %q:", err, tc.says)
			}
		})
	}
}
