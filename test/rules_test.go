package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/rules"
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

// Without this, a check that sees nothing would find nothing wrong.
func TestTheRulesCheckFindsMistakes(t *testing.T) {
	in := []testFile{{path: "a/b_test.go", funcs: []string{"TestIt", "TestW2Fails"}, texts: []string{"one", "two/three", "C03, seed 0.1, 2.10: it is", "seed 000"}}}
	for name, there := range map[string]bool{
		"TestIt": true, "TestIt/one": true, "TestIt/one/two/three": true, "TestIt/two/three/one": true,
		"TestThat": false, "TestIt/two": false, "TestIt/one/two": false, "TestThat/one": false,
	} {
		if why := missing(rules.Test{Name: name, Go: true}, in); (why == "") != there {
			t.Errorf("%s: %q", name, why)
		}
	}
	want := []string{"C03", "W2", "seed 0.1", "seed 000", "seed 2.10"}
	if got := slices.Sorted(maps.Keys(in[0].ids())); !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
	page := rules.Page{Families: []rules.Family{{Name: "A", Places: []string{"api", "none"}, IDs: map[string]int{"W1": 1, "W2": 2}}}}
	page.Families = append(page.Families, rules.Family{Name: "B", Places: []string{"cmd"}, IDs: map[string]int{"W4": 3, "W5": 4}},
		rules.Family{Name: "C", Places: []string{"cmd"}, IDs: map[string]int{"W4": 5}})
	found := unexplained(page, []use{{"W1", "api/a_test.go"}, {"W3", "api/a_test.go"}, {"W1", "test/a_test.go"}, {"W4", "cmd/a_test.go"}, {"W5", "cmd/a_test.go"}})
	if len(found) != 5 { // W2 is not used, W3 and the place test are not explained, the place none is not there, and W4 is one of two
		t.Errorf("found %q", found)
	}
}

// use is an id in the name of a test.
type use struct{ id, file string }

// unexplained are ids without an entry, or with two, where they are used, and entries that no test uses.
func unexplained(page rules.Page, used []use) []string {
	var found []string
	known := map[string]bool{}
	for _, u := range used {
		if page.Seeds[u.id] != 0 {
			continue
		}
		families := page.FamiliesOf(u.file)
		var with []string
		for _, family := range families {
			if family.IDs[u.id] != 0 {
				with = append(with, family.Name)
				known[family.Name+" "+u.id] = true
			}
		}
		switch {
		case len(families) == 0:
			found = append(found, fmt.Sprintf("%s: a test is named %s, but no family of ids in %s has this folder after \"Ids in\": add it", u.file, u.id, rules.File))
		case len(with) == 0:
			found = append(found, fmt.Sprintf("%s: a test is named %s: add a line for it to the table of %s in %s:%d, or take it out of the name",
				u.file, u.id, families[0].Name, rules.File, families[0].Line))
		case len(with) > 1:
			found = append(found, fmt.Sprintf("%s: %s can be one of %s: put the tests of these families into different files", u.file, u.id, strings.Join(with, " and ")))
		}
	}
	for _, family := range page.Families {
		for id, line := range family.IDs {
			if !known[family.Name+" "+id] {
				found = append(found, fmt.Sprintf("%s:%d: no test of %s is named %s any more: remove the line", rules.File, line, family.Name, id))
			}
		}
		for _, place := range family.Places {
			if _, err := os.Stat(filepath.Join(root, place)); err != nil {
				found = append(found, fmt.Sprintf("%s:%d: ids of %s are in %s, which is not there: correct the list", rules.File, family.Line, family.Name, place))
			}
		}
	}
	slices.Sort(found)
	return found
}

func readRules(t *testing.T) rules.Page {
	t.Helper()
	page, err := rules.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return page
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

// missing says what a test lacks to be one of the files' tests, if anything. Each part of a sub-test's name has to be a text somewhere in
// the package; of one that is put together, name the Go test alone.
func missing(test rules.Test, in []testFile) string {
	name, sub, below := strings.Cut(test.Name, "/")
	switch {
	case !test.Go:
		for text := range strings.SplitSeq(test.Name, rules.Joint) {
			if !madeOf(text, in) {
				return fmt.Sprintf("no spec or container %q", text)
			}
		}
		return ""
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

func filesIn(all []testFile, folder string) []testFile {
	return slices.DeleteFunc(slices.Clone(all), func(f testFile) bool { return filepath.ToSlash(filepath.Dir(f.path)) != folder })
}

var ofTheMap = []string{"test/rules_test.go", "test/statements_test.go", "test/rules/rules.go", "test/rules/rules_test.go"}

// testFiles reads all files with tests but those of the map itself, whose names are examples.
func testFiles(t *testing.T) []testFile {
	t.Helper()
	var found []testFile
	walk(t, func(file string) {
		if hasTests(file) && !strings.HasPrefix(file, "hack/") && !slices.Contains(ofTheMap, file) {
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
