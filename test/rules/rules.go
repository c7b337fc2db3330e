// Package rules reads test/RULES.md: what the ids in the names of tests stand for, and which tests hold each sentence of the documents that
// users have read. The page says itself how it is written.
package rules

import (
	"fmt"
	"os"
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
	Families   []Family
	Statements []Statement
	Seeds      map[string]int // the ids of all documents and of their statements, and the line of each
}

// Test is a Go test, perhaps one below another, or a spec: the texts of its containers and its own, with Joint between them.
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
	goTest = regexp.MustCompile(`^(Test|Fuzz|Example)([A-Z0-9_]\w*)?(/.+)?$`)
	quoted = regexp.MustCompile("`([^`]+)`")

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

	place  func(*reader, string) // what takes the lines of this part of the page
	places bool                  // whether the line belongs to the paragraph with the places of a family
}

func (r *reader) complain(line int, what string) {
	r.complaints = append(r.complaints, fmt.Sprintf("%s:%d: %s", File, line, what))
}

func (r *reader) take(line string) {
	title, heading := strings.CutPrefix(line, "## ")
	switch {
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
