package powercycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// The transitions in docs/reference/power-cycle-states.md are those of the table.
func TestStatesAreDocumented(t *testing.T) {
	golden.Section(t, "../../docs/reference/power-cycle-states.md", "generated", transitions())
}

// docs/reference/conditions.md has every reason of a power cycle, with all of its messages.
func TestReasonsAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| reason | message | what to do |\n|---|---|---|\n")
	for _, rule := range rules {
		messages := []string{rule.Message}
		for _, v := range rule.variants {
			messages = append(messages, v.message)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", rule.Reason, strings.Join(messages, "<br>"), rule.Fix)
	}
	golden.Section(t, "../../docs/reference/conditions.md", "power cycle", table.String())
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
