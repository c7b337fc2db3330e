package hostremediation

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
)

// The machine's status.nodeRef is node, and its provider ID is metal3://a. Its host was power-cycled.
func TestAPowerCycleKnowsTheNodeOfItsMachineByTheProviderID(t *testing.T) {
	for name, row := range map[string]struct {
		nodes map[string]string // provider IDs by name
		well  bool
	}{
		"in capitals":                          {map[string]string{"node": "METAL3://A"}, true},
		"without one it goes by its name":      {map[string]string{"node": ""}, true},
		"under another name":                   {map[string]string{"renamed": "metal3://a"}, true},
		"not the node of another of that name": {map[string]string{"node": "metal3://b"}, false},
		"nor where there are several":          {map[string]string{"node": "metal3://a", "renamed": "metal3://a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, awaitsBoot)
			k.edits("m", func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://a" })
			there := answering{}
			for name, id := range row.nodes {
				node := readyNode("after")
				node.Name, node.Spec.ProviderID = name, id
				there.nodes = append(there.nodes, node)
			}
			k.r.Clusters = there
			k.pass()
			if state := remediation.Remembered(k.remediation()).State; (state == powercycle.Succeeded) != row.well {
				t.Errorf("it is %s, want it to have succeeded: %t", state, row.well)
			}
			if len(row.nodes) < 2 {
				return
			}
			status, record := k.wait(time.Hour), remediation.Remembered(k.remediation())
			if record.State != powercycle.Booting || record.Attempt != 1 || record.Person != powercycle.NodeMismatchReason {
				t.Errorf("after an hour it is %s in attempt %d: %s", record.State, record.Attempt, status.Message)
			}
		})
	}
}

// If the last boot of a control-plane machine takes too long, its owner is asked, but not because of what another cluster says.
func TestAnotherClusterInPlaceOfItsOwnCondemnsNoMachineOfTheControlPlane(t *testing.T) {
	changed := &workload.ChangedError{Kept: "a", Found: "b"}
	for name, row := range map[string]struct {
		state             string
		changed, verified error
		want              powercycle.State
	}{
		"its own does not answer":                       {"Booting", nil, nil, powercycle.OwnerRequested},
		"another answers":                               {"Booting", changed, nil, powercycle.Booting},
		"another answers by now":                        {"Booting", nil, changed, powercycle.Booting},
		"another answers before the owner can be asked": {"RequestingOwner", nil, changed, powercycle.RequestingOwner},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, remembers(`{"state":"`+row.state+`","since":"`+noon.Add(-time.Hour).Format(time.RFC3339)+
				`","attempt":2,"uid":"remediation-uid","machine":"m","host":"h","node":"node","bootID":"before"}`))
			k.obeyed = true
			k.edits("m", func(m *clusterv1.Machine) {
				metav1.SetMetaDataLabel(&m.ObjectMeta, clusterv1.MachineControlPlaneLabel, "")
			})
			k.r.Clusters = silent{row.changed}
			k.r.Verify = func(context.Context, client.ObjectKey) error {
				if row.verified != nil {
					k.r.Clusters = silent{row.verified}
				}
				return row.verified
			}
			status := k.pass()
			record := remediation.Remembered(k.remediation())
			if record.State != row.want || (record.Person != "") != (row.want != powercycle.OwnerRequested) {
				t.Errorf("it is %s, and a person is asked for %q: %s", record.State, record.Person, status.Message)
			}
		})
	}
}

func TestTheNodeOfAMachineIsFencedUnderTheNameThatItHasNow(t *testing.T) {
	k := fixtureOf(t)
	k.obeyed = true
	k.edits("m", func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://a" })
	k.seen.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "renamed"}, Spec: corev1.NodeSpec{ProviderID: "metal3://a"}}
	k.r.Clusters = answering{nodes: []*corev1.Node{k.seen.Node}}
	k.reaches(powercycle.MovingWorkload)
	k.r.Clusters = silent{} // the cache says nothing for a moment
	k.pass()
	remembered := remediation.Remembered(k.remediation())
	if k.looked != "renamed" || remembered.Node != "renamed" {
		t.Errorf("Node %q was read to be fenced, and %q is remembered to be unfenced", k.looked, remembered.Node)
	}
}

