package machinehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestNoMachineIsJudgedByAWrongClock(t *testing.T) {
	w := aCheck(a("m", health.Unknown))
	w.view.ClockAhead = 24 * time.Hour
	plan := w.decide()
	if got := plan.Decisions[0]; !got.Blocked(ManagerClockWrong) || got.Verdict.State != health.Unknown {
		t.Errorf("the machine is %s, blocked by %v", got.Verdict.State, got.Blockers)
	}
}
