package nodehealthcheck

import (
	"context"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// recording makes the reconciler of k write records.
func (k *fixture) recording() *fixture {
	k.r.Records = &records.Records{
		Client: k.client, Live: k.client, Clock: k.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	return k
}

func (k *fixture) records() []mendv1.RemediationRecord {
	k.t.Helper()
	list := &mendv1.RemediationRecordList{}
	must.Do(k.t, k.client.List(k.t.Context(), list))
	return list.Items
}

// named appends the record of each request that is created from now on.
func (k *fixture) named(of *[]string) {
	k.watch = func(req *unstructured.Unstructured) { *of = append(*of, req.GetAnnotations()[mendv1.RecordAnnotation]) }
}

// A manager that has just started does not know yet how often requests for a node were deleted before.
func TestAfterAStartARequestIsNotMadeAgainBeforeTheRecordsAreKnown(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...).recording()
	badB(k)
	k.remove(k.objects()[0])
	k.after(time.Hour)
	k.restart()
	k.reconciles("nhc")
	k.wants("the records are not known")
	k.after(31 * time.Second)
	k.settle("nhc")
	k.wants("they are awaited no more", "Reboot/b")
}

func TestThereIsARecordBeforeTheRequest(t *testing.T) {
	k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), check("nhc"))...).recording()
	before := -1
	k.fails = func(verb string, obj client.Object) error {
		if u, is := obj.(*unstructured.Unstructured); is && verb == "create" && u.GetKind() == "Reboot" {
			before = len(k.records())
		}
		return nil
	}
	k.turn("w0", corev1.ConditionFalse)
	k.settle("nhc")
	if got := k.records(); len(got) > 0 {
		t.Errorf("a node within its timeout has %d records", len(got))
	}
	k.after(5 * time.Minute)
	k.settle("nhc")
	all := k.records()
	if len(all) == 1 && all[0].Status.Begun.IsZero() {
		t.Error("the record does not say that the remediation has begun: the node may recover, and the request go, at once")
	}
	if before != 1 || len(all) != 1 || all[0].Namespace != namespace || len(all[0].OwnerReferences) > 0 {
		t.Fatalf("before the request there were %d records, and there are %+v", before, all)
	}
	if named := k.objects()[0].GetAnnotations()[mendv1.RecordAnnotation]; named != records.Carried(&all[0], namespace) {
		t.Errorf("the request names %q, want %q", named, all[0].Name)
	}
}

// metal has a host for each machine.
type metal struct{ powercycle.Power }

func (is metal) Of(_ context.Context, m *clusterv1.Machine) (host.Found, error) {
	h := &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "host-of-" + m.Name, UID: "host-uid"}, Model: "ACME X1"}
	h.Power = is.Power
	return host.Found{Host: h, Is: powercycle.HostOurs}, nil
}

func TestTheRecordOfANodeOnBareMetalHasItsHost(t *testing.T) {
	k := controlPlaneOfThree(t).recording()
	k.r.Records.Hosts = metal{}
	k.settle("nhc")
	all := k.records()
	if len(all) != 1 {
		t.Fatalf("there are %d records", len(all))
	}
	want := &mendv1.RecordRef{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: "capi", Name: "host-of-m1", UID: "host-uid"}
	if target := &all[0].Spec.Target; cmp.Diff(want, target.Host) != "" || target.HostModel != "ACME X1" {
		t.Errorf("its host is %+v of the model %q", target.Host, target.HostModel)
	}
}

// A firmware update of all components of a host takes long.
func TestAnUpdateInPlaceHoldsForAsLongAsTheFirmwareIsWritten(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "m0"}}
	machine.Spec.ClusterName, machine.Status.NodeRef.Name = "home", "w0"
	machine.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(epoch.Add(-3 * time.Hour)),
	}}
	k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), check("nhc"), machine)...)
	k.annotateNode("w0", map[string]string{clusterv1.MachineAnnotation: "m0", clusterv1.ClusterNamespaceAnnotation: "capi"})
	k.recording().r.Records.Hosts = metal{powercycle.Power{Serviced: true}}
	k.bad("w0")
	k.settle("nhc")
	if got := k.objects(); len(got) > 0 {
		t.Errorf("there is %s while the firmware of the host is written", got[0].GetName())
	}
	k.r.Records.Hosts = metal{}
	k.after(time.Minute)
	k.settle("nhc")
	if got := k.objects(); len(got) != 1 {
		t.Errorf("there are %d requests afterwards", len(got))
	}
}

// The templates of an escalation may be in several namespaces. The record is in the namespace of the first request.
func TestAnEscalationInSeveralNamespacesHasOneRecord(t *testing.T) {
	far := template("Replace", "replace", false)
	far.SetNamespace("elsewhere")
	there := refTo("Replace", "replace")
	there.Namespace = far.GetNamespace()
	k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), far, check("nhc", ladder(refTo("Reboot", "reboot"), there)))...).recording()
	var named []string
	k.named(&named)
	k.turn("w0", corev1.ConditionFalse)
	for range 3 {
		k.after(5 * time.Minute)
		k.settle("nhc")
	}
	all := k.records()
	if len(all) != 1 || all[0].Namespace != namespace {
		t.Fatalf("%q were made, and there are %d records", k.made, len(all))
	}
	must.List(t, []string{records.Carried(&all[0], namespace), records.Carried(&all[0], "elsewhere")}, named, "the requests name")
}

