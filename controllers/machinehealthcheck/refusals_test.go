package machinehealthcheck

import (
	"errors"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A process that has just started lets a merge window pass before it begins anything, and remembers no refusal: the machine's condition does.
func TestARefusalKeepsItsPlaceAtTheEndOfTheQueueThroughARestart(t *testing.T) {
	var m memory
	w := aCheck(a("a", health.Unhealthy, dueFor(time.Hour), refusedBefore), a("b", health.Unhealthy), a("c", health.Healthy), a("d", health.Healthy))
	w.external().limited("60%").oneAtOnce()
	for i, now := range []time.Time{noon, noon.Add(time.Second)} {
		w.Now = now
		m.recall(w)
		s := decide(w)
		for _, st := range stepsOf(w, s) {
			if st.Starts() && (i == 0 || st.Target.Machine.Name != "b") {
				t.Errorf("reconcile %d begins the remediation of %s", i, st.Target.Machine.Name)
			}
			st.Target.Machine.Status = st.with(w, st.Target.Machine, st.Conditions).Status
		}
		m.leave(w, s)
		if ConditionOf(w.Targets[0].Machine, clusterv1.MachineExternallyRemediatedCondition) == nil {
			t.Fatalf("reconcile %d removes the refusal, although nothing was tried", i)
		}
	}
}

func TestARefusalStaysWhileNothingMayBegin(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy)).external().limited("60%")
	s := decide(w)
	w.Check = statusAfter(w, s, result{refused: errors.New("refused by a webhook")})
	w.before.lasts = true // and has seen nothing yet
	if next := statusAfter(w, decide(w), result{}); v1beta1conditions.Get(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition) == nil {
		t.Error("the refusal is removed, although nothing was tried")
	}
}
