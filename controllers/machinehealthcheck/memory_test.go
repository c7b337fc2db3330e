package machinehealthcheck

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A rollout exceeds the limits without an unhealthy machine: no warning, and no all-clear afterwards. A status that could not be saved
// changes nothing.
func TestARestrictionIsReportedOnce(t *testing.T) {
	const restricted, allowed = mendv1.EventRemediationRestricted, mendv1.EventRemediationAllowed
	well := []Target{a("m1", health.Healthy), a("m2", health.Healthy)}
	starting := []Target{a("m1", health.Starting), a("m2", health.Healthy)}
	bad := []Target{a("m1", health.Unhealthy), a("m2", health.Healthy)}
	leaving := []Target{a("m1", health.Pending), a("m2", health.Unhealthy, beingDeleted, withCondition(clusterv1.MachineHealthCheckSucceededCondition, "False", "X"))}
	joined := []Target{a("m1", health.Unhealthy), leaving[1]}
	cases := map[string]struct {
		reconciles [][]Target
		unsaved    int // the reconcile whose status cannot be saved, from 1
		limits     []string
		restarts   bool // before each reconcile
		want       []string
	}{
		"a rollout is not worth a word":                            {reconciles: [][]Target{well, starting, starting, well}},
		"a bad machine is, and its recovery":                       {reconciles: [][]Target{well, bad, bad, well}, want: []string{restricted, allowed}},
		"also if the limit was exceeded before":                    {reconciles: [][]Target{well, starting, bad, well}, want: []string{restricted, allowed}},
		"also if a machine that is being deleted was bad before":   {reconciles: [][]Target{leaving, joined, well}, want: []string{restricted, allowed}},
		"also if it could not be saved at first":                   {reconciles: [][]Target{starting, bad, bad}, unsaved: 2, want: []string{restricted}},
		"after a restart it is not reported again, and its end is": {reconciles: [][]Target{bad, bad, well}, restarts: true, want: []string{restricted, allowed}},
		"an impossible limit is reported though nothing was allowed before": {
			reconciles: [][]Target{bad, bad, bad}, limits: []string{"0%", "-1", "-1"}, want: []string{restricted, restricted},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var told []string
			check, warned := aCheck().Check, (*string)(nil)
			for i, seen := range tc.reconciles {
				w := aCheck(seen...).limited("0%")
				if tc.limits != nil {
					w.limited(tc.limits[i])
				}
				if w.Check.Status = check.Status; !tc.restarts {
					w.before.warned = warned
				}
				p := decide(w)
				next := statusAfter(w, p, nil)
				if i+1 == tc.unsaved {
					continue
				}
				for _, n := range turnNotes(w, p, next) {
					told = append(told, n.Reason)
				}
				check, warned = next, ptr.To(warnedAfter(w, p, next))
			}
			if !slices.Equal(told, tc.want) {
				t.Errorf("told %v, want %v", told, tc.want)
			}
		})
	}
}

func TestWhatIsInFlightStandsWhileItIsNotSeen(t *testing.T) {
	asked := func(t *Target) {
		withCondition(clusterv1.MachineHealthCheckSucceededCondition, "False", "X")(t)
		requestedBy("check", "check-uid")(t)
	}
	seen := aCheck(a("m1", health.Unhealthy, asked)).external()
	unseen := aCheck(a("m1", health.Unhealthy)).external()
	unseen.Template.Known = false

	var m memory
	for _, step := range []struct {
		name string
		w    *observed
	}{
		{"before the first list of requests", unseen}, {"when they are seen", seen}, {"when they cannot be read", unseen}, {"when they are seen again", seen},
	} {
		m.recall(step.w)
		p := decide(step.w)
		if n := begunUncounted(step.w, p); n != 0 {
			t.Errorf("%s: %d remediations count as started", step.name, n)
		}
		if over := ended(step.w, p); len(over) != 0 {
			t.Errorf("%s: %v count as over", step.name, over)
		}
		m.leave(step.w, p)
	}
}

func TestARemediationThatNoReconcileCountedIsCountedOnce(t *testing.T) {
	w := aCheck(a("m1", health.Unhealthy, askedOwner))
	uid := w.Targets[0].Machine.UID
	for name, tc := range map[string]struct {
		mode   Mode
		before map[types.UID]string
		want   int
	}{
		"one that was not in flight before":     {Active, map[types.UID]string{}, 1},
		"one that was in flight before":         {Active, map[types.UID]string{uid: "Owner"}, 0},
		"nothing is known of before":            {Active, nil, 0},
		"one that another controller has begun": {Observed, map[types.UID]string{}, 0},
	} {
		w.Mode, w.before.inFlight = tc.mode, tc.before
		if got := begunUncounted(w, decide(w)); got != tc.want {
			t.Errorf("%s: counted %d, want %d", name, got, tc.want)
		}
	}
}

func version(name, version string) *clusterv1.Machine {
	m := a(name, health.Healthy).Machine
	m.ResourceVersion = version
	return m
}

func TestOnlyTheEventOfAnOwnWriteIsIgnored(t *testing.T) {
	var r Reconciler
	r.written.Note(version("m1", "8"))
	for _, step := range []struct {
		name    string
		machine *clusterv1.Machine
		want    bool
	}{
		{"what came before the write, and is only told late, is looked at", version("m1", "7"), true},
		{"another machine of that version is looked at", version("m2", "8"), true},
		{"the write itself is not", version("m1", "8"), false},
		{"what others wrote on top of it is", version("m1", "9"), true},
	} {
		if got := r.othersWrites().Update(event.UpdateEvent{ObjectOld: step.machine, ObjectNew: step.machine}); got != step.want {
			t.Errorf("%s: reconciles: %t, want %t", step.name, got, step.want)
		}
	}
	if !r.othersWrites().Delete(event.DeleteEvent{Object: version("m1", "11")}) || r.written.Wrote(version("m1", "8")) {
		t.Error("the deletion of a machine is not looked at, or something is kept of one that is gone")
	}
}
