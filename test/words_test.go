package test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A word is one line of words.tsv: what is not written, what is written instead, and where it is looked for.
type word struct {
	pattern                   *regexp.Regexp
	instead                   string
	identifiers, prose, shown bool
}

func TestTheGlossaryIsKept(t *testing.T) {
	words := avoided(t)
	for _, file := range glossaryFiles(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		report(t, wordsIn(file, string(text), words))
		report(t, mannersOf(file, string(text)))
	}
}

func TestTheGlossaryCheckFindsWords(t *testing.T) {
	words := avoided(t)
	for text, want := range map[string]int{
		"package p\n\n// f is for whoever asks.\nfunc f() {}\n":                     1,
		"package p\n\nfunc letGo() {}\n":                                            1,
		"package p\n\ntype hostRival struct{ worldOf int }\n":                       2,
		"package p\n\nvar s = \"the host is handed over\"\n":                        1,
		"package p\n\n// It logs as well, passes the test and runs who-am-i.\n":     0,
		"package p\n\n// The annotation example.org/rack says in which rack it is.": 0,
		"package p\n\nvar stranger, wakened, turnstile, allWelcome int\n":           0,
	} {
		if found := wordsIn("p.go", text, words); len(found) != want {
			t.Errorf("%q: found %q, want %d", text, found, want)
		}
	}
	if found := wordsIn("p.md", "One.\nA stray lease, and a `rack`.\n  - was `letting go`\n", words); len(found) != 1 || !strings.HasPrefix(found[0], "p.md:2: ") {
		t.Errorf("in a page found %q", found)
	}
}

// wordsIn returns what a file has of the words, as "file:line: what".
func wordsIn(file, text string, words []word) []string {
	if filepath.Ext(file) == ".go" {
		return wordsInGo(file, text, words)
	}
	if filepath.Ext(file) == ".md" {
		text = quoted.ReplaceAllString(text, "``") // names of objects, files and values are as they are
	}
	return wordsInText(file, text, 1, words, func(w word) bool { return w.prose || w.shown && !strings.HasPrefix(file, "test/") })
}

// wordless are identifiers that have none of the words: most are in many files.
var wordless = map[string]bool{}

func wordsInGo(file, text string, words []word) []string {
	var found []string
	var s scanner.Scanner
	positions := token.NewFileSet().AddFile(file, -1, len(text))
	s.Init(positions, []byte(text), nil, scanner.ScanComments)
	for {
		at, kind, literal := s.Scan()
		line := positions.Line(at)
		switch kind {
		case token.EOF:
			return found
		case token.COMMENT:
			found = append(found, wordsInText(file, literal, line, words, func(w word) bool { return w.prose })...)
		case token.STRING:
			found = append(found, wordsInText(file, literal, line, words, func(w word) bool { return w.prose || w.shown && isMessage(file) })...)
		case token.IDENT:
			if !wordless[literal] {
				in := wordsInText(file, split(literal), line, words, func(w word) bool { return w.identifiers })
				wordless[literal] = len(in) == 0
				found = append(found, in...)
			}
		default:
		}
	}
}

func wordsInText(file, text string, line int, words []word, counts func(word) bool) []string {
	var found []string
	words = slices.DeleteFunc(slices.Clone(words), func(w word) bool { return !counts(w) || !w.pattern.MatchString(text) })
	if len(words) == 0 {
		return nil
	}
	for l := range strings.Lines(text) {
		for _, w := range words {
			if !formerName.MatchString(l) {
				for _, what := range w.pattern.FindAllString(l, -1) {
					found = append(found, fmt.Sprintf("%s:%d: %q: write %s", file, line, what, w.instead))
				}
			}
		}
		line++
	}
	return found
}

// isMessage reports whether the strings of a Go file are what users read.
func isMessage(file string) bool {
	_, told := within(file, []string{"controllers/explain", "cmd"})
	return told && !strings.HasSuffix(file, "_test.go")
}

// split is an identifier as its words: letGo is "let Go".
func split(identifier string) string {
	var b strings.Builder
	for i, r := range identifier {
		if r == '_' || i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		if r != '_' {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func avoided(t *testing.T) []word {
	t.Helper()
	var words []word
	for _, line := range linesOf(t, "words.tsv") {
		columns := strings.Split(line, "\t")
		if len(columns) != 3 || !slices.Contains([]string{"all", "identifiers", "prose", "shown"}, columns[2]) {
			t.Fatalf("words.tsv: %q is not a pattern, what to write instead, and where", line)
		}
		pattern, err := regexp.Compile("(?i)" + columns[0])
		if err != nil {
			t.Fatal(err)
		}
		where := columns[2]
		words = append(words, word{
			pattern: pattern, instead: columns[1], identifiers: where == "all" || where == "identifiers",
			prose: where == "all" || where == "prose", shown: where != "identifiers",
		})
	}
	return words
}

// linesOf are the lines of a file beside this one, without comments and empty ones.
func linesOf(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(content), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
}

func within(file string, folders []string) (string, bool) {
	i := slices.IndexFunc(folders, func(f string) bool { return file == f || strings.HasPrefix(file, f+"/") })
	if i < 0 {
		return "", false
	}
	return folders[i], true
}

// frozen are pages that are not rewritten, and those that have to name the words.
var frozen = []string{"docs/adr", "docs/glossary.md", "test/words_test.go"}

// formerName is a line of RULES.md that names a spec as it was called once.
var formerName = regexp.MustCompile("^  - was `")

// generated is at the top of files that programs write; their words are changed where they come from.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// glossaryFiles are all Go files that people write, golden files and pages.
func glossaryFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != root && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".github" || entry.Name() == "out" {
				return fs.SkipDir
			}
			return nil
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		if _, kept := within(file, frozen); !kept && isWritten(file) {
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(file string) bool {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return generated.Match(text)
	})
}

func isWritten(file string) bool {
	switch filepath.Ext(file) {
	case ".go", ".md":
		return true
	case ".txt":
		return strings.Contains(file, "/testdata/") && !strings.Contains(file, "/fuzz/")
	}
	return false
}
