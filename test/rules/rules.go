// Package rules reads test/RULES.md, the map of the tests: which rule is held by which test of which package, and what the ids in the names
// of tests stand for. The page says itself how it is written.
package rules

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is the page, seen from the top of the module.
const File = "test/RULES.md"

// Joint is what stands between the texts of containers and specs.
const Joint = " › "

// Page is what the page says.
type Page struct {
	Sections   []Section
	Families   []Family
	Statements []Statement
	Seeds      map[string]int // the ids of all documents and of their statements, and the line of each
}

// Section is what the page says of one package.
type Section struct {
	Line   int
	Folder string // of the package, seen from the top of the module
	Rules  []Rule
}

// Rule is one rule, and the tests of its section's package that hold it.
type Rule struct {
	Line int
	Text string
	Held []Test
	Was  []string
}

// Test is a Go test, perhaps one below another, or one or more specs: all whose text begins with Name.
type Test struct {
	Line int
	Name string
	Go   bool
}

// Family is a set of ids that mean the same in the same places: folders, or single files.
type Family struct {
	Line   int
	Name   string
	Places []string
	IDs    map[string]int // and the line of each
}

// Statement is a sentence of a document. What it says is held by tests of any package, or not true here and a row of docs/differences.md, or both in
// part.
type Statement struct {
	Line    int
	ID      string // as in the names of tests, such as "seed 0.1"
	Text    string
	Held    []Proof
	Differs []Difference
}

// Proof is a test of the package in a folder. A spec is named with its containers.
type Proof struct {
	Folder string
	Test
}

// Difference is the row of docs/differences.md that begins with a cell, and why it is so.
type Difference struct {
	Line int
	Row  string
	Why  string
}

var (
	folder = regexp.MustCompile(`^[a-z][a-z0-9-]*(/[a-z0-9-]+)*$`)
	goTest = regexp.MustCompile(`^(Test|Fuzz|Example)([A-Z0-9_]\w*)?(/.+)?$`)
	former = regexp.MustCompile(`^test/[a-z0-9/-]+` + Joint + `.`)
	quoted = regexp.MustCompile("`([^`]+)`")
	alone  = regexp.MustCompile("^`([^`]+)`$")

	document  = regexp.MustCompile(`^### (seed \d{3}): .`)
	statement = regexp.MustCompile(`^- (\d\.\d+): (.+)$`)
	proof     = regexp.MustCompile("^  - `([a-z0-9/-]+)" + Joint + "(.+)`$")
	different = regexp.MustCompile(`^  - different, see "([^"]+)": (.+)$`)
)

// Read reads the page of the module whose top folder is root. The error names every line that cannot be understood.
func Read(root string) (Page, error) {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(File)))
	if err != nil {
		return Page{}, fmt.Errorf("read the map of the tests: %w", err)
	}
	return Parse(string(content))
}

// Parse reads the text of the page.
func Parse(text string) (Page, error) {
	r := reader{page: Page{Seeds: map[string]int{}}}
	for line := range strings.Lines(text) {
		r.number++
		r.take(strings.TrimRight(line, " \n"))
	}
	for _, s := range r.page.Sections {
		if len(s.Rules) == 0 {
			r.complain(s.Line, s.Folder+" has no rules: add one or remove the heading")
		}
		for _, rule := range s.Rules {
			if len(rule.Held) == 0 {
				r.complain(rule.Line, "nothing holds this rule: put the test below it, as \"  - `text of the spec`\"")
			}
		}
	}
	for _, s := range r.page.Statements {
		if len(s.Held) == 0 && len(s.Differs) == 0 {
			r.complain(s.Line, s.ID+" is neither held by a test nor different: put one of these below it, \"  - `folder"+Joint+
				"test`\" or \"  - different, see \"row\": why\"")
		}
	}
	if len(r.complaints) > 0 {
		return r.page, fmt.Errorf("cannot understand %s:\n%s", File, strings.Join(r.complaints, "\n"))
	}
	return r.page, nil
}

// reader knows where on the page it is.
type reader struct {
	number     int
	page       Page
	complaints []string

	place     func(*reader, string) // what takes the lines of this part of the page
	container string
	places    bool // whether the line belongs to the paragraph with the places of a family
}

