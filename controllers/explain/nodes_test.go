package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/nodes"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestAStormThatCoolsSaysSo(t *testing.T) {
	for turn, want := range map[budget.StormTurn]string{
		budget.StormCooling:   "Storm cooldown delay started - waiting before resuming normal remediation",
		budget.StormUnchanged: "Cooldown cleared - storm threshold triggered",
	} {
		var p nodes.Plan
		p.Storm.CoolingSince, p.Storm.Turn = noon, turn
		var got string
		for _, c := range NodeConditions(&nodes.Facts{Now: noon}, &p) {
			if c.Type == nhcv1.StormCooldownActiveCondition {
				got = c.Message
			}
		}
		if got != want {
			t.Errorf("turn %d: it says %q, want %q", turn, got, want)
		}
	}
}

// Where a condition says what blocks the nodes, it has the reason of the API.
func TestReasonsOfBlockersAreThoseOfTheAPI(t *testing.T) {
	for is, want := range map[nodes.Reason]string{
		nodes.CheckDisabled: nhcv1.DisabledReason, nodes.TemplateUnread: nhcv1.UnreadReason, nodes.TemplateNotSeen: MissingPermission,
		nodes.Paused: nhcv1.PausedReason, nodes.Upgrading: nhcv1.UpgradeReason, nodes.KubeletsAwaited: nhcv1.KubeletsAwaitedReason,
		nodes.TooManyUnhealthy: nhcv1.TooManyReason, nodes.StormNotOver: nhcv1.StormReason, nodes.InvalidLimit: nhcv1.InvalidLimitReason,
		nodes.NoTemplateLeft: nhcv1.EventNoTemplateLeft,
	} {
		if string(is) != want {
			t.Errorf("%s is %s in the API", is, want)
		}
	}
}

// Every blocker has a sentence, if it does not go without saying.
func TestEveryBlockerOfANodeIsSaid(t *testing.T) {
	of := []string{"x", "y", "z"}
	f, p := &nodes.Facts{Check: "nhc"}, &nodes.Plan{}
	for _, reason := range nodes.Reasons() {
		is := NodeBlocker(f, p, "n", nodes.Blocker{Reason: reason, Args: of})
		if said := is.Text != ""; said == reason.Silent() {
			t.Errorf("%s says %q, and it is silent: %t", reason, is.Text, reason.Silent())
		}
		if slices.ContainsFunc([]string{is.Text, is.Fix, is.EndsWhen}, func(text string) bool { return text != "" && text[len(text)-1] == '.' }) {
			t.Errorf("%s ends with a full stop: %+v", reason, is)
		}
	}
}
