package test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

func TestRulesExplainEveryID(t *testing.T) {
	page, files := readRules(t), testFiles(t)
	report(t, unexplained(page, files))
	for _, family := range page.families {
		for _, place := range family.places {
			if _, err := os.Stat(filepath.Join(root, place)); err != nil {
				t.Errorf("%s: ids of %s are in %s, which is not there: correct the list", rulesFile, family.name, place)
			}
		}
	}
}

// unexplained returns the ids in test names that have no entry in test/RULES.md, or two, and the entries that no test uses.
func unexplained(page rulesPage, files []testFile) []string {
	var found []string
	used := map[string]bool{}
	for _, file := range files {
		families := page.familiesOf(file.path)
		for id := range file.ids() {
			times := 0
			for _, family := range families {
				if family.ids[id] {
					used[family.name+" "+id] = true
					times++
				}
			}
			if times != 1 && !page.seeds[id] {
				found = append(found, fmt.Sprintf("%s: a test is named %s, which the families of this folder in %s explain %d times: "+
					"add a line or a place there, or take it out of the name", file.path, id, rulesFile, times))
			}
		}
	}
	for _, family := range page.families {
		for id := range family.ids {
			if !used[family.name+" "+id] {
				found = append(found, fmt.Sprintf("%s: no test of %s is named %s any more: remove the line", rulesFile, family.name, id))
			}
		}
	}
	return found
}

// testFile has all texts of a file that the names of its tests can be made from.
type testFile struct {
	path  string // relative to the root of the module
	funcs []string
	texts []string // all string literals
}

var (
	letterID = regexp.MustCompile(`\b(?:[WCN]\d{1,3}|NHC#\d+)\b`)
	funcID   = regexp.MustCompile(`^Test([WCN]\d{1,3})(?:[A-Z]|$)`)
	seedIDs  = regexp.MustCompile(`\bseeds? ((?:\d\.\d+|\d{3})(?:(?:, (?:seed )?| and )(?:\d\.\d+|\d{3}))*)`)
	seedID   = regexp.MustCompile(`\d\.\d+|\d{3}`)
)

// ids returns the ids in the names of tests. Any string may become part of a test's name, so all strings are searched.
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

// testFiles reads all files with tests. Below test/ it reads all Go files, because helpers there have tables of tests too. It skips this
// folder, whose ids are examples.
func testFiles(t *testing.T) []testFile {
	t.Helper()
	var found []testFile
	walk(t, func(file string) {
		below := strings.HasPrefix(file, "test/") && strings.HasSuffix(file, ".go")
		if (below || strings.HasSuffix(file, "_test.go")) && !strings.HasPrefix(file, "hack/") && filepath.Dir(file) != "test" {
			found = append(found, readTestFile(file, content(t, file)))
		}
	})
	return found
}

var declared = regexp.MustCompile(`(?m)^func (\w+)\(`)

func readTestFile(file, source string) testFile {
	f := testFile{path: file}
	for _, function := range declared.FindAllStringSubmatch(source, -1) {
		f.funcs = append(f.funcs, function[1])
	}
	for _, quoted := range textsOf(source, false) {
		if text, err := strconv.Unquote(quoted); err == nil {
			f.texts = append(f.texts, text)
		}
	}
	return f
}

// statements is the number of statements in the documents, which are final.
const statements = 99

func TestEveryStatementOfTheDocumentsIsTestedOrADifference(t *testing.T) {
	page := readRules(t)
	ids := map[string]bool{}
	for _, s := range page.statements {
		ids[s.id] = true
	}
	if len(page.statements) != statements || len(ids) != statements {
		t.Errorf("%s has %d statements with %d ids, want %d", rulesFile, len(page.statements), len(ids), statements)
	}
	report(t, untrue(page, testFiles(t), differentRows(content(t, differencesFile))))
}

// differencesFile has a table of the differences from the documents, below the heading "From the documents".
const differencesFile = "docs/differences.md"

// differentRows returns the first cell of each row of that table.
func differentRows(text string) []string {
	_, table, _ := strings.Cut(text, "## From the documents\n")
	_, table, _ = strings.Cut(table, "|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for line := range strings.Lines(table) {
		row, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows = append(rows, row)
	}
	return rows
}

