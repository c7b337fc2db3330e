package powercycle

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// The transitions in docs/reference/power-cycle-states.md are those of the table.
func TestStatesAreDocumented(t *testing.T) {
	const path, begin, end = "../../docs/reference/power-cycle-states.md", "<!-- begin generated -->\n", "<!-- end generated -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no generated part", path)
	}
	golden.Compare(t, path, before+begin+transitions()+end+after)
}

// Every reason that a user may read is explained.
func TestReasonsAreExplained(t *testing.T) {
	const path = "../../docs/reference/conditions.md"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[Reason]bool{StateUnknownReason: true, NoOwnerReason: true}
	for _, s := range order {
		for _, r := range rowsOf[s] {
			reasons[r.reason] = true
		}
	}
	for reason := range reasons {
		if !strings.Contains(string(content), "`"+string(reason)+"`") {
			t.Errorf("%s does not explain %s", path, reason)
		}
	}
}

// transitions renders the table as a table of Markdown, with one line for each state and the state that follows it. Rows that only wait are
// left out, and those that every state has are there once.
func transitions() string {
	var b strings.Builder
	b.WriteString("| state | next | when, and what kubemend does |\n|---|---|---|\n")
	for _, s := range order {
		leading := slices.DeleteFunc(pauses(s), func(r row) bool { return r.next == s })
		own := slices.DeleteFunc(slices.Clone(rowsOf[s][len(pauses(s)):]), func(r row) bool {
			return slices.ContainsFunc(endings, func(ending row) bool { return ending.when.name == r.when.name })
		})
		from(&b, s, slices.Concat(leading, own))
	}
	from(&b, "any", slices.Concat(pauses("any"), endings))
	return b.String()
}

// from writes the lines of one state.
func from(b *strings.Builder, state State, rows []row) {
	var nexts []State
	when := map[State][]string{}
	for _, r := range rows {
		if (r.do == Wait || r.do == waitForPerson) && r.next == state {
			continue
		}
		text := r.when.name
		if r.do != Advance {
			text += fmt.Sprintf(" (%s)", r.do)
		}
		if !slices.Contains(nexts, r.next) {
			nexts = append(nexts, r.next)
		}
		when[r.next] = append(when[r.next], text)
	}
	for _, next := range nexts {
		fmt.Fprintf(b, "| %s | %s | %s |\n", state, next, strings.Join(when[next], "; "))
	}
}