// H-B8: the node has registered under the name of another machine's node.
func TestTheNodeOfAnotherMachineIsNotFenced(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"by its provider ID":                func(n *corev1.Node) { n.Spec.ProviderID = "metal3://another" },
		"registered anew since it was seen": func(n *corev1.Node) { n.UID = "another-uid" },
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t)
			k.edits("m", func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://a" })
			k.seen.Node.Spec.ProviderID = "metal3://a"
			k.r.Clusters = answering{nodes: []*corev1.Node{k.seen.Node.DeepCopy()}}
			k.expects(powersOff, releases)
			k.pass()
			k.seen.Node = k.seen.Node.DeepCopy()
			change(k.seen.Node)
			k.power(false)
			s := k.pass()
			why := conditions.GetReason(k.remediation(), infrav1.WorkloadMovedCondition)
			if s.Step != string(powercycle.PoweringOn) || why != string(powercycle.NodeMismatchReason) {
				t.Errorf("in %s: %s; the workload has not moved because of %s", s.Step, s.Message, why)
			}
		})
	}
}

// A user may delete a BareMetalHost to correct its BMC address.
func TestAHostThatIsGoneIsNotMarked(t *testing.T) {
	if err := fixtureOf(t).r.markHost(t.Context(), &observed{}, powercycle.Disprove); err != nil {
		t.Error(err)
	}
}

// indexing makes a fake client list by the indexes of a manager's cache.
type indexing struct{ *fake.ClientBuilder }

func (i indexing) IndexField(_ context.Context, obj client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(obj, field, of)
	return nil
}

func TestAPowerCycleHearsOfTheNodeOfItsMachineUnderAnotherName(t *testing.T) {
	k := fixtureOf(t, remembers(`{"state":"Booting","host":"h","node":"node"}`))
	builder := fake.NewClientBuilder().WithScheme(k.client.Scheme()).WithObjects(k.remediation())
	if err := k.r.addIndex(t.Context(), indexing{builder}); err != nil {
		t.Fatal(err)
	}
	k.r.Client = builder.Build()
	for _, row := range []struct {
		name, id string
		heard    int
	}{{"node", "", 1}, {"renamed", "metal3://ns/h/m3m", 1}, {"renamed", "metal3://ns/another/m3m", 0}, {"renamed", "metal3://h", 0}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: row.name}, Spec: corev1.NodeSpec{ProviderID: row.id}}
		if got := k.r.ofNode(t.Context(), "ns", node); len(got) != row.heard {
			t.Errorf("%+v: %v", row, got)
		}
		later := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: &corev1.Node{ObjectMeta: node.ObjectMeta}, ObjectNew: node}
		if got := nodeChanges().Update(later); got != (row.id != "") {
			t.Errorf("%+v: that its provider ID is known passes: %t", row, got)
		}
	}
}

func TestThePowerOffOfAnotherMachinesHostWasNotDisprovedForThisOne(t *testing.T) {
	k := fixtureOf(t)
	k.host.Annotations[mendv1.PowerOffDisprovedAnnotation] = "2026-01-01T11:00:00Z"
	for belongs, want := range map[powercycle.Host]bool{powercycle.HostOurs: true, powercycle.HostForeign: false} {
		w := &observed{kept: &kept{}, rem: mustWrap(k.remediation()), found: host.Found{Host: host.From(k.host), Is: belongs}}
		if got := k.r.factsOf(w).Disproved; got != want {
			t.Errorf("host %d: %t", belongs, got)
		}
	}
}

// ofNodeHealthCheck gives a remediation the metadata that a NodeHealthCheck sets, for the node of a machine.
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

// stands returns the conditions Processing and Succeeded of rem, and their reason.
func stands(rem *mendv1.HostRemediation) [3]string {
	processing, succeeded := conditions.Get(rem, nhcv1.ProcessingCondition), conditions.Get(rem, nhcv1.SucceededCondition)
	if processing == nil || succeeded == nil {
		return [3]string{}
	}
	return [3]string{string(processing.Status), string(succeeded.Status), succeeded.Reason}
}

// Owners act on a machine only if HealthCheckSucceeded is False, which no NodeHealthCheck sets.
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

// The owner has ignored a request for a machine that is not marked unhealthy, so the request is repeated.
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

// H-11: a node may be Ready and be remediated for another condition. That it is Ready after the power cycle is no success then.
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

// Two checks select the machine, and one of them finds it unhealthy, so that HealthCheckSucceeded is False.
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
