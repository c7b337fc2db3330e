package test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// pageWidth is at how many columns pages wrap.
const pageWidth = 100

var (
	// codes are ids of what tests were made from, which test/RULES.md explains to those who change the tests.
	codes = regexp.MustCompile(`\b[WC]\d+\b|\bseeds? \d`)
	// targets are what a link leads to: it cannot be wrapped.
	targets = regexp.MustCompile(`\]\([^)]*\)|<?https?://\S+`)
)

// mannersOf returns which lines of a page of the documentation are too long, or have a code that its readers do not know.
func mannersOf(file, text string) []string {
	if file != "README.md" && !(strings.HasPrefix(file, "docs/") && strings.HasSuffix(file, ".md")) {
		return nil
	}
	var found []string
	fenced, line := false, 0
	for l := range strings.Lines(text) {
		line++
		l = strings.TrimRight(l, "\n")
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
			continue
		}
		if n := utf8.RuneCountInString(targets.ReplaceAllString(l, "]")); n > pageWidth && !fenced && !strings.HasPrefix(l, "|") {
			found = append(found, fmt.Sprintf("%s:%d: %d columns, wrap at %d", file, line, n, pageWidth))
		}
		for _, code := range codes.FindAllString(l, -1) {
			found = append(found, fmt.Sprintf("%s:%d: %q: link to the issue or the page that it stands for", file, line, code))
		}
	}
	return found
}

func TestTheCheckOfMannersFindsLines(t *testing.T) {
	long := strings.Repeat("word ", 25)
	first, second := "W"+"14", "seed "+"2" // in two parts, since an id in a test has to be one of test/RULES.md
	text := fmt.Sprintf("Short.\n"+long+"\n| "+long+"|\n```sh\n"+long+"\n```\n[a](https://example.org/"+strings.Repeat("x", 99)+")\nAs %s and %s say, C5a and WC1.\n", first, second+".1")
	want := []string{
		"docs/p.md:2: 125 columns, wrap at 100",
		`docs/p.md:8: "` + first + `": link to the issue or the page that it stands for`,
		`docs/p.md:8: "` + second + `": link to the issue or the page that it stands for`,
	}
	if found := mannersOf("docs/p.md", text); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if found := mannersOf("test/RULES.md", text); found != nil {
		t.Errorf("elsewhere found %q", found)
	}
}
