package machines

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/faults"
)

// Whole campaigns try all that these figures count: each of them fails if a write, a kill or an order is left out.
func TestTheFiguresOfMachineHealthChecks(t *testing.T) {
	t.Parallel()
	if !faults.Whole() {
		t.Skip("figures are those of whole campaigns: make campaigns")
	}
	var text strings.Builder
	text.WriteString("| What happens | Writes that failed | Kills between two reconciles |\n|---|---|---|\n")
	writes, kills := 0, 0
	for _, tale := range tales {
		e := tale.told(t, undisturbed)
		n := len(writesOf(e))
		writes, kills = writes+n, kills+e.reconciles
		fmt.Fprintf(&text, "| %s | %d | %d |\n", tale.name, n, e.reconciles)
	}
	fmt.Fprintf(&text, "| all %d tales | %d, each in %d ways | %d |\n", len(tales), writes, len(faults.Fates), kills)
	text.WriteString("\n| Events in every order | Orders |\n|---|---|\n")
	tried := 0
	for _, set := range orders {
		n := len(permutations(set.events))
		tried += n
		fmt.Fprintf(&text, "| %s | %d |\n", set.name, n)
	}
	fmt.Fprintf(&text, "| all %d sets | %d |\n", len(orders), tried)
	faults.Document(t, "machine health checks", text.String())
}
