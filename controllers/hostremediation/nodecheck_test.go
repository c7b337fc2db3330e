package hostremediation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// ofNodeHealthCheck gives a remediation the shape that a NodeHealthCheck gives it, for the node of a machine.
func ofNodeHealthCheck(rem *mendv1.HostRemediation) {
	rem.Labels = map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"}
	rem.Annotations = map[string]string{"remediation.medik8s.io/node-name": "node", "remediation.medik8s.io/template-name": "reboot"}
	rem.OwnerReferences = append([]metav1.OwnerReference{
		{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "workers", UID: "check-uid"},
	}, rem.OwnerReferences...)
}

func toldToStop(rem *mendv1.HostRemediation) {
	metav1.SetMetaDataAnnotation(&rem.ObjectMeta, nhcv1.TimedOutAnnotation, "2026-01-01T12:00:00Z")
}

// stands is what rem says of itself as a whole: Processing, Succeeded, and why.
func stands(rem *mendv1.HostRemediation) [3]string {
	processing, succeeded := conditions.Get(rem, nhcv1.ProcessingCondition), conditions.Get(rem, nhcv1.SucceededCondition)
	if processing == nil || succeeded == nil {
		return [3]string{}
	}
	return [3]string{string(processing.Status), string(succeeded.Status), succeeded.Reason}
}

// MachineSets and control planes act on a machine only if it is marked unhealthy as well, which no NodeHealthCheck does.
func TestAMachineThatNoCheckJudgesIsMarkedUnhealthyWhenItsOwnerIsAsked(t *testing.T) {
	stale := metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue, Reason: "HealthCheckSucceeded"}
	for name, tc := range map[string]struct {
		was    *metav1.Condition
		judged bool
		acts   bool
	}{
		"no check has ever judged it":               {acts: true},
		"no check judges it any more":               {was: &stale, acts: true},
		"a check does, and has the last word on it": {was: &stale, judged: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, ofNodeHealthCheck)
			if tc.judged {
				check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check"}}
				check.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "none", Operator: metav1.LabelSelectorOpDoesNotExist}} // all machines
				check.Spec.ClusterName = "c"
				k.creates(check)
			}
			if tc.was != nil {
				k.edits("m", func(m *clusterv1.Machine) { conditions.Set(m, *tc.was) })
			}
			k.do(remediation.RequestOwner(t.Context(), k.client, k.machine(t.Context()), noon))
			m := k.machine(t.Context())
			if acts := collections.IsUnhealthyAndOwnerRemediated(m); acts != tc.acts {
				t.Errorf("its owner acts on it: %t; conditions are %v", acts, m.Status.Conditions)
			}
			k.do(remediation.WithdrawFromOwner(t.Context(), k.client, m))
			m = k.machine(t.Context())
			if conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) || conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition) {
				t.Errorf("the conditions stay: %v", m.Status.Conditions)
			}
		})
	}
}

func TestWhatTheOwnerHasAnsweredStaysAndThatWeCalledTheMachineBadDoesNot(t *testing.T) {
	k := fixtureOf(t)
	k.do(remediation.RequestOwner(t.Context(), k.client, k.machine(t.Context()), noon))
	m := k.machine(t.Context())
	conditions.Set(m, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: "RemediationDeferred"})
	k.do(remediation.WithdrawFromOwner(t.Context(), k.client, m))
	m = k.machine(t.Context())
	if !conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition) || conditions.Has(m, clusterv1.MachineHealthCheckSucceededCondition) {
		t.Errorf("conditions are %v", m.Status.Conditions)
	}
}

// The owner was asked in vain if the machine is not marked unhealthy: it is asked once more.
func TestAnOwnerThatCannotActWasNotAsked(t *testing.T) {
	k := fixtureOf(t, ofNodeHealthCheck, remembers(`{"state":"RequestingOwner","attempt":2}`))
	k.edits("m", func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: "WaitingForRemediation"})
	})
	k.expects(marks)
	k.pass()
	if got, want := stands(k.remediation()), [3]string{"False", "False", "OwnerRequested"}; got != want {
		t.Errorf("it stands at %v, want %v", got, want)
	}
	if m := k.machine(t.Context()); !collections.IsUnhealthyAndOwnerRemediated(m) {
		t.Errorf("its owner does not act: %v", m.Status.Conditions)
	}
}

// H-11: a node may be Ready all the time, and be remediated for another condition. To be Ready after the power cycle is no success then.
func TestANodeIsWellOnlyIfTheNodeHealthCheckThatAskedFindsNothingWrong(t *testing.T) {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "check-uid"}}
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{Type: "Ready", Status: "False"}, {Type: "KernelDeadlock", Status: "True"}}
	another := check.DeepCopy()
	another.UID = "another-uid"
	for name, row := range map[string]struct {
		checks     []client.Object
		conditions map[corev1.NodeConditionType]corev1.ConditionStatus
		well       bool
	}{
		"ready, and nothing else":               {[]client.Object{check}, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True"}, true},
		"ready, and the other condition is met": {[]client.Object{check}, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True", "KernelDeadlock": "True"}, false},
		"ready, and it is met no longer":        {[]client.Object{check}, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True", "KernelDeadlock": "False"}, true},
		"not ready":                             {[]client.Object{check}, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "False"}, false},
		"the check is gone":                     {nil, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True", "KernelDeadlock": "True"}, true},
		"another check has its name":            {[]client.Object{another}, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True", "KernelDeadlock": "True"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, ofNodeHealthCheck, awaitsBoot)
			for _, check := range row.checks {
				k.creates(check.DeepCopyObject().(client.Object))
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			node.Status.NodeInfo.BootID = "after"
			for of, status := range row.conditions {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: of, Status: status})
			}
			k.r.Clusters = answering{nodes: []*corev1.Node{node}}
			k.pass()
			if state := remediation.Remembered(k.remediation()).State; (state == powercycle.Succeeded) != row.well {
				t.Errorf("it is %s, want it to have succeeded: %t", state, row.well)
			}
		})
	}
}

// Two checks select the machine, of which one finds it unhealthy: HealthCheckSucceeded is False for that.
func TestAPowerCycleHasSucceededByTheRulesOfTheCheckThatMadeIt(t *testing.T) {
	for name, row := range map[string]struct{ healthy, known, well bool }{
		"which finds the machine healthy":   {true, true, true},
		"which finds it unhealthy":          {false, true, false},
		"not if it does not know it anyway": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, byCheck, awaitsBoot)
			check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "another"}}
			check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c", map[string]string{"of": "both"}
			k.creates(check)
			k.edits("m", func(m *clusterv1.Machine) {
				m.Labels = check.Spec.Selector.MatchLabels
				conditions.Set(m, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "another"})
			})
			k.r.Clusters = boots("after", corev1.ConditionTrue)
			k.r.Finds = func(check client.ObjectKey, machine types.UID) (healthy, known bool) {
				ours := check == client.ObjectKey{Namespace: "ns", Name: "workers"} && machine == "machine-uid"
				return row.healthy && ours, row.known
			}
			k.pass()
			if state := remediation.Remembered(k.remediation()).State; (state == powercycle.Succeeded) != row.well {
				t.Errorf("it is %s, want it to have succeeded: %t", state, row.well)
			}
		})
	}
}