// untrue returns the statements without an existing test or row of differences, and the rows that no statement names.
func untrue(page rulesPage, files []testFile, rows []string) []string {
	var found []string
	named := map[string]bool{}
	for _, s := range page.statements {
		if len(s.held)+len(s.differs) == 0 {
			found = append(found, s.id+" is neither held by a test nor different")
		}
		for _, p := range s.held {
			if !p.exists(files) {
				found = append(found, fmt.Sprintf("%s: %s: %s has no test %s", rulesFile, s.id, p.folder, p.test))
			}
		}
		for _, row := range s.differs {
			named[row] = true
			if !slices.Contains(rows, row) {
				found = append(found, fmt.Sprintf("%s: %s has no row %q, which %s names", rulesFile, differencesFile, row, s.id))
			}
		}
	}
	for _, row := range rows {
		if !named[row] {
			found = append(found, fmt.Sprintf("%s: no statement in %s names the row %q", differencesFile, rulesFile, row))
		}
	}
	return found
}

const rulesFile = "test/RULES.md"

// joint separates the texts of containers and specs in the name of a spec.
const joint = " › "

// rulesPage is the content of test/RULES.md.
type rulesPage struct {
	families   []*family
	statements []statement
	seeds      map[string]bool // the ids of all documents and of their statements
}

// A family is a set of ids that have the same meaning in the same folders or files.
type family struct {
	name   string
	places []string
	ids    map[string]bool
}

// A statement is a sentence of a document. Tests prove it, or rows of docs/differences.md say that it does not hold here, or both.
type statement struct {
	id      string // as in the names of tests, such as "seed 0.1"
	held    []proof
	differs []string
}

// A proof is a test in a folder. The name of a spec includes its containers.
type proof struct{ folder, test string }

var (
	codeIn = regexp.MustCompile("`([^`]+)`")

	placesLine    = regexp.MustCompile("(?m)^(?:Ids in )?(?:`[^`]+`[,.] ?)+$")
	idLine        = regexp.MustCompile(`(?m)^\| (\w+|NHC#\d+) \| [^|\n]+ \| .+ \|$`)
	documentLine  = regexp.MustCompile(`^### (seed \d{3}): .`)
	statementLine = regexp.MustCompile(`^- (\d\.\d+): .`)
	proofLine     = regexp.MustCompile("^  - `([a-z0-9/-]+)" + joint + "(.+)`$")
	differentLine = regexp.MustCompile(`^  - different, see "([^"]+)": .`)
)

func readRules(t *testing.T) rulesPage {
	t.Helper()
	page := rulesPage{seeds: map[string]bool{}}
	ids, documents, _ := strings.Cut(content(t, rulesFile), "\n## What the documents say\n")
	_, ids, _ = strings.Cut(ids, "\n### ")
	for part := range strings.SplitSeq(ids, "\n### ") {
		page.families = append(page.families, readFamily(t, part))
	}
	for line := range strings.Lines(documents) {
		page.addStatement(t, strings.TrimRight(line, " \n"))
	}
	return page
}

// readFamily reads a heading, the places below it, and a table of ids.
func readFamily(t *testing.T, part string) *family {
	t.Helper()
	name, text, _ := strings.Cut(part, "\n")
	f := &family{name: name, ids: map[string]bool{}}
	for _, line := range placesLine.FindAllString(text, -1) {
		for _, place := range codeIn.FindAllStringSubmatch(line, -1) {
			f.places = append(f.places, place[1])
		}
	}
	for _, row := range idLine.FindAllStringSubmatch(text, -1) {
		if f.ids[row[1]] {
			t.Errorf("%s explains %s twice", rulesFile, row[1])
		}
		f.ids[row[1]] = row[1] != "id"
	}
	delete(f.ids, "id")
	return f
}

// addStatement reads one line of the list of statements.
func (p *rulesPage) addStatement(t *testing.T, line string) {
	t.Helper()
	last := len(p.statements) - 1
	if found := documentLine.FindStringSubmatch(line); found != nil {
		p.seeds[found[1]] = true
	} else if found := statementLine.FindStringSubmatch(line); found != nil {
		p.seeds["seed "+found[1]] = true
		p.statements = append(p.statements, statement{id: "seed " + found[1]})
	} else if found := proofLine.FindStringSubmatch(line); found != nil {
		p.statements[last].held = append(p.statements[last].held, proof{found[1], found[2]})
	} else if found := differentLine.FindStringSubmatch(line); found != nil {
		p.statements[last].differs = append(p.statements[last].differs, found[1])
	} else if strings.HasPrefix(line, "  - ") {
		t.Errorf("%s: %q is neither a test, `folder%stest`, nor \"different, see \"row\": why\"", rulesFile, line, joint)
	}
}

