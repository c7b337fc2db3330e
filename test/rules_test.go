package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestRulesExplainEveryID(t *testing.T) {
	page := readRules(t)
	var used []use
	for _, f := range testFiles(t) {
		for id := range f.ids() {
			used = append(used, use{id: id, file: f.path})
		}
	}
	if len(used) < 50 {
		t.Errorf("only %d ids were found", len(used))
	}
	report(t, unexplained(page, used))
}

// use is an id in the name of a test.
type use struct{ id, file string }

// unexplained are ids without an entry, or with two, where they are used, and entries that no test uses.
func unexplained(page rulesPage, used []use) []string {
	var found []string
	known := map[string]bool{}
	for _, u := range used {
		if page.seeds[u.id] {
			continue
		}
		var with []string
		for _, family := range page.familiesOf(u.file) {
			if family.ids[u.id] {
				with = append(with, family.name)
				known[family.name+" "+u.id] = true
			}
		}
		if len(with) != 1 {
			found = append(found, fmt.Sprintf("%s: a test is named %s, which the families of this folder in %s explain %d times: "+
				"add a line or a place there, or take it out of the name", u.file, u.id, rulesFile, len(with)))
		}
	}
	for _, family := range page.families {
		for id := range family.ids {
			if !known[family.name+" "+id] {
				found = append(found, fmt.Sprintf("%s: no test of %s is named %s any more: remove the line", rulesFile, family.name, id))
			}
		}
		for _, place := range family.places {
			if _, err := os.Stat(filepath.Join(root, place)); err != nil {
				found = append(found, fmt.Sprintf("%s: ids of %s are in %s, which is not there: correct the list", rulesFile, family.name, place))
			}
		}
	}
	return found
}

// testFile is what the names of tests in a file are made from.
type testFile struct {
	path  string // seen from the top of the module
	funcs []string
	texts []string // all string literals
}

var (
	letterID = regexp.MustCompile(`\b(?:[WCN]\d{1,3}|NHC#\d+)\b`)
	funcID   = regexp.MustCompile(`^Test([WCN]\d{1,3})(?:[A-Z]|$)`)
	seedIDs  = regexp.MustCompile(`\bseeds? ((?:\d\.\d+|\d{3})(?:(?:, (?:seed )?| and )(?:\d\.\d+|\d{3}))*)`)
	seedID   = regexp.MustCompile(`\d\.\d+|\d{3}`)
)

// ids are those in names of tests. A test's name can be any text, so all texts are searched.
func (f testFile) ids() map[string]bool {
	found := map[string]bool{}
	for _, name := range f.funcs {
		if id := funcID.FindStringSubmatch(name); id != nil {
			found[id[1]] = true
		}
	}
	for _, text := range f.texts {
		for _, id := range letterID.FindAllString(text, -1) {
			found[id] = true
		}
		for _, list := range seedIDs.FindAllStringSubmatch(text, -1) {
			for _, id := range seedID.FindAllString(list[1], -1) {
				found["seed "+id] = true
			}
		}
	}
	return found
}

var goTest = regexp.MustCompile(`^(Test|Fuzz|Example)([A-Z0-9_]\w*)?(/.+)?$`)

// missing says what a test lacks to be one of the files' tests, if anything. Each part of a sub-test's name has to be a text somewhere in
// the package; of one that is put together, name the Go test alone.
func missing(test string, in []testFile) string {
	if !goTest.MatchString(test) {
		for text := range strings.SplitSeq(test, joint) {
			if !madeOf(text, in) {
				return fmt.Sprintf("no spec or container %q", text)
			}
		}
		return ""
	}
	name, sub, below := strings.Cut(test, "/")
	switch {
	case !slices.ContainsFunc(in, func(f testFile) bool { return slices.Contains(f.funcs, name) }):
		return "no " + name
	case below && !madeOf(sub, in):
		return fmt.Sprintf("no test %q below %s", sub, name)
	}
	return ""
}

// madeOf tries every slash, since those in names look like those between them.
func madeOf(sub string, in []testFile) bool {
	if slices.ContainsFunc(in, func(f testFile) bool { return slices.Contains(f.texts, sub) }) {
		return true
	}
	for i, r := range sub {
		if r == '/' && madeOf(sub[:i], in) && madeOf(sub[i+1:], in) {
			return true
		}
	}
	return false
}

// testFiles reads all files with tests but those of these checks, whose names are examples.
func testFiles(t *testing.T) []testFile {
	t.Helper()
	var found []testFile
	walk(t, func(file string) {
		if hasTests(file) && !strings.HasPrefix(file, "hack/") && filepath.Dir(file) != "test" {
			found = append(found, readTestFile(t, file))
		}
	})
	return found
}

// hasTests says whether a file has tests, or tables of them: below test/ these are also in files that several packages use.
func hasTests(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") && strings.HasSuffix(file, ".go")
}

func readTestFile(t *testing.T, file string) testFile {
	t.Helper()
	f := testFile{path: file}
	ast.Inspect(parse(t, filepath.Join(root, file), nil), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				f.funcs = append(f.funcs, n.Name.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				f.texts = append(f.texts, text)
			}
		}
		return true
	})
	return f
}