func (r *reader) complain(line int, what string) {
	r.complaints = append(r.complaints, fmt.Sprintf("%s:%d: %s", File, line, what))
}

func (r *reader) take(line string) {
	title, heading := strings.CutPrefix(line, "## ")
	switch {
	case heading && folder.MatchString(title):
		r.page.Sections = append(r.page.Sections, Section{Line: r.number, Folder: title})
		r.place, r.container = (*reader).inSection, ""
	case heading && title == "Where the ids come from":
		r.place = (*reader).amongIDs
	case heading && title == "What the documents say":
		r.place = (*reader).amongStatements
	case heading:
		r.place = nil
	case r.place != nil:
		r.place(r, line)
	}
}

func (r *reader) inSection(line string) {
	s := &r.page.Sections[len(r.page.Sections)-1]
	trimmed := strings.TrimSpace(line)
	switch {
	case line == "":
	case strings.HasPrefix(line, "### "):
		r.container = strings.TrimPrefix(line, "### ")
	case strings.HasPrefix(line, "- "):
		s.Rules = append(s.Rules, Rule{Line: r.number, Text: line[2:]})
		if name := alone.FindStringSubmatch(line[2:]); name != nil {
			r.held(&s.Rules[len(s.Rules)-1], name[1])
		}
	case len(s.Rules) == 0 && r.container == "": // the sentence on the package
	case len(s.Rules) == 0 || !strings.HasPrefix(line, "  "):
		r.complain(r.number, "this is neither a heading nor a rule: begin a rule with \"- \", and what follows it with two blanks")
	case strings.HasPrefix(line, "  - "):
		r.inRule(&s.Rules[len(s.Rules)-1], strings.TrimPrefix(trimmed, "- "))
	case len(s.Rules[len(s.Rules)-1].Held) > 0:
		r.complain(r.number, "a rule is one sentence, and its tests come after it: put this before them")
	default:
		s.Rules[len(s.Rules)-1].Text += " " + trimmed
	}
}

// inRule takes an item below a rule: a test, or where the rule was held before.
func (r *reader) inRule(rule *Rule, item string) {
	was, moved := strings.CutPrefix(item, "was ")
	name := alone.FindStringSubmatch(was)
	switch {
	case name == nil:
		r.complain(r.number, "this is no test: write \"  - `name`\" or \"  - was `package › spec`\", each on one line")
	case !moved:
		r.held(rule, name[1])
	case !former.MatchString(name[1]):
		r.complain(r.number, "this is no former spec: write \"was `test/folder › container › spec`\"")
	default:
		rule.Was = append(rule.Was, name[1])
	}
}

func (r *reader) held(rule *Rule, name string) {
	test := Test{Line: r.number, Name: name, Go: goTest.MatchString(name)}
	switch {
	case test.Go:
	case r.container == "":
		r.complain(r.number, "this spec has no container: put its outer text above as \"### text\"; or is it meant to be a Go test?")
	default:
		test.Name = r.container + Joint + name
	}
	rule.Held = append(rule.Held, test)
}

func (r *reader) amongIDs(line string) {
	if name, found := strings.CutPrefix(line, "### "); found {
		r.page.Families = append(r.page.Families, Family{Line: r.number, Name: name, IDs: map[string]int{}})
		return
	}
	if len(r.page.Families) == 0 {
		return
	}
	f := &r.page.Families[len(r.page.Families)-1]
	r.places = strings.HasPrefix(line, "Ids in ") || r.places && line != ""
	switch {
	case r.places:
		for _, place := range quoted.FindAllStringSubmatch(line, -1) {
			f.Places = append(f.Places, place[1])
		}
	case strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| id |"):
		r.explained(f, strings.Split(strings.Trim(line, "| "), " | "))
	}
}

func (r *reader) explained(f *Family, cells []string) {
	if len(cells) != 3 || slices.Contains(cells, "") {
		r.complain(r.number, "an id needs three cells: the id, what it says, and its source")
		return
	}
	if before := f.IDs[cells[0]]; before != 0 {
		r.complain(r.number, fmt.Sprintf("%s is explained in line %d already: remove one", cells[0], before))
	}
	f.IDs[cells[0]] = r.number
}