// familiesOf returns the families whose places include the file, or else the nearest folder above it.
func (p rulesPage) familiesOf(file string) []*family {
	var found []*family
	for place := file; len(found) == 0 && place != "."; place = path.Dir(place) {
		for _, f := range p.families {
			if slices.Contains(f.places, place) {
				found = append(found, f)
			}
		}
	}
	return found
}

var goTest = regexp.MustCompile(`^(?:Test|Fuzz|Example)[A-Z0-9_]`)

// exists reports whether the folder has the test. Each part of the name of a sub-test or spec must be a string literal in the folder. If
// the code computes a name, the page must name the Go test alone.
func (p proof) exists(files []testFile) bool {
	texts, funcs := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if filepath.Dir(f.path) != p.folder {
			continue
		}
		for _, text := range f.texts {
			texts[text] = true
		}
		for _, name := range f.funcs {
			funcs[name] = true
		}
	}
	if goTest.MatchString(p.test) {
		name, sub, below := strings.Cut(p.test, "/")
		return funcs[name] && (!below || madeOf(sub, texts))
	}
	return !slices.ContainsFunc(strings.Split(p.test, joint), func(part string) bool { return !madeOf(part, texts) })
}

// madeOf splits the name at every slash, because a slash can be part of a name or separate two names.
func madeOf(name string, texts map[string]bool) bool {
	if texts[name] {
		return true
	}
	for i, r := range name {
		if r == '/' && madeOf(name[:i], texts) && madeOf(name[i+1:], texts) {
			return true
		}
	}
	return false
}

const specsIntroduction = `# Specs

The tests and specs below ` + "`test/`" + `, by folder; the rest is beside the code. ` + "`make generate`" + ` writes this page.
`

// test/SPECS.md is generated, so nobody has to maintain it.
func TestSpecsAreDocumented(t *testing.T) {
	folders := map[string][]string{}
	walk(t, func(file string) {
		if path.Ext(file) == ".go" && strings.HasPrefix(file, "test/") && path.Dir(file) != "test" {
			folders[path.Dir(file)] = append(folders[path.Dir(file)], specsIn(parse(t, filepath.Join(root, file), nil))...)
		}
	})
	var page strings.Builder
	page.WriteString(specsIntroduction)
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if specs := folders[folder]; len(specs) > 0 {
			slices.Sort(specs)
			fmt.Fprintf(&page, "\n## %s: %d\n\n- %s\n", folder, len(specs), strings.Join(specs, "\n- "))
		}
	}
	golden.Compare(t, "SPECS.md", page.String())
}

// containers and specs are the functions of Ginkgo that take a text.
var (
	containers = []string{"Describe", "Context", "When", "DescribeTable"}
	specs      = []string{"It", "Specify", "Entry"}
)

// specsIn returns the names of the tests and specs of a file. The name of a spec includes its containers.
func specsIn(file *ast.File) []string {
	var found []string
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && isTest(function) {
			found = append(found, function.Name.Name)
		}
		found = append(found, specsBelow(declared, "")...)
	}
	return found
}

// isTest excludes TestMain and helpers, whose parameter is not a *testing.T.
func isTest(function *ast.FuncDecl) bool {
	params := function.Type.Params.List
	return function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && len(params) == 1 &&
		types.ExprString(params[0].Type) == "*testing.T"
}

func specsBelow(n ast.Node, around string) []string {
	var found []string
	ast.Inspect(n, func(child ast.Node) bool {
		call, ok := child.(*ast.CallExpr)
		if !ok || child == n || len(call.Args) == 0 {
			return true
		}
		_, name, qualified := strings.Cut(types.ExprString(call.Fun), ".")
		if !qualified {
			name = types.ExprString(call.Fun)
		}
		text, ok := textOf(call.Args[0])
		switch {
		case ok && slices.Contains(containers, name):
			found = append(found, specsBelow(call, around+text+joint)...)
			return false
		case ok && slices.Contains(specs, name):
			found = append(found, around+text)
		}
		return true
	})
	return found
}

// textOf returns the text of a string expression, with "…" for the parts that are computed.
func textOf(n ast.Expr) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, a := textOf(n.X)
		right, b := textOf(n.Y)
		return cmp.Or(left, "…") + cmp.Or(right, "…"), a || b
	}
	return "", false
}
