package test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
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
		if isRead(file) && file != glossary {
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

// glossary has to name the words.
const glossary = "docs/glossary.md"

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

// wordsIn returns what a file has of the words, as "file:line: what". Of a Go file that is its texts, and in api its comments.
func wordsIn(file, text string, words []word) []string {
	switch filepath.Ext(file) {
	case ".md":
		text = quoted.ReplaceAllString(text, "``") // names of objects, files and values are as they are
	case ".go":
		text = textsOf(text, strings.HasPrefix(file, "api/"))
	}
	text = strings.ToLower(text)
	words = slices.DeleteFunc(slices.Clone(words), func(w word) bool { return !w.pattern.MatchString(text) })
	var found []string
	for i, line := range strings.Split(text, "\n") {
		for _, w := range words {
			for _, what := range w.pattern.FindAllString(line, -1) {
				found = append(found, fmt.Sprintf("%s:%d: %q: write %s", file, i+1, what, w.instead))
			}
		}
	}
	return found
}

// textsOf is a Go file without all but its texts, and its comments if they are documentation. The lines stay where they are.
func textsOf(source string, documented bool) string {
	var kept strings.Builder
	var s scanner.Scanner
	positions := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(positions, []byte(source), nil, scanner.ScanComments)
	for line := 1; ; {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return kept.String()
		}
		if kind == token.STRING || kind == token.COMMENT && documented {
			kept.WriteString(strings.Repeat("\n", positions.Line(at)-line) + literal)
			line = positions.Line(at) + strings.Count(literal, "\n")
		}
	}
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

// walk names all files of the project to visit, but for hidden folders and what is built.
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case file != "." && strings.HasPrefix(entry.Name(), ".") || file == "bin" || file == "out":
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir():
			visit(filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
