package machines

import (
	"fmt"
	"testing"

	"github.com/kubemend/kubemend/test/faults"
)

// Whole campaigns try all that these figures count: each of them fails if a write, a kill or an order is left out.
func TestTheFiguresOfMachineHealthChecks(t *testing.T) {
	t.Parallel()
	if !faults.Whole() {
		t.Skip("figures are those of whole campaigns: make campaigns")
	}
	writes, kills, tried := 0, 0, 0
	for _, tale := range tales {
		e := tale.told(t, undisturbed)
		writes, kills = writes+len(writesOf(e)), kills+e.reconciles
	}
	for _, set := range orders {
		tried += len(permutations(set.events))
	}
	const line = "%d tales: %d writes fail in %d ways each, %d kills between reconciles; %d sets of events in %d orders."
	faults.Document(t, "machine health checks", fmt.Sprintf(line, len(tales), writes, len(faults.Fates), kills, len(orders), tried))
}
