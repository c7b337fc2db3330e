package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Links lead within the project to pages and to their headings; those out of it are not followed.
func TestEveryLinkInThePagesLeadsSomewhere(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, target := range linksIn(content(t, page)) {
			links++
			if why := broken(t, page, target); why != "" {
				t.Errorf("%s: %s: %s", page, target, why)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// The index lists every page once, below the heading of its kind: a page that cannot be found is not read. Runbooks are listed in the table
// of alerts in docs/monitoring.md, which has a test of its own.
func TestThePagesAreInTheIndex(t *testing.T) {
	const index = "docs/README.md"
	text := content(t, index)
	for _, kind := range []string{"Tutorials", "How-to guides", "Explanation", "Reference"} {
		if !strings.Contains(text, "\n## "+kind+"\n") {
			t.Errorf("%s has no heading %s", index, kind)
		}
	}
	_, lists, _ := strings.Cut(text, "\n## ")
	times := map[string]int{}
	for _, target := range linksIn(lists) {
		times[filepath.Join("docs", target)]++
	}
	for _, page := range pages(t) {
		listed := strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "docs/runbooks/") && page != index
		if n := times[page]; listed && n != 1 {
			t.Errorf("%s lists %s %d times, want once", index, page, n)
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	walk(t, func(file string) {
		if strings.HasSuffix(file, ".md") {
			found = append(found, file)
		}
	})
	return found
}

var (
	link        = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	quoted      = regexp.MustCompile("`[^`]*`")
	headingLine = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
)

// unfenced are the lines of a page that are not in blocks of code.
func unfenced(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case !fenced:
			b.WriteString(line)
		}
	}
	return b.String()
}

// linksIn are the targets of the links of a page, without those in code.
func linksIn(text string) []string {
	var targets []string
	for line := range strings.Lines(unfenced(text)) {
		for _, match := range link.FindAllStringSubmatch(quoted.ReplaceAllString(line, "``"), -1) {
			targets = append(targets, match[1])
		}
	}
	return targets
}

// broken says why a link of a page leads nowhere; empty if it does, or out of the project.
func broken(t *testing.T, page, target string) string {
	t.Helper()
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, heading, _ := strings.Cut(target, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return "there is no " + path
	}
	if heading != "" && !slices.Contains(anchors(content(t, path)), heading) {
		return fmt.Sprintf("there is no heading #%s in %s", heading, path)
	}
	return ""
}

// anchors are what the headings of a page are reached by, as GitHub makes it of their text: in small letters, without punctuation, with
// hyphens for blanks, and a number from the second of the same on.
func anchors(text string) []string {
	var made []string
	times := map[string]int{}
	for _, heading := range headingLine.FindAllStringSubmatch(unfenced(text), -1) {
		title := link.ReplaceAllStringFunc(heading[1], func(l string) string { return l[1:strings.Index(l, "]")] })
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		if n := times[anchor]; n > 0 {
			made = append(made, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			made = append(made, anchor)
		}
		times[anchor]++
	}
	return made
}
