package powercycle

import (
	"os"
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
	golden.Compare(t, path, before+begin+"```mermaid\n"+Diagram()+"```\n"+end+after)
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
