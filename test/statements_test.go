package test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// differencesFile has the table of what is different from the documents, below a heading of its own.
const (
	differencesFile    = "docs/differences.md"
	differencesHeading = "## From the documents\n"
)

// How many statements each document has. Another number is a slip: the documents do not change any more.
var statementsOf = map[string]int{"0": 25, "1": 19, "2": 18, "3": 17, "4": 20}

func TestEveryStatementOfTheDocumentsIsTestedOrADifference(t *testing.T) {
	page := readRules(t)
	total := 0
	for document, count := range statementsOf {
		total += count
		for i := 1; i <= count; i++ {
			if id := fmt.Sprintf("seed %s.%d", document, i); !page.seeds[id] {
				t.Errorf("%s lacks %s", rulesFile, id)
			}
		}
	}
	if len(page.statements) != total {
		t.Errorf("%s has %d statements, want %d", rulesFile, len(page.statements), total)
	}
	report(t, untrue(page, testFiles(t), differentRows(content(t, differencesFile))))
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
func untrue(page rulesPage, all []testFile, rows []string) []string {
	var found []string
	named := map[string]bool{}
	for _, s := range page.statements {
		if len(s.held)+len(s.differs) == 0 {
			found = append(found, s.id+" is neither held by a test nor different")
		}
		for _, p := range s.held {
			in := slices.DeleteFunc(slices.Clone(all), func(f testFile) bool { return path.Dir(f.path) != p.folder })
			if why := missing(p.test, in); why != "" {
				found = append(found, fmt.Sprintf("%s: %s: %s has %s", rulesFile, s.id, p.folder, why))
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
