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

	"github.com/kubemend/kubemend/test/must"
)

// A word is one line of words.tsv: a pattern that must not be written, and what to write instead.
type word struct {
	pattern *regexp.Regexp
	instead string
}

func TestTheGlossaryIsKept(t *testing.T) {
	words := avoidedWords(t)
	kinds := map[string]int{}
	walk(t, func(file string) {
		if isRead(file) && file != "docs/glossary.md" { // the glossary has to name the words
			kinds[filepath.Ext(file)]++
			report(t, wordsIn(file, content(t, file), words))
		}
	})
	for _, kind := range []string{".go", ".json", ".md", ".txt", ".yaml"} {
		if kinds[kind] == 0 {
			t.Errorf("no file *%s was read", kind)
		}
	}
}

func isRead(file string) bool {
	top, _, _ := strings.Cut(file, "/")
	switch filepath.Ext(file) {
	case ".go":
		return !slices.Contains([]string{"test", "no layer"}, layerOf(filepath.Dir(file)).name) && !strings.HasSuffix(file, "_test.go")
	case ".md":
		return top == "docs" || top == file
	case ".txt":
		return strings.Contains(file, "/testdata/") && !strings.Contains(file, "/fuzz/")
	case ".json":
		return strings.HasPrefix(file, "config/observability/dashboards/")
	case ".yaml":
		return top == "templates" || strings.HasPrefix(file, "config/observability/")
	}
	return false
}

// wordsIn returns the avoided words of a file. In Go files it reads strings, and in api/ comments too.
func wordsIn(file, text string, words []word) []string {
	switch filepath.Ext(file) {
	case ".md":
		text = quoted.ReplaceAllString(text, "``") // names of objects, files and values are not prose
	case ".go":
		text = strings.Join(textsOf(text, strings.HasPrefix(file, "api/")), "\n")
	}
	text = strings.ToLower(text)
	var found []string
	for _, w := range words {
		for _, what := range w.pattern.FindAllString(text, -1) {
			found = append(found, fmt.Sprintf("%s: %q: write %s", file, what, w.instead))
		}
	}
	return found
}

func avoidedWords(t *testing.T) []word {
	t.Helper()
	var words []word
	for line := range strings.Lines(content(t, "test/words.tsv")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found {
			t.Fatalf("words.tsv: %q is not a pattern and what to write instead", line)
		}
		words = append(words, word{regexp.MustCompile(pattern), instead})
	}
	if len(words) != 10 {
		t.Errorf("words.tsv has %d words: it is a list of the ten that users meet most", len(words))
	}
	return words
}

// unlimited matches a limit that allows the remediation of everything at once.
var unlimited = regexp.MustCompile(`(?i)((max[_ ]?unhealthy|unhealthyLessThanOrEqualTo)[^|\n]{0,40}100 ?%)|` +
	`\b(raise|limit|set)\b[^.|\n]{0,60} (to|be) 100 ?%`)

// inFlight matches the field that limits how many remediations run at once.
var inFlight = regexp.MustCompile(`\bmaxInFlight\b`)

// harmless are the files that mention an unlimited check without advising it, with the sentence that does so.
var harmless = map[string]string{
	"docs/nodehealthcheck-api.md":                               "limits nothing: nodes are remediated however many are unhealthy",
	"templates/machine-health-check-control-plane.yaml":         "KubeadmControlPlane replaces one machine at a time",
	"templates/machine-health-check-control-plane-v1beta2.yaml": "KubeadmControlPlane replaces one machine at a time",
}

// If a user raises the limit during an outage, everything that is due is remediated at the moment the outage ends. So pages, examples and
// messages may only advise that together with maxInFlight.
func TestNothingAdvisesToRemediateEverythingAtOnce(t *testing.T) {
	read := 0
	walk(t, func(file string) {
		texts := adviceIn(t, file)
		read += len(texts)
		for _, text := range texts {
			if risky(text) && (harmless[file] == "" || !strings.Contains(text, harmless[file])) {
				t.Errorf("%s lets everything be remediated, and names no limit in flight:\n%s", file, text)
			}
		}
	})
	if read < 1000 {
		t.Errorf("only %d texts were read", read)
	}
}

func risky(text string) bool { return unlimited.MatchString(text) && !inFlight.MatchString(text) }

// adviceIn returns the texts of a file that users read: paragraphs of pages, whole manifests, and strings of programs. Tests and golden
// files are skipped, because they contain what a user might write.
func adviceIn(t *testing.T, file string) []string {
	t.Helper()
	top, _, below := strings.Cut(file, "/")
	if below && !slices.Contains([]string{"docs", "templates", "config", "charts", "api", "baremetal", "controllers", "cmd"}, top) ||
		strings.Contains(file, "/testdata/") || strings.HasSuffix(file, "_test.go") {
		return nil
	}
	switch filepath.Ext(file) {
	case ".md":
		return strings.Split(strings.ReplaceAll(content(t, file), "\n|", "\n\n|"), "\n\n")
	case ".yaml", ".yml", ".tpl", ".txt":
		return []string{content(t, file)}
	case ".go":
		return textsOf(content(t, file), false)
	}
	return nil
}

// Links within the project must lead to an existing page and heading. Links to other sites are not followed.
func TestEveryLinkInThePagesLeadsSomewhere(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, target := range linksIn(content(t, page)) {
			links++
			must.Is(t, "", broken(t, page, target), "%s: %s:", page, target)
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// Users find a page through the index, so it lists every page once, below the heading of its kind. Runbooks are in the table of alerts in
// docs/monitoring.md instead, which has its own test.
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

// unfenced returns the lines of a page that are outside of code blocks.
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

// linksIn returns the targets of the links of a page, except those in code.
func linksIn(text string) []string {
	var targets []string
	for line := range strings.Lines(unfenced(text)) {
		for _, match := range link.FindAllStringSubmatch(quoted.ReplaceAllString(line, "``"), -1) {
			targets = append(targets, match[1])
		}
	}
	return targets
}

// broken returns why a link of a page leads nowhere, or "" if it works or leads to another site.
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

// anchors returns the anchors that GitHub makes from the headings of a page: lower case, hyphens for blanks, no punctuation, and a number
// appended to repeated headings.
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
