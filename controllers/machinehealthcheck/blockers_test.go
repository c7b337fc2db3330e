package machinehealthcheck

import (
	"testing"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A machine that waits is counted among those that wait. It must not block itself.
func TestAMachineIsNotAheadOfItself(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy))
	w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
	if h := seen(w, decide(w), w.targets[0]).Blockers; len(h) > 0 {
		t.Errorf("the only unhealthy machine is blocked: %+v", h)
	}
	w = aCheck(a("m", health.Unhealthy), a("n", health.Unhealthy, askedOwner))
	w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
	if h := seen(w, decide(w), w.targets[0]).Blockers; len(h) != 1 || h[0].Reason != string(budget.AtWork) {
		t.Errorf("a machine beside one in flight is blocked by %+v, want %s", h, budget.AtWork)
	}
}