// The record of a remediation stays open until its check reports that no step is left.
func TestACheckSaysWhetherItHasAStepLeftForANode(t *testing.T) {
	steps := ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))
	k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), template("Replace", "replace", false), check("nhc", steps))...)
	k.bad("w0")
	left := map[string]bool{"at the start": k.r.StepLeft("nhc", "w0")}
	k.settle("nhc")
	left["after the first step"] = k.r.StepLeft("nhc", "w0")
	for range 3 {
		k.after(5 * time.Minute)
		k.settle("nhc")
	}
	left["after the last one"] = k.r.StepLeft("nhc", "w0")
	left["of a healthy node"] = k.r.StepLeft("nhc", "w1")
	k.r.forget("nhc")
	left["of a check that is gone"] = k.r.StepLeft("nhc", "w0")
	must.Equal(t, map[string]bool{
		"at the start": true, "after the first step": true, "after the last one": false, "of a healthy node": true,
		"of a check that is gone": true,
	}, left, "a step is left")
}

func TestARecordSaysWhatWasDecidedAboutANode(t *testing.T) {
	yes := true
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "capi", Name: "m0", UID: "m-uid",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Name: "ms", UID: "ms-uid", Controller: &yes}},
	}}
	m.Spec.ClusterName, m.Spec.FailureDomain = "this", "rack-7"
	since, due := epoch.Add(-6*time.Minute), epoch.Add(-time.Minute)
	signal := health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Since: since}
	c := check("nhc")
	c.Spec.MinHealthy = new(intstr.Parse("51%"))
	w := &observed{check: c, facts: FactsOf(c, epoch)}
	o := &outcome{
		Decision: &Decision{Node: &Node{Name: "w0", Object: member("w0"), Machine: &Machine{Object: m}}, Verdict: health.Verdict{State: health.Unhealthy, Findings: []health.Finding{
			{Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: due, Signal: signal},
		}}},
		plan: &Plan{Population: budget.Population{Healthy: 4, Unhealthy: 1}},
	}
	from, to := metav1.NewTime(since), metav1.NewTime(due)
	want := mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByRequest, Decided: metav1.NewTime(epoch), Cause: "Ready=Unknown", UnhealthySince: &from, Due: &to,
		Target: mendv1.RecordTarget{
			Machine: &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Namespace: "capi", Name: "m0", UID: "m-uid"},
			Owner:   &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Namespace: "capi", Name: "ms", UID: "ms-uid"},
			Node:    &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "w0", UID: "node-w0"}, FailureDomain: "rack-7", ControlPlane: true,
		},
		Requester: mendv1.RecordRequester{Check: &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nhc", UID: "check-nhc"}},
		Evidence:  []mendv1.RecordEvidence{{Type: "Ready", Status: "Unknown", Since: &from, TimeoutSeconds: 300, Message: "NodeStatusUnknown"}},
		Counts:    &mendv1.RecordCounts{Targets: 5, Healthy: 4, Limit: "51%"},
	}
	must.Equal(t, want, recordOf(w, o).Spec, "of a node with a Machine")
	o.Object.Labels[corev1.LabelTopologyZone], o.Machine = "row-3", nil
	want.Target = mendv1.RecordTarget{Node: want.Target.Node, ControlPlane: true, FailureDomain: "row-3"}
	must.Equal(t, want, recordOf(w, o).Spec, "of a node without one")
}

// The name of a record does not depend on the memory of a manager, so that another manager finds the same name.
func TestRemediationsOfANodeDifferByWhatItsConditionsSay(t *testing.T) {
	since := func(name string, n *Node) string {
		facts := FactsOf(check(name), epoch)
		facts.Policy.Rules = []health.Rule{{Type: "Ready", Status: "False"}, {Type: "DiskPressure", Status: "False"}}
		return unhealthySince(&facts, n)
	}
	at := func(ago time.Duration) *Node {
		return &Node{Object: &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: "Ready", Status: "False", LastTransitionTime: metav1.NewTime(epoch.Add(-ago))},
			{Type: "DiskPressure", Status: "False", LastTransitionTime: metav1.NewTime(epoch)},
		}}}}
	}
	created := func(at time.Time) *Node {
		return &Node{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}}
	}
	first := since("nhc", at(time.Hour))
	for name, tc := range map[string]struct {
		got  string
		same bool
	}{
		"the same":                            {since("nhc", at(time.Hour)), true},
		"a later failure":                     {since("nhc", at(time.Minute)), false},
		"by another check":                    {since("other", at(time.Hour)), false},
		"a node that has reported nothing":    {since("nhc", created(epoch)), false},
		"one that was created at that moment": {since("nhc", created(epoch.Add(-time.Hour))), true},
	} {
		if same := tc.got == first; same != tc.same {
			t.Errorf("%s: %q after %q", name, tc.got, first)
		}
	}
}
