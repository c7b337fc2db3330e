package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/rules"
)

// differencesFile has the table of what is different from the documents, below a heading of its own.
const (
	differencesFile    = "docs/differences.md"
	differencesHeading = "## From the documents\n"
)

// How many statements each document has. Another number is a slip: the documents do not change any more.
var statementsOf = map[string]int{"0": 25, "1": 19, "2": 18, "3": 17, "4": 20}

func TestEveryStatementOfTheDocumentsIsListed(t *testing.T) {
	page := readRules(t)
	known := map[string]bool{}
	for _, s := range page.Statements {
		known[s.ID] = true
	}
	total := 0
	for document, count := range statementsOf {
		total += count
		for i := 1; i <= count; i++ {
			if id := fmt.Sprintf("seed %s.%d", document, i); !known[id] {
				t.Errorf("%s lacks %s", rules.File, id)
			}
		}
	}
	if len(page.Statements) != total {
		t.Errorf("%s has %d statements, want %d", rules.File, len(page.Statements), total)
	}
}

func TestEveryStatementOfTheDocumentsIsTestedOrADifference(t *testing.T) {
	report(t, untrue(readRules(t), testFiles(t), differentRows(content(t, differencesFile))))
}

// Without this, a check that sees nothing would find nothing wrong.
func TestTheStatementsCheckFindsMistakes(t *testing.T) {
	in := []testFile{{path: "a/b_test.go", funcs: []string{"TestIt"}, texts: []string{"Outer", "a spec"}}}
	rows := differentRows("# A\n| not here | b | c |\n" + differencesHeading +
		"| what | | |\n|---|---|---|\n| a row | b | c |\n| another | b | c |\n\n## C\n| no row | b | c |\n")
	page := rules.Page{}
	say := func(id string, differs string, held ...rules.Test) {
		s := rules.Statement{ID: "seed " + id}
		for _, test := range held {
			s.Held = append(s.Held, rules.Proof{Folder: "a", Test: test})
		}
		if differs != "" {
			s.Differs = []rules.Difference{{Row: differs, Why: "it would do harm"}}
		}
		page.Statements = append(page.Statements, s)
	}
	say("0.1", "a row", rules.Test{Name: "TestIt", Go: true}, rules.Test{Name: "Outer › a spec"})
	say("0.2", "", rules.Test{Name: "TestThat", Go: true}) // no such test
	say("0.3", "not here")                                 // of another table
	say("0.4", "no row")                                   // of another table
	say("0.5", "", rules.Test{Name: "Outer › no spec"})    // no such spec
	if found := untrue(page, in, rows); len(found) != 5 {  // and one row is named by no statement
		t.Errorf("found %d: %q", len(found), found)
	}
}

// differentRows are the rows of the table of differences from the documents, by their first cell.
func differentRows(text string) []string {
	_, table, _ := strings.Cut(text, differencesHeading)
	table, _, _ = strings.Cut(table, "\n## ")
	table, _, _ = strings.Cut(table, "\n\nTheir manifests ")
	var rows []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if row, is := strings.CutPrefix(cells[0], "| "); is && len(cells) >= 3 && row != "what" {
			rows = append(rows, row)
		}
	}
	return rows
}

// untrue says which statements are held by no test that exists, or differ by a row that does not, and which rows no statement names.
func untrue(page rules.Page, all []testFile, rows []string) []string {
	var found []string
	named := map[string]bool{}
	for _, s := range page.Statements {
		for _, p := range s.Held {
			if why := missing(p.Test, filesIn(all, p.Folder)); why != "" {
				found = append(found, fmt.Sprintf("%s:%d: %s: %s has %s", rules.File, p.Line, s.ID, p.Folder, why))
			}
		}
		for _, d := range s.Differs {
			named[d.Row] = true
			if !slices.Contains(rows, d.Row) {
				found = append(found, fmt.Sprintf("%s:%d: the table %q of %s has no row %q, which %s names", rules.File, d.Line,
					strings.TrimSpace(differencesHeading), differencesFile, d.Row, s.ID))
			}
		}
	}
	for _, row := range rows {
		if !named[row] {
			found = append(found, fmt.Sprintf("%s: no statement in %s names the row %q", differencesFile, rules.File, row))
		}
	}
	slices.Sort(found)
	return found
}
