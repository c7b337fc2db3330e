package machinehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/must"
)

// noNode returns a machine that has waited for its first node since that time.
func noNode(since time.Time) Target {
	return Target{Machine: aMachine(), Health: &health.Target{Node: health.NodeAwaited, AwaitedSince: since}}
}

// silent returns a machine whose node has not been Ready since that time.
func silent(since time.Time) Target {
	return Target{Machine: aMachine(), Health: &health.Target{
		Node: health.NodePresent, Signals: []health.Signal{{Source: health.OnNode, Type: "Ready", Status: "Unknown", Since: since}},
	}}
}

// failedMachine returns a machine with a final failure.
func failedMachine() Target {
	return Target{Machine: aMachine(), Health: &health.Target{Node: health.NodePresent, Failure: "it burns"}}
}

// judging returns the facts of a check with a timeout of five minutes for a node that is not Ready and of ten for the first node.
func judging(t Target, changes ...func(*Facts)) Facts {
	f := facts().with(changes...)
	t.Name, t.UID = "a", "uid-of-a"
	f.Targets = []*Target{&t}
	f.Policy = health.Policy{
		Rules:       []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 5 * time.Minute}},
		NodeStartup: 10 * time.Minute,
	}
	return f
}

// judged returns the plan for f after judging its targets.
func judged(f Facts) Plan {
	f.Verdicts = judge(&f)
	return Decide(f)
}

func TestWhatTheClusterChangesAboutAVerdict(t *testing.T) {
	const minute = time.Minute
	controlPlane := func(t Target) Target { t.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}; return t }
	machinePaused := func(t Target) Target { t.Health.Paused = true; return t }
	waited := func(t Target, lost time.Duration) Target { t.Health.Lost = lost; return t }
	unprovided := func(status metav1.ConditionStatus, d time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
			has(f.Cluster, since(clusterv1.ClusterInfrastructureReadyCondition, status, "InternalError", ago(d)))
		}
	}
	unready := func(f *Facts) {
		f.Cluster.Spec.InfrastructureRef.Kind, f.Cluster.Spec.InfrastructureRef.Name = "Metal3Cluster", "c1"
		has(f.Cluster, since(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionFalse, "", noon))
	}
	paused := func(f *Facts) { f.Cluster.Spec.Paused = ptr.To(true) }
	initialized := func(d time.Duration) func(*Facts) { return initialized(ago(d)) }
	ready := func(d time.Duration) func(*Facts) { return ready(ago(d)) }
	reached := func(d time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Reach = metav1.Condition{Status: metav1.ConditionTrue, Reason: mendv1.ReachableAgainReason, LastTransitionTime: metav1.NewTime(ago(d))}
		}
	}
	clockAhead := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.ClockAhead = d } }
	hour := ago(60 * minute)
	for name, tc := range map[string]struct {
		given Facts
		want  health.State
		until time.Time // when time alone changes the verdict
	}{
		"a node that is silent for long enough": {
			judging(silent(ago(5 * minute))), health.Unhealthy, time.Time{},
		},
		"one that is for a shorter time": {
			judging(silent(ago(4 * minute))), health.Pending, noon.Add(minute),
		},
		"W15: also while too many are unhealthy": {
			judging(silent(ago(4*minute)), tooMany), health.Pending, noon.Add(minute),
		},
		"before the control plane is initialized nothing is known of workers": {
			judging(silent(hour), uninitialized), health.Unknown, time.Time{},
		},
		"but of the control plane it is": {
			judging(controlPlane(noNode(hour)), uninitialized), health.Unhealthy, time.Time{},
		},
		"before the infrastructure is ready of none": {
			judging(controlPlane(noNode(hour)), unready), health.Unknown, time.Time{},
		},
		"nor of workers": {judging(noNode(hour), unready), health.Unknown, time.Time{}},
		"nor of any while the manager's clock is wrong by more than the shortest timeout": {
			judging(silent(hour), clockAhead(6*minute)), health.Unknown, time.Time{},
		},
		"also if it is behind": {
			judging(silent(hour), clockAhead(-6*minute)), health.Unknown, time.Time{},
		},
		"a smaller error changes nothing": {
			judging(silent(hour), clockAhead(5*minute)), health.Unhealthy, time.Time{},
		},
		"what has failed for good has, all the same": {
			judging(failedMachine(), unready, uninitialized), health.Unhealthy, time.Time{},
		},
		"but during a pause of its Cluster that may be old": {judging(failedMachine(), paused), health.Unknown, time.Time{}},
		"or of the machine":              {judging(machinePaused(failedMachine())), health.Unknown, time.Time{}},
		"a first node that is late":      {judging(noNode(ago(10 * minute))), health.Unhealthy, time.Time{}},
		"one that is not yet":            {judging(noNode(ago(9 * minute))), health.Starting, noon.Add(minute)},
		"no node is late during a pause": {judging(noNode(hour), paused), health.Starting, time.Time{}},
		"it counts from when the control plane was initialized": {
			judging(noNode(hour), initialized(2*minute)), health.Starting, noon.Add(8 * minute),
		},
		"and from when the infrastructure was ready": {
			judging(noNode(hour), ready(3*minute)), health.Starting, noon.Add(7 * minute),
		},
		"and from the end of an outage": {
			judging(noNode(hour), reached(4*minute)), health.Starting, noon.Add(6 * minute),
		},
		"from the latest of these": {
			judging(noNode(hour), ready(3*minute), initialized(2*minute), reached(4*minute)), health.Starting, noon.Add(8 * minute),
		},
		"a machine that is newer than all counts from its creation": {
			judging(noNode(ago(minute)), ready(3*minute), initialized(2*minute)), health.Starting, noon.Add(9 * minute),
		},
		"or from before an outage, without its length": {
			judging(waited(noNode(ago(13*minute)), 4*minute), reached(2*minute)), health.Starting, noon.Add(minute),
		},
		"a node that is silent since an outage counts": {
			judging(silent(ago(5*minute)), reached(10*minute)), health.Unhealthy, time.Time{},
		},
		"a Cluster without infrastructure has none to wait for": {
			judging(noNode(hour), unprovided(metav1.ConditionUnknown, 3*minute)), health.Starting, noon.Add(7 * minute),
		},
		"unless it says that it is not ready": {
			judging(noNode(hour), unprovided(metav1.ConditionFalse, 3*minute)), health.Unknown, time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := judged(tc.given)
			if got := p.Decisions[0].Verdict; got.State != tc.want || !p.VerdictsUntil.Equal(tc.until) {
				t.Errorf("%s until %v, want %s until %v", got.State, p.VerdictsUntil, tc.want, tc.until)
			}
		})
	}
}

