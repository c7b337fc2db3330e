package test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubemend/kubemend/test/must"
)

const (
	production, tests = "production", "tests and support"

	// wide is the number of columns above which a line is too wide.
	wide = 140
)

// A size is what people have written: lines, lines that are too wide, and statements. Statements show whether lines only became denser.
type size struct{ lines, wide, statements int }

func (s size) plus(other size) size {
	return size{s.lines + other.lines, s.wide + other.wide, s.statements + other.statements}
}

// A budget is the content of size.tsv, by kind and name: lines of packages, lines and wide lines in sum, and granted lines.
type budget map[string]map[string]int

// kinds are the kinds of lines in size.tsv, in the order of the file.
var kinds = []string{"lines", "wide", "granted", "package"}

func newBudget() budget {
	b := budget{}
	for _, kind := range kinds {
		b[kind] = map[string]int{}
	}
	return b
}

// The production code must not grow, unless a grant in size.tsv says what users get for it. A package may grow if another one shrinks.
// -update (see make size) only lowers the limits.
func TestSizesAreDocumented(t *testing.T) {
	allowed := readBudget(t)
	packages, sums := measure(t)
	if packages["controllers/decide/health"].lines == 0 || sums[tests].statements == 0 {
		t.Fatal("nothing was measured")
	}
	if testing.Verbose() {
		printSizes(packages, sums)
	}
	grown := tooLarge(allowed, sums)
	report(t, grown)
	switch {
	case flag.Lookup("update").Value.String() != "true":
		report(t, unlisted(allowed, packages))
	case len(grown) == 0:
		must.Do(t, os.WriteFile("size.tsv", []byte(lowered(allowed, packages, sums).String()), 0o644))
	}
}

func printSizes(packages, sums map[string]size) {
	largestFirst := func(a, b string) int { return cmp.Compare(packages[b].lines, packages[a].lines) }
	for _, name := range slices.SortedFunc(maps.Keys(packages), largestFirst) {
		fmt.Printf("%7d lines %6d statements  %s\n", packages[name].lines, packages[name].statements, name)
	}
	for _, name := range []string{production, tests} {
		s := sums[name]
		fmt.Printf("%7d lines %6d statements %5d lines over %d columns  %s\n", s.lines, s.statements, s.wide, wide, name)
	}
}

func tooLarge(allowed budget, sums map[string]size) []string {
	var found []string
	for name, s := range sums {
		limit := allowed["lines"][name]
		if name == production {
			for _, lines := range allowed["granted"] {
				limit += lines
			}
		}
		if s.lines > limit {
			found = append(found, fmt.Sprintf("%s: %d lines, size.tsv allows %d: remove as many as were added", name, s.lines, limit))
		}
		if s.wide > allowed["wide"][name] {
			found = append(found, fmt.Sprintf("%s: %d lines have more than %d columns, size.tsv allows %d: wrap the new ones",
				name, s.wide, wide, allowed["wide"][name]))
		}
	}
	return found
}

// unlisted returns packages that are new, gone or larger than in size.tsv, although the sum has not grown.
func unlisted(allowed budget, packages map[string]size) []string {
	var found []string
	for name, s := range packages {
		if limit, listed := allowed["package"][name]; !listed || s.lines > limit {
			found = append(found, fmt.Sprintf("%s has %d lines, and %d in size.tsv: "+
				"run make size ARGS=-update, and say in the commit what users get for it", name, s.lines, limit))
		}
	}
	for name := range allowed["package"] {
		if _, there := packages[name]; !there {
			found = append(found, name+" is in size.tsv and not there: run make size ARGS=-update")
		}
	}
	slices.Sort(found)
	return found
}

// lowered returns the new budget: the present sizes, and the grants without the lines that are already used.
func lowered(allowed budget, packages, sums map[string]size) budget {
	next := newBudget()
	for name, s := range packages {
		next["package"][name] = s.lines
	}
	for name, s := range sums {
		next["lines"][name], next["wide"][name] = s.lines, s.wide
	}
	used := max(0, sums[production].lines-allowed["lines"][production])
	for what, lines := range allowed["granted"] {
		now := min(lines, used)
		used -= now
		if lines > now {
			next["granted"][what] = lines - now
		}
	}
	return next
}

const sizeIntroduction = `# How many lines people have written: by package, in all, and over 140 columns.
# Comments and empty lines count, generated files and hack/ do not.
# make size prints the table; make size ARGS=-update, and make generate, write it, only downwards in sum.
# A line "granted, lines, what users get for them" allows the production as many more; it is used up by what grows.
`

func (b budget) String() string {
	var text strings.Builder
	text.WriteString(sizeIntroduction)
	for _, kind := range kinds {
		for _, name := range slices.Sorted(maps.Keys(b[kind])) {
			fmt.Fprintf(&text, "%s\t%d\t%s\n", kind, b[kind][name], name)
		}
	}
	return text.String()
}

func readBudget(t *testing.T) budget {
	t.Helper()
	b := newBudget()
	for line := range strings.Lines(strings.TrimPrefix(content(t, "test/size.tsv"), sizeIntroduction)) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) != 3 || b[columns[0]] == nil {
			t.Fatalf("size.tsv: %q is not a kind, a number and a name", line)
		}
		lines, err := strconv.Atoi(columns[1])
		if err != nil {
			t.Fatalf("size.tsv: %q: %v", line, err)
		}
		b[columns[0]][columns[2]] = lines
	}
	return b
}

// measure returns the size of each production package, and the sums.
func measure(t *testing.T) (packages, sums map[string]size) {
	t.Helper()
	packages, sums = map[string]size{}, map[string]size{}
	walk(t, func(file string) {
		text := ""
		if path.Ext(file) == ".go" && !strings.HasPrefix(file, "hack/") {
			text = content(t, file)
		}
		if text == "" || generated.MatchString(text) {
			return
		}
		s, name := sizeOf(parse(t, filepath.Join(root, file), text), text), production
		if strings.HasPrefix(file, "test/") || strings.HasSuffix(file, "_test.go") {
			name = tests
		} else {
			packages[path.Dir(file)] = packages[path.Dir(file)].plus(s)
		}
		sums[name] = sums[name].plus(s)
	})
	return packages, sums
}

// generated matches the header of generated files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func sizeOf(file *ast.File, text string) size {
	s := size{lines: strings.Count(text, "\n")}
	for line := range strings.Lines(text) {
		columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    "))
		if columns > wide && !strings.Contains(line, "+kubebuilder:") { // markers cannot be wrapped
			s.wide++
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.BlockStmt, *ast.EmptyStmt, *ast.LabeledStmt: // these only contain other statements
		case ast.Stmt:
			s.statements++
		}
		return true
	})
	return s
}
