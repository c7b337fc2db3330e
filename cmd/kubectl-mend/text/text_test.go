package text

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLinesAreBrokenBetweenWords(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		indent int
		width  int
		want   string
	}{
		"nothing stays nothing":                  {"", 2, 10, ""},
		"what fits to the last column stays":     {"12345 7890", 2, 10, "12345 7890"},
		"one column more is too much":            {"12345 78901", 2, 10, "12345\n  78901"},
		"the indent counts":                      {"one two three four", 4, 10, "one two\n    three\n    four"},
		"a name is never cut":                    {"see a-name-that-is-too-long here", 2, 10, "see\n  a-name-that-is-too-long\n  here"},
		"lines that there are become one":        {"one\ntwo", 2, 80, "one two"},
		"spaces in front of the first stay":      {"    one two", 4, 8, "    one\n    two"},
		"other spaces are one":                   {"one   two", 2, 80, "one two"},
		"a character is a column, not a byte":    {"äöü äöü", 0, 7, "äöü äöü"},
		"paint takes no room":                    {"\x1b[31mone\x1b[0m two", 0, 7, "\x1b[31mone\x1b[0m two"},
		"what is painted is broken all the same": {"\x1b[31mone\x1b[0m two", 0, 6, "\x1b[31mone\x1b[0m\ntwo"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Wrap(tc.text, tc.indent, tc.width); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestATextHangsBehindItsLead(t *testing.T) {
	for name, tc := range map[string]struct {
		lead, text string
		width      int
		want       string
	}{
		"behind it if there is room":         {"12:00  a    ", "one two", 80, "12:00  a    one two"},
		"and goes on under the indent":       {"12:00  a    ", "one two three", 19, "12:00  a    one two\n    three"},
		"under it if there is none":          {"12:00  a    ", "one two", 13, "12:00  a\n    one two"},
		"without a text there are no blanks": {"12:00  a    ", "", 80, "12:00  a"},
		"lines that it has become one":       {"12:00  ", "one\ntwo", 80, "12:00  one two"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Hang(tc.lead, tc.text, 4, tc.width); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheWidthIsTheUsers(t *testing.T) {
	for columns, want := range map[string]int{"": unbound, "120": 120, "12": narrowest, "wide": unbound, "-1": unbound} {
		t.Setenv("COLUMNS", columns)
		if got := Width(&bytes.Buffer{}); got != want {
			t.Errorf("with COLUMNS=%q: %d, want %d", columns, got, want)
		}
	}
}

func TestPaintIsForTerminals(t *testing.T) {
	words := func(p Painter) string {
		return p.Good("a") + p.Bad("b") + p.Waits("c") + p.Strong("d") + p.Bad("")
	}
	if got := words(PainterFor(&bytes.Buffer{}, "auto")); got != "abcd" {
		t.Errorf("into a pipe it writes %q", got)
	}
	if got := words(PainterFor(&bytes.Buffer{}, "always")); got != words(Painter{on: true}) {
		t.Errorf("into a pipe that is to be coloured it writes %q", got)
	}
	painted := words(Painter{on: true})
	if n := strings.Count(painted, "\x1b[") - strings.Count(painted, "m"); n != 0 || Columns(painted) != 4 || painted == "abcd" {
		t.Errorf("on a terminal it writes %q, %d columns", painted, Columns(painted))
	}
	if got := Columns(Pad(Painter{on: true}.Good("ok"), 6)); got != 6 {
		t.Errorf("a painted word is filled up to %d columns, want 6", got)
	}
}

func TestNoTextForgesALineOrAColumn(t *testing.T) {
	for name, tc := range map[string]struct{ got, want string }{
		"a lead of two lines is one":         {Hang("a\nb: ", "c\nd", 0, 80), `a\nb: c d`},
		"a cell is one, whatever is in it":   {strings.Join(Table([][]string{{"w1\twell\nw2", "bad"}}), "|"), `w1\twell\nw2   bad`},
		"what has several lines is indented": {Below("cannot read:\na\nb\n"), "cannot read:\n    a\n    b"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %q, want %q", name, tc.got, tc.want)
		}
	}
}

// hostile generates any text, parts of escape sequences, and bytes that are not UTF-8.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(), rapid.StringOfN(rapid.RuneFrom(nil, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp), 1, 10, -1),
		rapid.SampledFrom([]string{"\x1b[", "\x1b]52;c;", "\x1b[1234567890;31m", "\x07", "\xff", "\xe2\x80", "m", ";31m"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 6), func(b []byte) string { return string(b) }),
	)
}

func TestOfWhateverIsWrittenOnlyPaintIsObeyed(t *testing.T) {
	paints := []func(string) string{Painter{on: true}.Good, Painter{on: true}.Strong, Painter{}.Bad, strings.ToUpper}
	colours := strings.NewReplacer("\x1b[32m", "", "\x1b[1m", "", "\x1b[0m", "", "\x1b[22m", "", "\x1b[0;22m", "")
	rapid.Check(t, func(t *rapid.T) {
		var terminal bytes.Buffer
		out := OnScreen(&terminal)
		for _, piece := range rapid.SliceOfN(hostile(), 1, 8).Draw(t, "pieces") {
			if _, err := out.Write([]byte(rapid.SampledFrom(paints).Draw(t, "paint")(piece))); err != nil {
				t.Fatal(err)
			}
		}
		shown := colours.Replace(terminal.String())
		if !utf8.ValidString(shown) {
			t.Fatalf("no UTF-8: %q", shown)
		}
		for _, r := range shown {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.In(r, unicode.Zl, unicode.Zp)) {
				t.Fatalf("%q reaches the terminal in %q", r, shown)
			}
		}
	})
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		at   time.Time
		want string
	}{
		"soon":                                   {noon.Add(90 * time.Second), "12:01:30 (in 90s)"},
		"a while ago":                            {noon.Add(-10 * time.Minute), "11:50:00 (10m ago)"},
		"now":                                    {noon.Add(300 * time.Millisecond), "12:00:00 (now)"},
		"half a minute":                          {noon.Add(-30 * time.Second), "11:59:30 (30s ago)"},
		"within ten minutes seconds are printed": {noon.Add(599 * time.Second), "12:09:59 (in 9m59s)"},
		"and no more after that":                 {noon.Add(659 * time.Second), "12:10:59 (in 10m)"},
		"hours have minutes":                     {noon.Add(119 * time.Minute), "13:59:00 (in 119m)"},
		"days have hours":                        {noon.Add(-(49*time.Hour + 59*time.Minute)), "2025-12-30 10:01:00 (2d1h ago)"},
		"yesterday, with the date":               {noon.Add(-24 * time.Hour), "2025-12-31 12:00:00 (24h ago)"},
		"in another zone, as read here":          {noon.Add(time.Minute).In(time.FixedZone("", 7200)), "12:01:00 (in 60s)"},
	} {
		if got := Moment(tc.at, noon); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestNamesAreCutInTheMiddleWhereATableIsTooWide(t *testing.T) {
	rows := [][]string{{"CHECK", "REASON"}, {"short", "-"}, {"ns/mhc/a-name-of-30-columns-in-all", "TooMany"}}
	for width, name := range map[int]string{44: rows[2][0], 43: "ns/mhc/a-name-of…0-columns-in-all", 30: "ns/mhc/a-n…ns-in-all", 9: "ns/…all"} {
		lines := Fit(rows, 1, width)
		if got, _, _ := strings.Cut(lines[2], " "); got != name || width > 20 && Widest(lines) > width {
			t.Errorf("at %d columns, %d are wide:\n%s", width, Widest(lines), strings.Join(lines, "\n"))
		}
	}
	two := [][]string{{"0123456789abcdef", "0123456789abcdef", "x"}}
	if lines := Fit(two, 2, 32); lines[0] != "012345…abcdef   012345…bcdef   x" {
		t.Errorf("of two columns: %q", lines[0])
	}
}

func TestColoursOfAPainterAreShown(t *testing.T) {
	p := Painter{on: true}
	var terminal bytes.Buffer
	out := OnScreen(&terminal)
	if _, err := out.Write([]byte(p.Good("äöü · 节点") + " " + p.Bad("\x1b[32mwell\x1b[0m"))); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[32mäöü · 节点\x1b[0m \x1b[31m\\x1b[32mwell\\x1b[0m\x1b[0m"; terminal.String() != want {
		t.Errorf("got %q, want %q", terminal.String(), want)
	}
}