func checkIn(mode Mode) *Facts {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check", Annotations: map[string]string{}}}
	check.Spec.ClusterName = "c1"
	return &Facts{Mode: mode, Check: check, Cluster: &clusterv1.Cluster{}}
}

func TestAPersonLearnsHowACheckComesToBeActedOn(t *testing.T) {
	annotated := func(f *Facts) { f.Check.Annotations[clusterv1.PausedAnnotation] = "maintenance" }
	clusterPaused := func(f *Facts) { f.Cluster.Spec.Paused = ptr.To(true) }
	for name, tc := range map[string]struct {
		mode  Mode
		given []func(*Facts)
		want  string
	}{
		"an active check needs nothing, whatever its annotation was": {Active, []func(*Facts){annotated, clusterPaused}, ""},
		"the annotation of a paused check must go": {Paused, []func(*Facts){annotated},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check"},
		"a paused Cluster must go on": {Paused, []func(*Facts){clusterPaused}, "When it is to go on, set spec.paused of Cluster c1 to false"},
		"of two pauses both must end": {Paused, []func(*Facts){annotated, clusterPaused},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check, and set spec.paused of Cluster c1 to false"},
		"an unclaimed check can be claimed": {Observed, nil, "If kubemend is to act on it, claim the check: kubectl mend claim mhc/check -n ns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			for _, change := range tc.given {
				change(f)
			}
			must.Is(t, tc.want, f.Enable())
		})
	}
}

func TestAClaimedCheckWithoutTheLabelOfTheManagerHasNoController(t *testing.T) {
	f := checkIn(Ignored)
	f.WatchFilter = "blue"
	if got, because, _ := f.Acting(); got != cliv1.ModeCore || because != "The label cluster.x-k8s.io/watch-filter of the check, or of "+
		"its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for" {
		t.Errorf("unclaimed, got %s, because %q", got, because)
	}
	f.Check.Annotations[clusterv1.PausedAnnotation] = mendv1.Claim
	want := "The check is claimed for kubemend, so Cluster API core leaves it alone, and the label cluster.x-k8s.io/watch-filter of the check, " +
		"or of its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for"
	if got, because, _ := f.Acting(); got != cliv1.ModeNone || because != want {
		t.Errorf("claimed, got %s, because %q", got, because)
	}
}

func TestTheModeNamesTheControllerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    Mode
		want    cliv1.Mode
		because string
	}{
		"kubemend acts on a check that it acts on": {Active, cliv1.ModeActing, ""},
		"Cluster API acts on an ignored check": {Ignored, cliv1.ModeCore,
			"The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"},
		"Cluster API acts on an observed check": {Observed, cliv1.ModeObserving,
			"The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"},
		"without a Cluster no controller acts":      {NoCluster, cliv1.ModeNone, "There is no Cluster c1 in namespace ns"},
		"nor with a selector that cannot be parsed": {BadSelector, cliv1.ModeNone, "The spec.selector of the check cannot be read"},
		"nor while its user has paused it and its Cluster": {Paused, cliv1.ModePaused,
			`Cluster c1 is paused (spec.paused), and the check has the annotation cluster.x-k8s.io/paused: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			f.Check.Annotations[clusterv1.PausedAnnotation], f.Cluster.Spec.Paused = "", ptr.To(true)
			if got, because, _ := f.Acting(); got != tc.want || because != tc.because {
				t.Errorf("got %s, because %q; want %s, because %q", got, because, tc.want, tc.because)
			}
		})
	}
}
