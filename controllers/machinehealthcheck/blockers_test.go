package machinehealthcheck

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

func TestAPersonLearnsHowACheckComesToBeActedOn(t *testing.T) {
	annotated := func(w *observed) { w.check.Annotations = map[string]string{clusterv1.PausedAnnotation: "maintenance"} }
	clusterPaused := func(w *observed) { w.cluster.Spec.Paused = ptr.To(true) }
	for name, tc := range map[string]struct {
		mode  machines.Mode
		given []func(*observed)
		want  string
	}{
		"an active check needs nothing, whatever its annotation was": {machines.Active, []func(*observed){annotated, clusterPaused}, ""},
		"the annotation of a paused check must go": {machines.Paused, []func(*observed){annotated},
			"When it is to go on, take the annotation cluster.x-k8s.io/paused off the check"},
		"a paused Cluster must go on": {machines.Paused, []func(*observed){clusterPaused}, "When it is to go on, set spec.paused of Cluster c1 to false"},
		"of two pauses both must end": {machines.Paused, []func(*observed){annotated, clusterPaused},
			"When it is to go on, take the annotation cluster.x-k8s.io/paused off the check, and set spec.paused of Cluster c1 to false"},
		"an unclaimed check can be claimed": {machines.Observed, nil, "Hand it to kubemend, if it is to act: kubectl mend claim mhc/check -n ns"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck()
			w.mode = tc.mode
			for _, change := range tc.given {
				change(w)
			}
			if got := explain.Enable(ptr.To(w.facts())); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheModeNamesTheControllerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    machines.Mode
		want    explain.Mode
		because string
	}{
		"kubemend acts on a check that it acts on": {machines.Active, explain.Acting, ""},
		"Cluster API acts on an ignored check": {machines.Ignored, explain.Core,
			"The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"},
		"Cluster API acts on an observed check": {machines.Observed, explain.Observing,
			"The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"},
		"without a Cluster no controller acts": {machines.NoCluster, explain.Nobody, "There is no Cluster c1 in namespace ns"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck()
			w.mode = tc.mode
			if got, because := explain.MachineMode(ptr.To(w.facts())); got != tc.want || because != tc.because {
				t.Errorf("got %s, because %q; want %s, because %q", got, because, tc.want, tc.because)
			}
		})
	}
}

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
