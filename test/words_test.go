package test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A word is one line of words.tsv: what is not written, and what is written instead.
type word struct {
	pattern *regexp.Regexp
	instead string
}

func TestTheGlossaryIsKept(t *testing.T) {
	words := avoidedWords(t)
	kinds := map[string]int{}
	walk(t, func(file string) {
		if isRead(file) && file != "docs/glossary.md" { // which has to name the words
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

// isRead reports whether users read what is in a file.
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

// wordsIn returns what a file has of the words. Of a Go file that is its strings, and in api its comments.
func wordsIn(file, text string, words []word) []string {
	switch filepath.Ext(file) {
	case ".md":
		text = quoted.ReplaceAllString(text, "``") // names of objects, files and values are as they are
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
