package nodes

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/faults"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // thousands of small environments: collecting less often saves a fifth of the time
	os.Exit(m.Run())
}

// The figures are those of the campaigns that this test runs.
func TestFaultsOfNodeHealthChecks(t *testing.T) {
	t.Run("whatever fails, the end is the same", everyWrite)
	t.Run("in every order, the rules hold", everyOrder)
	if t.Failed() || !faults.Whole() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // there are no figures of what was not tried
	}
	var b strings.Builder
	b.WriteString("| Remediation | Writes that failed | Kills of the manager |\n|---|---|---|\n")
	var all count
	for _, name := range slices.Sorted(maps.Keys(campaigns.of)) {
		c := campaigns.of[name]
		all.writes, all.kills = all.writes+c.writes, all.kills+c.kills
		fmt.Fprintf(&b, "| %s | %d | %d |\n", name, c.writes, c.kills)
	}
	fmt.Fprintf(&b, "| **all** | %d | %d |\n\n", all.writes, all.kills)
	b.WriteString("| Events | Orders |\n|---|---|\n")
	total := 0
	for _, name := range slices.Sorted(maps.Keys(orderCounts)) {
		total += orderCounts[name]
		fmt.Fprintf(&b, "| %s | %d |\n", name, orderCounts[name])
	}
	fmt.Fprintf(&b, "| **all** | %d |\n", total)
	t.Log("\n" + b.String())
	faults.Document(t, "nodes", b.String())
}