func (r *reader) amongStatements(line string) {
	if name := document.FindStringSubmatch(line); name != nil {
		r.seed(name[1])
		return
	}
	if found := statement.FindStringSubmatch(line); found != nil {
		id := "seed " + found[1]
		r.seed(id)
		r.page.Statements = append(r.page.Statements, Statement{Line: r.number, ID: id, Text: found[2]})
		return
	}
	if len(r.page.Statements) > 0 && strings.HasPrefix(line, "  ") { // any other line is about the documents
		r.inStatement(&r.page.Statements[len(r.page.Statements)-1], line)
	}
}

func (r *reader) inStatement(s *Statement, line string) {
	held, differs := proof.FindStringSubmatch(line), different.FindStringSubmatch(line)
	switch {
	case held != nil:
		s.Held = append(s.Held, Proof{Folder: held[1], Test: Test{Line: r.number, Name: held[2], Go: goTest.MatchString(held[2])}})
	case differs != nil:
		s.Differs = append(s.Differs, Difference{Line: r.number, Row: differs[1], Why: differs[2]})
	case strings.HasPrefix(line, "    ") && len(s.Differs) > 0:
		s.Differs[len(s.Differs)-1].Why += " " + strings.TrimSpace(line)
	case strings.HasPrefix(line, "  - ") || len(s.Held)+len(s.Differs) > 0:
		r.complain(r.number, "this is neither a test nor a difference: write \"  - `folder"+Joint+"test`\" or \"  - different, see \"row\": why\"")
	default:
		s.Text += " " + strings.TrimSpace(line)
	}
}

// seed notes the id of a document or of a statement.
func (r *reader) seed(id string) {
	if before := r.page.Seeds[id]; before != 0 {
		r.complain(r.number, fmt.Sprintf("%s is in line %d already: remove one", id, before))
	}
	r.page.Seeds[id] = r.number
}

// Of is the section of the package in a folder.
func (p Page) Of(folder string) (Section, bool) {
	i := slices.IndexFunc(p.Sections, func(s Section) bool { return s.Folder == folder })
	if i < 0 {
		return Section{}, false
	}
	return p.Sections[i], true
}

// FamiliesOf are the families whose ids the names of tests in a file use: those with the longest place that the file is in.
func (p Page) FamiliesOf(file string) []Family {
	var found []Family
	longest := 0
	for _, f := range p.Families {
		for _, place := range f.Places {
			if file != place && !strings.HasPrefix(file, place+"/") || len(place) < longest {
				continue
			}
			if len(place) > longest {
				found, longest = nil, len(place)
			}
			found = append(found, f)
		}
	}
	return found
}

// Differences says what is to do so that the section and the specs of its package agree.
func (s Section) Differences(specs []string) []string {
	var found []string
	known := map[string]bool{}
	for _, rule := range s.Rules {
		for _, test := range rule.Held {
			if test.Go {
				continue
			}
			covered := covered(test.Name, specs)
			if len(covered) == 0 {
				found = append(found, fmt.Sprintf("%s:%d: %s has no spec %q: correct the line, or move the rule to the section of the package that holds it",
					File, test.Line, s.Folder, test.Name))
			}
			for _, spec := range covered {
				known[spec] = true
			}
		}
	}
	for _, spec := range specs {
		if !known[spec] {
			found = append(found, fmt.Sprintf("%s:%d: the spec %q is not below \"## %s\": add the rule that it holds", File, s.Line, spec, s.Folder))
		}
	}
	return found
}

// covered are the specs of that text, or in the container of that text.
func covered(name string, specs []string) []string {
	var found []string
	for _, spec := range specs {
		if spec == name || strings.HasPrefix(spec, name+Joint) {
			found = append(found, spec)
		}
	}
	return found
}

// Root is the top folder of the module that a folder is in, and the folder as seen from there.
func Root(dir string) (root, folder string, err error) {
	for root = dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(File))); err == nil {
			return root, path.Clean(filepath.ToSlash(strings.TrimPrefix(dir, root+string(filepath.Separator)))), nil
		}
		if root == filepath.Dir(root) {
			return "", "", fmt.Errorf("no %s above %s", File, dir)
		}
	}
}
