package nodehealthcheck

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// docs/reference/events.md has what blocks a remediation, in the order in which the rules are asked: first of one node, then of all.
func TestBlockersAreDocumented(t *testing.T) {
	yes := map[bool]string{true: "yes", false: "no"}
	words := strings.NewReplacer(skippedOn, "... ", skippedBecause, "... ", quorumLoss, "... ", "{", "*", "}", "*")
	for section, ofAll := range map[string]bool{"blockers of one node": false, "blockers of all nodes": true} {
		var table strings.Builder
		table.WriteString("| reason | message | until | what to do | next step too |\n|---|---|---|---|---|\n")
		for _, r := range rules {
			if r.Message == "" || (r.asked&ofCheck != 0) != ofAll {
				continue
			}
			until := r.EndsWhen
			if r.Until != nil {
				until = cmp.Or(until, "the time that explain shows")
			}
			row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", r.Reason, r.Message, until, r.Fix, yes[r.asked&(beforeNext|ofAnswer) != 0])
			table.WriteString(words.Replace(row))
		}
		golden.Section(t, "../../docs/reference/events.md", section, table.String())
	}
}
