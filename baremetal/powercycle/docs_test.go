package powercycle

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// The diagram in docs/power-cycle-states.md is drawn from the table.
func TestStatesAreDocumented(t *testing.T) {
	const path, begin, end = "../../docs/power-cycle-states.md", "<!-- begin generated -->\n", "<!-- end generated -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no generated part", path)
	}
	golden.Compare(t, path, before+begin+"```mermaid\n"+diagram()+"```\n"+end+after)
}

// Every reason that a user may read is explained.
func TestReasonsAreExplained(t *testing.T) {
	const path = "../../docs/conditions.md"
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

// diagram renders the table as a Mermaid state diagram. Rows that neither act nor lead elsewhere are left out, and so are those that
// every state has, which are drawn once, from the state "any".
func diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> Pending\n    any: any state above that is not an end\n")
	for _, s := range order {
		for _, r := range pauses(s) {
			if r.next != s {
				arrow(&b, s, r)
			}
		}
		for _, r := range rowsOf[s][len(pauses(s)):] {
			if common := slices.ContainsFunc(endings, func(e row) bool { return e.when.name == r.when.name }); !common {
				arrow(&b, s, r)
			}
		}
	}
	for _, r := range slices.Concat(pauses("any"), endings) {
		arrow(&b, "any", r)
	}
	for _, s := range order {
		if s.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}

func arrow(b *strings.Builder, from State, r row) {
	switch {
	case (r.do == Wait || r.do == waitForPerson) && r.next == from:
	case r.do == Advance:
		fmt.Fprintf(b, "    %s --> %s: %s\n", from, r.next, r.when.name)
	default:
		fmt.Fprintf(b, "    %s --> %s: %s / %s\n", from, r.next, r.when.name, r.do)
	}
}
