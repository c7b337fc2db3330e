package text

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestWrap(t *testing.T) {
	for name, tc := range map[string]struct{ s, first, want string }{
		"what fits stays on one line":         {"a few words", "  ", "  a few words"},
		"what does not is broken at a space":  {"twenty columns are the least", "- ", "- twenty columns are\n  the least"},
		"a word that is too long is not":      {"https://an.address.that.is.long/and/longer is kept", "", "https://an.address.that.is.long/and/longer\nis kept"},
		"lines of its own are kept":           {"failed:\n  * one", "> ", "> failed:\n    * one"},
		"a list goes on below its own indent": {"  * twenty columns are the least", "", "  * twenty columns are\n  the least"},
		"nothing is nothing":                  {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Wrap(tc.s, tc.first, 22); got != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func TestWrappingLosesNoWordAndKeepsTheWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-zä]{1,12}`)).Draw(t, "words")
		width := rapid.IntRange(30, 200).Draw(t, "width")
		got := Wrap(strings.Join(words, " "), "  ", width)
		if strings.Join(strings.Fields(got), " ") != strings.Join(words, " ") {
			t.Fatalf("got other words: %q", got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if utf8.RuneCountInString(line) > width {
				t.Fatalf("wider than %d: %q", width, line)
			}
		}
	})
}

func TestMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		at   time.Time
		want string
	}{
		"soon":                          {noon.Add(90 * time.Second), "12:01:30 (in 90s)"},
		"a while ago":                   {noon.Add(-10 * time.Minute), "11:50:00 (10m ago)"},
		"now":                           {noon.Add(300 * time.Millisecond), "12:00:00 (now)"},
		"yesterday, with the date":      {noon.Add(-24 * time.Hour), "2025-12-31 12:00:00 (24h ago)"},
		"in another zone, as read here": {noon.Add(time.Minute).In(time.FixedZone("", 7200)), "12:01:00 (in 60s)"},
	} {
		if got := Moment(tc.at, noon); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWhatIsNoTerminalIsNotColoured(t *testing.T) {
	if got := NewPainter(&bytes.Buffer{}).Bad("text"); got != "text" {
		t.Errorf("%q", got)
	}
	if got := (Painter{on: true}).Bad("text"); !strings.Contains(got, "\x1b[31m") {
		t.Errorf("%q is not red", got)
	}
}

func TestTheVariableColumnsCounts(t *testing.T) {
	t.Setenv("COLUMNS", "77")
	if got := Width(&bytes.Buffer{}); got != 77 {
		t.Errorf("%d", got)
	}
	t.Setenv("COLUMNS", "")
	if got := Width(&bytes.Buffer{}); got != widest {
		t.Errorf("%d", got)
	}
}
