package test

import (
	"regexp"
	"slices"
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
	families   []family
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
	idLine        = regexp.MustCompile(`^\| (\S+) \| [^|]+ \| .+ \|$`)
	documentLine  = regexp.MustCompile(`^### (seed \d{3}): .`)
	statementLine = regexp.MustCompile(`^- (\d\.\d+): .`)
	proofLine     = regexp.MustCompile("^  - `([a-z0-9/-]+)" + joint + "(.+)`$")
	differentLine = regexp.MustCompile(`^  - different, see "([^"]+)": .`)
)

func readRules(t *testing.T) rulesPage {
	t.Helper()
	ids, documents, _ := strings.Cut(content(t, rulesFile), "\n## What the documents say\n")
	page := rulesPage{families: familiesIn(t, ids), seeds: map[string]bool{}}
	note := func(id string) {
		if page.seeds[id] {
			t.Errorf("%s has %s twice", rulesFile, id)
		}
		page.seeds[id] = true
	}
	for line := range strings.Lines(documents) {
		line = strings.TrimRight(line, " \n")
		last := len(page.statements) - 1
		if found := documentLine.FindStringSubmatch(line); found != nil {
			note(found[1])
		} else if found := statementLine.FindStringSubmatch(line); found != nil {
			note("seed " + found[1])
			page.statements = append(page.statements, statement{id: "seed " + found[1]})
		} else if found := proofLine.FindStringSubmatch(line); found != nil {
			page.statements[last].held = append(page.statements[last].held, proof{found[1], found[2]})
		} else if found := differentLine.FindStringSubmatch(line); found != nil {
			page.statements[last].differs = append(page.statements[last].differs, found[1])
		} else if strings.HasPrefix(line, "  - ") {
			t.Errorf("%s: %q is neither a test, `folder%stest`, nor \"different, see \"row\": why\"", rulesFile, line, joint)
		}
	}
	return page
}

func familiesIn(t *testing.T, text string) []family {
	t.Helper()
	var families []family
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if found := familyLine.FindStringSubmatch(line); found != nil {
			families = append(families, family{name: found[1], ids: map[string]bool{}})
			continue
		}
		if len(families) == 0 {
			continue
		}
		f := &families[len(families)-1]
		found := idLine.FindStringSubmatch(line)
		switch {
		case placesLine.MatchString(line):
			for _, place := range codeIn.FindAllStringSubmatch(line, -1) {
				f.places = append(f.places, place[1])
			}
		case len(found) > 1 && f.ids[found[1]]:
			t.Errorf("%s explains %s twice", rulesFile, found[1])
		case len(found) > 1 && found[1] != "id":
			f.ids[found[1]] = true
		}
	}
	return families
}

// familiesOf are the families whose ids the names of tests in a file use: those with the longest place that the file is in.
func (p rulesPage) familiesOf(file string) []family {
	longest := func(f family) (length int) {
		for _, place := range f.places {
			if file == place || strings.HasPrefix(file, place+"/") {
				length = max(length, len(place))
			}
		}
		return length
	}
	best := 1
	for _, f := range p.families {
		best = max(best, longest(f))
	}
	return slices.DeleteFunc(slices.Clone(p.families), func(f family) bool { return longest(f) < best })
}
