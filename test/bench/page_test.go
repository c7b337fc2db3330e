package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/test/golden"
)

func TestWhatIsTooWideIsWrappedOrDivided(t *testing.T) {
	word := strings.Repeat("x", 48)
	figure := strings.Repeat("1", 40)
	for name, tc := range map[string]struct{ document, want string }{
		"short lines of a paragraph are joined": {"a\nb\n\nc\n", "a b\n\nc\n"},
		"a long line is wrapped":                {word + " " + word + " b\n", word + " " + word + " b\n"},
		"at a word":                             {word + " " + word + " bcd\n", word + " " + word + "\nbcd\n"},
		"not before what begins an item":        {word + " " + word + " - b\n", word + " " + word + " -\nb\n"},
		"an item keeps its indent":              {"- " + word + " " + word + " b\n- c\n", "- " + word + " " + word + "\n  b\n- c\n"},
		"headings and marks stay":               {"# a\n<!-- b -->\nc\n", "# a\n<!-- b -->\nc\n"},
		"a narrow table stays":                  {"| a | b |\n|---|---:|\n| 1 | 2 |\n", "| a | b |\n|---|---:|\n| 1 | 2 |\n"},
		"a wide one is divided behind its text": {
			"| n | a | b | c |\n|---:|---|---:|---:|\n| 1 | k | " + figure + figure + " | " + figure + " |\n",
			"| n | a | b |\n|---:|---|---:|\n| 1 | k | " + figure + figure + " |\n\n| n | a | c |\n|---:|---|---:|\n| 1 | k | " + figure + " |\n",
		},
	} {
		got := paged(tc.document)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if again := paged(got); again != got {
			t.Errorf("%s: what fits is changed:\n%s", name, again)
		}
	}
}

// The document is that of the last runs, in the layout of now.
func TestBenchmarksAreDocumented(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "benchmarks.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	is := paged(string(text))
	golden.Compare(t, file, is)
	for line := range strings.Lines(is) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > pageColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
