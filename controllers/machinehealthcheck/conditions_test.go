package machinehealthcheck

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func finding(r health.Reason, detail string) health.Finding {
	return health.Finding{Reason: r, Signal: health.Signal{Reason: detail}}
}

// The older flavour has reasons of its own.
func TestAFailedHealthCheckHasTheReasonsOfBothFlavours(t *testing.T) {
	for reason, want := range map[health.Reason]string{
		health.MarkedByHand: "HasRemediateMachineAnnotation", health.MachineFailed: "MachineHasFailure", health.MachineCondition: "UnhealthyMachine",
		health.NodeDeleted: "NodeNotFound", health.NodeStartup: "NodeStartupTimeout", health.NodeCondition: "UnhealthyNode",
	} {
		m := written(a("m", health.Unhealthy).Machine, []health.Finding{finding(reason, "bad")}, noon, setUnhealthy)
		if c := v1beta1conditions.Get(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition); c == nil || c.Status != "False" || c.Reason != want {
			t.Errorf("%s: the older flavour is %v, want False %s", reason, c, want)
		}
	}
}

func TestWhatIsForgottenIsForgottenInBothFlavours(t *testing.T) {
	m := a("m", health.Unhealthy).Machine
	m = written(m, nil, noon, setUnhealthy, ownerAsked)
	m = written(m, nil, noon, setHealthy)
	next := written(m, nil, noon, setUnhealthy, ownerForgot)
	if ConditionOf(next, clusterv1.MachineOwnerRemediatedCondition) != nil || v1beta1conditions.Get(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition) != nil {
		t.Errorf("%+v, want no OwnerRemediated", next.Status)
	}
}

func TestWhatIsSaidTwiceIsWrittenOnce(t *testing.T) {
	due := []health.Finding{finding(health.NodeCondition, "bad")}
	for name, all := range map[string][]metav1.Condition{
		"healthy": {setHealthy, requestGone}, "unhealthy": {setUnhealthy, ownerAsked}, "requested": {setUnhealthy, requested},
		"refused": append(slices.Clip(notCreated), setUnhealthy),
	} {
		t.Run(name, func(t *testing.T) {
			m := a("m", health.Unhealthy).Machine
			first := written(m, due, noon, all...)
			if first == nil {
				t.Fatal("nothing was said")
			}
			if again := written(first, due, noon.Add(time.Hour), all...); again != nil {
				t.Errorf("it is said again: %s", cmp.Diff(first.Status, again.Status))
			}
			if len(m.Status.Conditions) != 0 || m.Status.Deprecated != nil {
				t.Error("the machine of the cache was changed")
			}
		})
	}
}

func TestSaidHealthyAgreesWithWhatWouldBeWritten(t *testing.T) {
	for name, m := range map[string]*clusterv1.Machine{
		"nothing was said":             a("m", health.Healthy).Machine,
		"it was said":                  a("m", health.Healthy, markedBefore).Machine,
		"only one flavour was said":    a("m", health.Healthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)).Machine,
		"the opposite was said":        a("m", health.Healthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")).Machine,
		"a request is left":            a("m", health.Healthy, markedBefore, withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "X")).Machine,
		"another generation was meant": a("m", health.Healthy, markedBefore, func(t *Target) { t.Machine.Generation++ }).Machine,
	} {
		t.Run(name, func(t *testing.T) {
			if writes := written(m, nil, noon, setHealthy, requestGone) != nil; writes == MarkedHealthy(m) {
				t.Errorf("MarkedHealthy() = %t, and writing it changes something: %t", MarkedHealthy(m), writes)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() { MarkedHealthy(a1) }); n != 0 {
		t.Errorf("MarkedHealthy() allocates %v times; it is called for each machine in each reconcile", n)
	}
}

var a1 = a("m", health.Healthy, markedBefore).Machine

func TestReleasingRemovesOnlyTheConditionsOfChecks(t *testing.T) {
	m := a("m", health.Unhealthy, withCondition(clusterv1.ReadyCondition, metav1.ConditionFalse, "X"),
		withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode"), askedOwner,
		withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "X")).Machine
	next := releasedCopy(m)
	if len(next.Status.Conditions) != 1 || next.Status.Conditions[0].Type != clusterv1.ReadyCondition {
		t.Errorf("left are %v, want Ready alone", next.Status.Conditions)
	}
	answered := a("m", health.Unhealthy, withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "RemediationDeferred")).Machine
	if releasedCopy(answered) != nil {
		t.Error("the owner's own answer was removed")
	}
	cycled := a("m", health.Unhealthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, mendv1.PowerCycleFailedReason), askedOwner).Machine
	if Marked(cycled) || releasedCopy(cycled) != nil {
		t.Error("the condition of a power cycle, which no check set, was removed")
	}
}

// Owners answer in the condition, in each flavour on its own. It must not be reset while they work.
func TestTheAnswerOfAnOwnerIsNotOverwritten(t *testing.T) {
	kind, waits := clusterv1.MachineOwnerRemediatedCondition, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	deferred := func(t *Target) {
		v1beta1conditions.MarkFalse(t.Machine, clusterv1.ConditionType(kind), "RemediationDeferred", clusterv1.ConditionSeverityInfo, "")
	}
	for name, tc := range map[string]struct {
		before        []func(*Target)
		want, v1beta1 string
	}{
		"it was never asked":                       {nil, waits, waits},
		"it has done it before":                    {[]func(*Target){withCondition(kind, metav1.ConditionTrue, "Done")}, waits, waits},
		"it has said why it waits":                 {[]func(*Target){withCondition(kind, metav1.ConditionFalse, "RemediationDeferred")}, "RemediationDeferred", waits},
		"it has said so in the older flavour":      {[]func(*Target){deferred}, waits, "RemediationDeferred"},
		"it has done it before in the older alone": {[]func(*Target){func(t *Target) { v1beta1conditions.MarkTrue(t.Machine, clusterv1.ConditionType(kind)) }}, waits, waits},
	} {
		next := written(a("m", health.Unhealthy, tc.before...).Machine, nil, noon, setUnhealthy, ownerAsked)
		if c := ConditionOf(next, kind); c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.want {
			t.Errorf("%s: got %v, want False %s", name, c, tc.want)
		}
		if c := v1beta1conditions.Get(next, clusterv1.ConditionType(kind)); c == nil || c.Status != corev1.ConditionFalse || c.Reason != tc.v1beta1 {
			t.Errorf("%s: the older flavour is %v, want False %s", name, c, tc.v1beta1)
		}
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
		if message, v1beta1 := healthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}
