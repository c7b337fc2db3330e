package test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

const (
	rulesFile = "test/RULES.md"

	// joint is what stands between the texts of containers and specs.
	joint = " › "
)

// rulesPage is what test/RULES.md says.
type rulesPage struct {
	families   []*family
	statements []statement
	seeds      map[string]bool // the ids of all documents and of their statements
}

// A family is a set of ids that mean the same in the same places: folders, or single files.
type family struct {
	name   string
	places []string
	ids    map[string]bool
}

// A statement is a sentence of a document. Tests hold it, or it is not true here and rows of docs/differences.md say so, or both in part.
type statement struct {
	id      string // as in the names of tests, such as "seed 0.1"
	held    []proof
	differs []string
}

// A proof is a test of the package in a folder. A spec is named with its containers.
type proof struct{ folder, test string }

var (
	codeIn = regexp.MustCompile("`([^`]+)`")

	familyLine    = regexp.MustCompile(`^### (.+)$`)
	placesLine    = regexp.MustCompile("^(?:Ids in )?(?:`[^`]+`[,.] ?)+$")
	idLine        = regexp.MustCompile(`^\| (\w+|NHC#\d+) \| [^|]+ \| .+ \|$`)
	documentLine  = regexp.MustCompile(`^### (seed \d{3}): .`)
	statementLine = regexp.MustCompile(`^- (\d\.\d+): .`)
	proofLine     = regexp.MustCompile("^  - `([a-z0-9/-]+)" + joint + "(.+)`$")
	differentLine = regexp.MustCompile(`^  - different, see "([^"]+)": .`)
)

func readRules(t *testing.T) rulesPage {
	t.Helper()
	ids, documents, _ := strings.Cut(content(t, rulesFile), "\n## What the documents say\n")
	page := rulesPage{seeds: map[string]bool{}}
	for line := range strings.Lines(ids) {
		page.addID(t, strings.TrimSpace(line))
	}
	for line := range strings.Lines(documents) {
		page.addStatement(t, strings.TrimRight(line, " \n"))
	}
	return page
}

// addID reads a line of a table of ids, or of what is above the table.
func (p *rulesPage) addID(t *testing.T, line string) {
	t.Helper()
	if found := familyLine.FindStringSubmatch(line); found != nil {
		p.families = append(p.families, &family{name: found[1], ids: map[string]bool{}})
		return
	}
	if len(p.families) == 0 {
		return
	}
	last := p.families[len(p.families)-1]
	if placesLine.MatchString(line) {
		for _, place := range codeIn.FindAllStringSubmatch(line, -1) {
			last.places = append(last.places, place[1])
		}
	}
	if found := idLine.FindStringSubmatch(line); len(found) > 1 && found[1] != "id" {
		if last.ids[found[1]] {
			t.Errorf("%s explains %s twice", rulesFile, found[1])
		}
		last.ids[found[1]] = true
	}
}

// addStatement reads a line of what the documents say.
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

// familiesOf are the families whose ids the names of tests in a file use: those of the file, or else of the nearest folder above it.
func (p rulesPage) familiesOf(file string) []*family {
	var found []*family
	for place := file; len(found) == 0 && place != "."; place = path.Dir(place) {
		for _, f := range p.families {
			for _, own := range f.places {
				if own == place {
					found = append(found, f)
				}
			}
		}
	}
	return found
}
