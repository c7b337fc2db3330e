package explain

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

func checkIn(mode machines.Mode) *machines.Facts {
	return &machines.Facts{Mode: mode, About: machines.About{Namespace: "ns", Name: "check", Cluster: "c1"}}
}

func TestEveryBlockerOfAMachineHasItsSentence(t *testing.T) {
	is := &machines.Target{Cycle: &machines.Cycle{}, RequestFacts: &machines.RequestFacts{}}
	d := &machines.Decision{Spare: &machines.Spare{}, Target: is}
	for _, reason := range constantsOf(t, "machines/plan.go", "Reason") {
		b := blockerOf(checkIn(machines.Active), &machines.Plan{}, d, machines.Blocker{Reason: machines.Reason(reason)})
		if silent := reason == string(machines.NotUnhealthy); silent != (b == Blocker{}) {
			t.Errorf("the blocker %s has the sentence %q", reason, b.Text)
		}
	}
}

func TestAPersonLearnsHowACheckComesToBeActedOn(t *testing.T) {
	annotated := func(f *machines.Facts) { f.About.PausedBy = ptr.To("maintenance") }
	clusterPaused := func(f *machines.Facts) { f.About.ClusterPaused = true }
	for name, tc := range map[string]struct {
		mode  machines.Mode
		given []func(*machines.Facts)
		want  string
	}{
		"an active check needs nothing, whatever its annotation was": {machines.Active, []func(*machines.Facts){annotated, clusterPaused}, ""},
		"the annotation of a paused check must go": {machines.Paused, []func(*machines.Facts){annotated},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check"},
		"a paused Cluster must go on": {machines.Paused, []func(*machines.Facts){clusterPaused}, "When it is to go on, set spec.paused of Cluster c1 to false"},
		"of two pauses both must end": {machines.Paused, []func(*machines.Facts){annotated, clusterPaused},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check, and set spec.paused of Cluster c1 to false"},
		"an unclaimed check can be claimed": {machines.Observed, nil, "If kubemend is to act on it, claim the check: kubectl mend claim mhc/check -n ns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			for _, change := range tc.given {
				change(f)
			}
			if got := Enable(f); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAClaimedCheckWithoutTheLabelOfTheManagerHasNoController(t *testing.T) {
	f := checkIn(machines.Ignored)
	f.About.WatchFilter = "blue"
	if got, because := MachineMode(f); got != Core || because != "The label cluster.x-k8s.io/watch-filter of the check, or of "+
		"its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for" {
		t.Errorf("unclaimed, got %s, because %q", got, because)
	}
	f.Claimed = true
	want := "The check is claimed for kubemend, so Cluster API core leaves it alone, and the label cluster.x-k8s.io/watch-filter of the check, " +
		"or of its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for"
	if got, because := MachineMode(f); got != None || because != want {
		t.Errorf("claimed, got %s, because %q", got, because)
	}
}

func TestTheModeNamesTheControllerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    machines.Mode
		want    Mode
		because string
	}{
		"kubemend acts on a check that it acts on": {machines.Active, Acting, ""},
		"Cluster API acts on an ignored check": {machines.Ignored, Core,
			"The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"},
		"Cluster API acts on an observed check": {machines.Observed, Observing,
			"The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"},
		"without a Cluster no controller acts":      {machines.NoCluster, None, "There is no Cluster c1 in namespace ns"},
		"nor with a selector that cannot be parsed": {machines.BadSelector, None, "The spec.selector of the check cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, because := MachineMode(checkIn(tc.mode)); got != tc.want || because != tc.because {
				t.Errorf("got %s, because %q; want %s, because %q", got, because, tc.want, tc.because)
			}
		})
	}
}

// Users and other tools read these texts in conditions; they are Cluster API's to the letter.
func TestTheMessageOfAFailedHealthCheck(t *testing.T) {
	type findings []health.Finding
	condition := func(r health.Reason, source health.Source, is string) health.Finding {
		return health.Finding{Reason: r, Limit: time.Minute, Signal: health.Signal{Source: source, Type: is, Status: "False", Reason: "Bad"}}
	}
	m, mText := condition(health.MachineCondition, health.OnMachine, "M"), "Condition M on Machine is reporting status False with reason Bad for more than 1m0s"
	n, nText := condition(health.NodeCondition, health.OnNode, "N"), "Condition N on Node is reporting status False with reason Bad for more than 1m0s"
	gone := health.Finding{Reason: health.NodeDeleted, Node: "a"}
	for name, tc := range map[string]struct {
		due              findings
		message, v1beta1 string
	}{
		"a mark by hand is named alone": {
			findings{{Reason: health.MarkedByHand}, n},
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation", "Marked for remediation via remediate-machine annotation",
		},
		"machine conditions come before those of the node": {
			findings{m, n}, "Health check failed:\n  * " + mText + "\n  * " + nText, mText + "; " + nText,
		},
		"a deleted node has no message in v1beta1": {
			findings{gone}, "Health check failed:\n  * Node a has been deleted", "",
		},
		"unless there is a machine condition too": {
			findings{m, gone},
			"Health check failed:\n  * " + mText + "\n  * Node a has been deleted", mText + "; Node a has been deleted",
		},
		"a late node": {
			findings{{Reason: health.NodeStartup, Limit: 10 * time.Minute}},
			"Health check failed:\n  * Node failed to report startup in 10m0s", "Node failed to report startup in 10m0s",
		},
		"an unhealthy node": {findings{n, n}, "Health check failed:\n  * " + nText + "\n  * " + nText, nText + "; " + nText},
		"a final failure": {
			findings{{Reason: health.MachineFailed, Failure: "FailureReason: CreateError"}},
			"Health check failed:\n  * FailureReason: CreateError", "FailureReason: CreateError",
		},
		"nothing was found": {},
	} {
		if message, v1beta1 := HealthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// The page of a machine whose node does not appear names the one that is likely its own.
func TestANodeThatIsNotTheMachinesIsNamedAsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		given health.Other
		want  string
	}{
		"another provider ID": {health.Other{Name: "n", Wanted: "p://a"}, `Node n has the provider ID "", and Cluster API looks for "p://a"`},
		"several of it":       {health.Other{Name: "n", ProviderID: "P://a", Wanted: "p://a"}, `Node n is one of several of provider ID "p://a"`},
	} {
		f := health.Finding{Reason: health.NodeStartup, Limit: time.Minute, Other: tc.given}
		found := Findings(health.Verdict{Findings: []health.Finding{f}}, time.Time{}.Add(time.Hour))
		if len(found) != 1 || !strings.Contains(found[0].Text, tc.want) || findingText(f) != "Node failed to report startup in 1m0s" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
