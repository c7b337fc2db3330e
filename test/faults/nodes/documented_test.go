package nodes

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
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
	var all count
	for _, c := range campaigns.of {
		all.writes, all.kills = all.writes+c.writes, all.kills+c.kills
	}
	tried := 0
	for _, n := range orderCounts {
		tried += n
	}
	faults.Document(t, "nodes", fmt.Sprintf("%d tales: %d writes that failed, %d kills of the manager; %d sets of events in %d orders.",
		len(campaigns.of), all.writes, all.kills, len(orderCounts), tried))
}
