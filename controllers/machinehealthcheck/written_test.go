package machinehealthcheck

import (
	"cmp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// reported gives the check the status that a manager writes which acts on it.
func (w *observed) reported(expected, healthy int32) *observed {
	w.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	w.Check.Status.ObservedGeneration = w.Check.Generation
	w.Check.Status.ExpectedMachines, w.Check.Status.CurrentHealthy = ptr.To(expected), ptr.To(healthy)
	return w
}

func TestWhichStatusTellsOfTheMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*observed)
		want   bool
	}{
		"that of a check that a manager acts on": {func(*observed) {}, true},
		"not one that is not there":              {func(w *observed) { w.Check.Status = clusterv1.MachineHealthCheckStatus{} }, false},
		"not that of a check as it was before":   {func(w *observed) { w.Check.Generation++ }, false},
		"not that of a check that is paused":     {func(w *observed) { w.Check.Annotations[clusterv1.PausedAnnotation] = "" }, false},
		"not that of a check that goes":          {func(w *observed) { w.Check.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, false},
		"not that of a cluster that is paused":   {func(w *observed) { w.Cluster.Spec.Paused = ptr.To(true) }, false},
		"not that of one that shares machines with a check that kubemend does not act on": {func(w *observed) {
			has(w.Check, condition(mendv1.TargetsExclusive, metav1.ConditionFalse, mendv1.OverlapReason, ""))
		}, false},
		"not that of a cluster that goes": {func(w *observed) { w.Cluster.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck().reported(5, 3)
			tc.change(w)
			if got := Reported(w.Check, w.Cluster); got != tc.want {
				t.Errorf("reported: %t", got)
			}
		})
	}
}

// What a page reads in the condition of a machine is what the manager has decided about it.
func TestAPageReadsWhatTheManagerHasDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		f.Mode, f.Template.Syncing = Active, false
		plan := Decide(f)
		for i, d := range plan.Decisions {
			at := slices.IndexFunc(d.Conditions, func(cond metav1.Condition) bool { return cond.Type == mendv1.Remediation && cond.Status != "" })
			if at < 0 {
				continue
			}
			refused := d.InFlight && d.Conditions[at].Status == metav1.ConditionFalse
			if d.Verdict.State == health.Pending && (refused || d.Conditions[at].Status == metav1.ConditionTrue) {
				continue // it was unhealthy when that began
			}
			read := &Decision{Target: &Target{Machine: d.Target.Machine}}
			if read.remediation(&f, &plan, &d.Conditions[at]); read.Verdict.State != d.Verdict.State {
				t.Fatalf("machine %d is %s, and read as %s", i, d.Verdict.State, read.Verdict.State)
			}
			if inFlight := d.InFlight || d.Starts(); read.InFlight != inFlight {
				t.Fatalf("machine %d in flight: %t, and read as %t from %v", i, inFlight, read.InFlight, d.Conditions[at])
			}
			if read.InFlight {
				continue
			}
			for j := range read.Blockers {
				b := &read.Blockers[j]
				known := func(decided Blocker) bool {
					return oneLine(cmp.Or(decided.Brief, decided.Text)) == b.Text && decided.Until.Equal(b.Until) && decided.Fix == b.Fix
				}
				ofCheck := b.Text == plan.Allowed.Message && d.Verdict.State == health.Pending
				if !ofCheck && !slices.ContainsFunc(d.Blockers, known) || j == 0 && b.Reason != d.Conditions[at].Reason {
					t.Fatalf("machine %d is blocked by %+v, and read as %+v", i, d.Blockers, b)
				}
			}
		}
	})
}

func TestHowAMachineIsAsTheManagerWroteIt(t *testing.T) {
	healthy := withCondition(HealthCheckSucceeded, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)
	asked := func(t *Target) {
		askedOwner(t)
		withCondition(mendv1.Remediation, metav1.ConditionTrue, mendv1.OwnerAskedReason)(t)
	}
	madeNow := func(t *Target) { t.Machine.CreationTimestamp = metav1.NewTime(noon) }
	withNode := func(t *Target) { t.Machine.Status.NodeRef.Name = "node" }
	reach := func(status metav1.ConditionStatus) func(*observed) {
		return func(w *observed) {
			has(w.Check, condition(mendv1.WorkloadClusterReachable, status, mendv1.UnreachableReason, "out of reach"))
		}
	}
	for name, tc := range map[string]struct {
		given *observed
		want  string
	}{
		"healthy": {aCheck(a("m", health.Healthy, withNode, healthy)), "Healthy"},
		"marked, and nothing is written yet": {
			aCheck(a("m", health.Unhealthy, withNode, withCondition(HealthCheckSucceeded, "False", "UnhealthyNode"))), "Unhealthy blocked by UnhealthyNode",
		},
		"its owner was asked":                   {aCheck(a("m", health.Unhealthy, withNode, asked)), "Unhealthy in flight"},
		"nothing is written, and it has none":   {aCheck(a("m", health.Starting, madeNow)), "Starting blocked by WithinTimeout"},
		"nothing is written, and it has a node": {aCheck(a("m", health.Unknown, withNode)), "Unknown blocked by NotJudged"},
		"what was written before an outage is not believed": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(reach(metav1.ConditionFalse)), "Unknown blocked by Unreachable",
		},
		"but that it is remediated stands": {
			aCheck(a("m", health.Unhealthy, withNode, asked)).with(reach(metav1.ConditionFalse)), "Unknown in flight blocked by Unreachable",
		},
		"nor what was written before the infrastructure was not ready": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(func(w *observed) { w.Cluster.Status.Conditions[1].Status = metav1.ConditionFalse }),
			"Unknown blocked by InfrastructureNotReady",
		},
		"nor by a clock that is wrong": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(func(w *observed) { w.ClockAhead = time.Hour }), "Unknown blocked by ManagerClockWrong",
		},
		"it is being deleted": {aCheck(a("m", health.Healthy, withNode, healthy, beingDeleted)), "Healthy blocked by MachineBeingDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.given.reported(1, 0)
			w.Check.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
			machine := *w.Targets[0].Machine
			machine.Labels, machine.Spec.ClusterName = map[string]string{"pool": "workers"}, "c1"
			explained := Written(w.Check, w.Cluster, []clusterv1.Machine{machine}, noon, w.ClockAhead)
			target := &explained.Targets[0]
			got := string(target.State)
			if target.InFlight {
				got += " in flight"
			}
			if len(target.Blockers) > 0 {
				got += " blocked by " + target.Blockers[0].Reason
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if target.State != "Healthy" && explained.Mode != explain.Acting {
				t.Errorf("mode %s", explained.Mode)
			}
		})
	}
}
