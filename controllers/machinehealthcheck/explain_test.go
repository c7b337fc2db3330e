package machinehealthcheck

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// explanationOf is the explanation of w.
func explanationOf(w *observed) *explain.Check {
	return explained(w, decide(w))
}

// seen is the explanation of p for t.
func seen(w *observed, p *Plan, t *Target) explain.Target {
	all := explained(w, p).Targets
	return all[slices.IndexFunc(all, func(is explain.Target) bool { return is.Name == t.Machine.Name })]
}

func (w *observed) with(change func(*observed)) *observed {
	change(w)
	return w
}

func dueIn(d time.Duration) func(*Target) {
	return func(t *Target) {
		of(t).verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Signal: health.Signal{Reason: "Bad"}, Limit: 5 * time.Minute, Due: noon.Add(d)}}
		of(t).verdict.Recheck = noon.Add(d)
	}
}

func ownedBy(kind string) func(*Target) {
	return func(t *Target) {
		t.Machine.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

// answered gives the target's machine what its owner has said since it was asked.
func answered(reason, message string) func(*Target) {
	return func(t *Target) {
		askedOwner(t)
		said := &t.Machine.Status.Conditions[len(t.Machine.Status.Conditions)-1]
		said.Reason, said.Message = reason, message
	}
}

func TestWhatComesNextForAMachine(t *testing.T) {
	owner, cannot, deferred := ownedBy("MachineSet"), clusterv1.MachineSetMachineCannotBeRemediatedReason, clusterv1.MachineSetMachineRemediationDeferredReason
	unclaimed := func(w *observed) { w.Mode = Observed }
	claimedAndPaused := func(w *observed) {
		w.Mode, w.Cluster.Spec.Paused = Paused, ptr.To(true)
		w.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	}
	for name, tc := range map[string]struct {
		given  *observed
		want   string
		person bool
	}{
		"its owner is asked": {aCheck(a("m", health.Unhealthy, owner)), "kubemend asks its owner, MachineSet owner, to remediate it", false},
		"its owner was asked": {aCheck(a("m", health.Unhealthy, owner, askedOwner)),
			"MachineSet owner replaces it, or reports in OwnerRemediated why it does not", false},
		"its owner has put it off": {aCheck(a("m", health.Unhealthy, owner, answered(deferred, "* Two are\n  too many."))),
			"MachineSet owner tries again by itself (RemediationDeferred)", false},
		"its owner cannot": {aCheck(a("m", health.Unhealthy, owner, answered(cannot, ""))),
			"end what keeps MachineSet owner from replacing the machine, or replace it by hand", true},
		"no owner can be asked":     {aCheck(a("m", health.Unhealthy, withoutOwner)), "Delete it by hand, or give the check a template", true},
		"no owner was there to ask": {aCheck(a("m", health.Unhealthy, withoutOwner, askedOwner)), "Delete it by hand, or give the check a template", true},
		"its request is answered": {aCheck(a("m", health.Unhealthy, owner, requestedBy("check", "check-uid"))).external(),
			"Metal3Remediation ns/m goes on; the request is deleted as soon as the machine is healthy", false},
		"its owner was asked, and has put it off": {
			aCheck(a("m", health.Unhealthy, owner, requestedBy("check", "check-uid"), answered(deferred, "later"))).external(),
			"MachineSet owner tries again by itself (RemediationDeferred)", false},
		"it is on its way out": {aCheck(a("m", health.Unhealthy, owner, beingDeleted)), "the Machine controller deletes it", false},
		"it is core's":         {aCheck(a("m", health.Unhealthy, owner)).with(unclaimed), "Cluster API core acts on it", false},
		"it will be core's": {aCheck(a("m", health.Pending, owner, dueIn(time.Minute))).with(unclaimed),
			"it counts as unhealthy unless it recovers, and Cluster API core acts on it", false},
		"it is another check's": {aCheck(a("m", health.Unhealthy, owner, olderCheck("older"))), "MachineHealthCheck older acts on it", false},
		"it will be another check's": {aCheck(a("m", health.Pending, owner, olderCheck("older"), dueIn(time.Minute))),
			"it counts as unhealthy unless it recovers, and MachineHealthCheck older acts on it", false},
		"its cluster is paused": {aCheck(a("m", health.Unhealthy, owner)).with(claimedAndPaused),
			"When it is to go on, set spec.paused of Cluster c1 to false", true},
		"its cluster is paused within its timeout": {aCheck(a("m", health.Pending, owner, dueIn(time.Minute))).with(claimedAndPaused),
			"it counts as unhealthy unless it recovers; its remediation is still blocked then by NotActing (Cluster paused)", false},
		"the limit cannot be read": {aCheck(a("m", health.Unhealthy, owner)).limited("some"),
			"Correct spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", true},
		"there are too many": {aCheck(a("m", health.Unhealthy, owner), a("n", health.Unhealthy, owner)).limited("1"),
			"repair what the unhealthy ones have in common; remediation resumes when at most 1 of 2 is not healthy (now 2)", true},
		"it is healthy and being deleted": {aCheck(a("m", health.Healthy, owner, beingDeleted)), "", false},
		"no timeout runs for it":          {aCheck(a("m", health.Pending, owner)).limited("100%"), "", false},
		"it is core's, and its first node may take for ever": {aCheck(a("m", health.Starting, owner)).limited("100%").with(unclaimed),
			"nothing counts before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0", false},
		"its first node may take for ever": {aCheck(a("m", health.Starting, owner)),
			"nothing counts before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			if next := explanationOf(tc.given).Targets[0].Next; next.Text != tc.want || next.Manual != tc.person {
				t.Errorf("got %q, by a person: %t; want %q, %t", next.Text, next.Manual, tc.want, tc.person)
			}
		})
	}
}

func TestWhatTheOwnerReportsStandsBesideTheProviders(t *testing.T) {
	external := withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
	askedByPowerCycle := aCheck(a("m", health.Unhealthy, requestedBy("check", "check-uid"), external, answered("RemediationDeferred", "later"))).external()
	want := "ExternallyRemediated=False (WaitingForRemediation); OwnerRemediated=False (RemediationDeferred): later"
	if got := explanationOf(askedByPowerCycle).Targets[0].Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhyAMachineIsNotSelected(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Spec.ClusterName, m.Labels = "c1", map[string]string{"pool": "a"}
	for name, tc := range map[string]struct {
		cluster string
		labels  map[string]string
		want    string
	}{
		"it is":                    {"c1", map[string]string{"pool": "a"}, ""},
		"it is of another cluster": {"c2", map[string]string{"pool": "a"}, "it is about cluster c2, and the machine is of cluster c1"},
		"the selector is empty":    {"c1", nil, "its spec.selector is empty, which selects nothing"},
		"the label is another one": {"c1", map[string]string{"pool": "b"}, `label pool is "a": needs pool=b`},
		"the label is not there":   {"c1", map[string]string{"rack": "1"}, "has no label rack: needs rack=1"},
	} {
		check := &clusterv1.MachineHealthCheck{}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = tc.cluster, tc.labels
		if got := Unselected(check, m); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
		selector, _ := selectorOf(check)
		if selected := tc.want == ""; selected != (tc.cluster == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))) {
			t.Errorf("%s: the controller says otherwise", name)
		}
	}
}
