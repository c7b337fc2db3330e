package text

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestNothingThatATerminalObeysReachesIt(t *testing.T) {
	for name, tc := range map[string]struct{ written, shown string }{
		"plain text stays":                            {"node w1: Ready=Unknown\n\tsince 12:00\n", "node w1: Ready=Unknown\n\tsince 12:00\n"},
		"letters of any language stay":                {"Knoten „äöü“ · 节点 · نود", "Knoten „äöü“ · 节点 · نود"},
		"a title is not set":                          {"\x1b]0;owned\x07", `\x1b]0;owned\a`},
		"a screen is not cleared":                     {"\x1b[2J\x1b[Hwell", `\x1b[2J\x1b[Hwell`},
		"a colour of somebody else's is none":         {"\x1b[32mhealthy\x1b[0m", `\x1b[32mhealthy\x1b[0m`},
		"a line is not written over":                  {"bad\rwell", `bad\rwell`},
		"nor is a character":                          {"bad\b\b\b", `bad\b\b\b`},
		"a control character of eight bits is one":    {"\u009b2J", `\u009b2J`},
		"what is no UTF-8 is shown byte by byte":      {"a\x9b2J\xffb", `a\x9b2J\xffb`},
		"text does not turn round":                    {"\u202ednim-eb\u202c", `\u202ednim-eb\u202c`},
		"nor is it isolated":                          {"\u2066a\u2069\u200f\u061c", `\u2066a\u2069\u200f\u061c`},
		"a line ends where a line feed says so alone": {"a\u2028b\u2029c\u0085d\vd\f", `a\u2028b\u2029c\u0085d\vd\f`},
	} {
		t.Run(name, func(t *testing.T) {
			var terminal bytes.Buffer
			if n, err := OnScreen(&terminal).Write([]byte(tc.written)); err != nil || n != len(tc.written) {
				t.Errorf("%d of %d bytes written: %v", n, len(tc.written), err)
			}
			if got := terminal.String(); got != tc.shown {
				t.Errorf("got %q, want %q", got, tc.shown)
			}
		})
	}
}

func TestColoursOfAPainterAreShown(t *testing.T) {
	p := Painter{on: true}
	var terminal bytes.Buffer
	out := OnScreen(&terminal)
	if _, err := out.Write([]byte(p.Good("well") + " " + p.Bad("\x1b[32mwell\x1b[0m"))); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[32mwell\x1b[0m \x1b[31m\\x1b[32mwell\\x1b[0m\x1b[0m"; terminal.String() != want {
		t.Errorf("got %q, want %q", terminal.String(), want)
	}
}

// hostile writes what a cluster may hold: any text, pieces of what a terminal obeys, and bytes that are no text.
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
