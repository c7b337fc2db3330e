package hostremediation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// recording makes the reconciler of k write records, some time after a start.
func (k *fixture) recording() *fixture {
	now := k.clock.Now()
	k.r.Records = &records.Records{
		Client: k.r.Client, Live: k.r.Live, Clock: k.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	k.clock.SetTime(now.Add(-time.Minute))
	k.r.Records.Awaited(k.t.Context())
	k.clock.SetTime(now)
	return k
}

func (k *fixture) records() []mendv1.RemediationRecord {
	k.t.Helper()
	list := &mendv1.RemediationRecordList{}
	if err := k.client.List(k.t.Context(), list); err != nil {
		k.t.Fatal(err)
	}
	return list.Items
}

// wantsRecord expects one record, which the remediation names.
func (k *fixture) wantsRecord(when string) {
	k.t.Helper()
	all := k.records()
	if len(all) != 1 || k.remediation().Annotations[mendv1.RecordAnnotation] != records.Carried(&all[0], all[0].Namespace) {
		k.t.Errorf("%s there are %d records, and the remediation has %v", when, len(all), k.remediation().Annotations)
	}
}

func TestTheRequestOfARecordedRemediationHasNoRecordOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   int
	}{
		"a request by hand has one": {func(*fixture) {}, 1},
		"a check has written one":   {func(k *fixture) { k.has(nil) }, 1},
		"a NodeHealthCheck has written one, of a node without a Machine": {func(k *fixture) {
			k.has(func(r *mendv1.RemediationRecord) {
				r.Spec.Target = mendv1.RecordTarget{Node: records.NodeRef(k.machine(k.t.Context()).Status.NodeRef.Name, "")}
			})
		}, 1},
		"what it names is not there: its manifest was copied": {func(k *fixture) { k.names("of-a-check") }, 1},
		"what it names has ended": {func(k *fixture) {
			k.has(func(r *mendv1.RemediationRecord) { r.Status.Ended = new(metav1.NewTime(noon)) })
		}, 2},
		"what it names is about another machine": {func(k *fixture) {
			k.has(func(r *mendv1.RemediationRecord) { r.Spec.Target.Machine.Name = "another" })
		}, 2},
		"nothing begins while it is paused": {func(k *fixture) {
			k.edit(func(r *mendv1.HostRemediation) { r.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}, 0},
		"nothing begins in a teardown": {func(k *fixture) { k.r.Teardown = true }, 0},
		"the kind of records is not there": {func(k *fixture) {
			k.r.Records.Installed = func(context.Context, string) (bool, error) { return false, nil }
		}, 0},
		"the reconciler of a command writes none": {func(k *fixture) { k.r.Records = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t).recording()
			k.obeys()
			tc.change(k)
			k.pass()
			if got := k.records(); len(got) != tc.want {
				t.Errorf("there are %d records, want %d", len(got), tc.want)
			}
		})
	}
}

func TestATeardownTakesTheNameOfTheRecordOffWithTheMemory(t *testing.T) {
	k := fixtureOf(t).recording()
	k.obeys()
	k.pass()
	if k.remediation().Annotations[mendv1.RecordAnnotation] == "" {
		t.Fatal("the remediation names no record")
	}
	k.r.Teardown = true
	for range 20 {
		k.pass()
	}
	for _, key := range []string{mendv1.PowerCycleAnnotation, mendv1.RecordAnnotation} {
		if value, left := k.remediation().Annotations[key]; left {
			t.Errorf("%s is left: %s", key, value)
		}
	}
}

// has creates an open record of the machine, which the remediation names.
func (k *fixture) has(change func(*mendv1.RemediationRecord)) {
	k.t.Helper()
	m := k.machine(k.t.Context())
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "of-a-check"}}
	records.OnMachine(record, m)
	if change != nil {
		change(record)
	}
	k.creates(record)
	k.names(record.Name)
}

func (k *fixture) names(record string) {
	k.edit(func(r *mendv1.HostRemediation) { r.Annotations = map[string]string{mendv1.RecordAnnotation: record} })
}

// A record that cannot be written delays nothing.
func TestARemediationGoesOnWithoutARecord(t *testing.T) {
	k := fixtureOf(t)
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("a quota is used up")
		},
	})
	k.recording()
	k.expects(powersOff, fences, releases)
	k.reaches(powercycle.PoweringOn)
	if _, named := k.remediation().Annotations[mendv1.RecordAnnotation]; named || len(k.records()) > 0 {
		t.Errorf("it names a record: %v", k.remediation().Annotations)
	}
}

// clusterctl creates the remediation again, with another UID and the same annotations.
func TestAMovedRemediationKeepsItsRecord(t *testing.T) {
	k := fixtureOf(t).recording()
	k.obeys()
	k.pass()
	k.wantsRecord("before the move")
	moved := k.remediation()
	k.edit(func(r *mendv1.HostRemediation) { r.Finalizers = nil })
	k.deletes(k.remediation())
	moved.UID, moved.ResourceVersion = "another-uid", ""
	m := k.machine(t.Context())
	m.UID, m.ResourceVersion = "another-machine", ""
	moved.OwnerReferences[0].UID = m.UID
	k.deletes(k.machine(t.Context()))
	k.creates(m, moved)
	k.r.written.Forget(k.key)
	k.pass()
	k.wait(time.Hour)
	k.wantsRecord("after the move")
}

func TestARecordSaysWhatAsked(t *testing.T) {
	template := infrav1.GroupVersion.WithKind("Metal3RemediationTemplate")
	cloned := map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation: "reboot", clusterv1.TemplateClonedFromGroupKindAnnotation: template.GroupKind().String(),
	}
	checked := func(name string) *clusterv1.MachineHealthCheck {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "check-uid"}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c", map[string]string{"pool": "a"}
		check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: template.GroupVersion().String(), Kind: template.Kind, Name: "reboot",
		}
		return check
	}
	other := checked("other")
	other.Spec.Remediation.TemplateRef.Name = "other"
	machineCheck := &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineHealthCheck", Namespace: "ns", Name: "workers", UID: "check-uid"}
	nodeCheck := &mendv1.RecordRef{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "nodes", UID: "nhc-uid"}
	for name, tc := range map[string]struct {
		change func(*mendv1.HostRemediation)
		checks []client.Object
		want   mendv1.RecordRequester
	}{
		"a manifest that a user wrote": {func(*mendv1.HostRemediation) {}, []client.Object{checked("workers")}, mendv1.RecordRequester{}},
		"a user, by kubectl mend": {func(r *mendv1.HostRemediation) {
			r.Annotations = map[string]string{mendv1.RequestedAnnotation: `{"by":"alice","at":"2026-01-01T12:00:00Z","reason":"the NIC drops packets"}`}
		}, nil, mendv1.RecordRequester{User: "alice", Reason: "the NIC drops packets"}},
		"a check of kubemend whose record could not be written": {func(r *mendv1.HostRemediation) {
			r.Annotations, r.Labels = map[string]string{mendv1.MadeByAnnotation: "workers"}, map[string]string{mendv1.MadeByUIDLabel: "check-uid"}
		}, nil, mendv1.RecordRequester{Check: machineCheck}},
		"a check of Cluster API core": {
			func(r *mendv1.HostRemediation) { r.Annotations = cloned }, []client.Object{checked("workers"), other}, mendv1.RecordRequester{Check: machineCheck},
		},
		"one of two checks of core, it is not known which": {
			func(r *mendv1.HostRemediation) { r.Annotations = cloned }, []client.Object{checked("workers"), checked("more")}, mendv1.RecordRequester{},
		},
		"a NodeHealthCheck of medik8s": {func(r *mendv1.HostRemediation) {
			r.OwnerReferences = append(r.OwnerReferences, metav1.OwnerReference{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nodes", UID: "nhc-uid"})
		}, nil, mendv1.RecordRequester{Check: nodeCheck}},
		"a NodeHealthCheck of kubemend that is gone": {func(r *mendv1.HostRemediation) {
			r.Annotations, r.Labels = map[string]string{mendv1.MadeByNodeCheckAnnotation: "nodes"}, map[string]string{mendv1.MadeByNodeCheckUIDLabel: "nhc-uid"}
		}, nil, mendv1.RecordRequester{Check: nodeCheck}},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, tc.change).recording()
			k.obeys()
			k.edits("m", func(m *clusterv1.Machine) { m.Labels = map[string]string{"pool": "a"} })
			k.creates(tc.checks...)
			k.pass()
			k.wantsRecord("when it has begun")
			if diff := cmp.Diff(tc.want, k.records()[0].Spec.Requester); diff != "" {
				t.Errorf("it says of what asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARecordSaysWhatIsKnownOfMachineHostAndNode(t *testing.T) {
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "machine-uid"}}
	m.Spec.ClusterName, m.Spec.FailureDomain, m.Status.NodeRef.Name = "c", "rack-7", "node"
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "UnhealthyNode", Message: "Ready is Unknown", LastTransitionTime: at(time.Minute),
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: at(6 * time.Minute)}}
	w := &observed{kept: &kept{}, now: noon, machine: m, rem: remediation.Own.New(), found: host.Found{Host: &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", UID: "host-uid"}}}}
	w.rem.SetNamespace("ns")
	w.rem.SetLabels(map[string]string{clusterv1.WatchLabel: "east"})
	w.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "cluster-uid"}}
	w.node, w.lastNode = node, node
	since, due := at(6*time.Minute), at(time.Minute)
	want := mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByRequest, Decided: metav1.NewTime(noon), Cause: "Ready=Unknown",
		Target: mendv1.RecordTarget{
			ClusterName: "c", ClusterUID: "cluster-uid", FailureDomain: "rack-7",
			Machine: &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Namespace: "ns", Name: "m", UID: "machine-uid"},
			Node:    &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "node", UID: "node-uid"},
			Host:    &mendv1.RecordRef{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: "ns", Name: "h", UID: "host-uid"},
		},
		Evidence: []mendv1.RecordEvidence{
			{Type: "Ready", Status: "Unknown", Since: &since, Message: "NodeStatusUnknown"},
			{Type: "HealthCheckSucceeded", Status: "False", Since: &due, Message: "Ready is Unknown"},
		},
		UnhealthySince: &since, Due: &due,
	}
	got := recordOf(w, mendv1.RecordRequester{})
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	labels := map[string]string{clusterv1.WatchLabel: "east", clusterv1.ClusterNameLabel: "c"}
	if diff := cmp.Diff(labels, got.Labels); diff != "" || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "cluster-uid" {
		t.Errorf("its metadata are %+v", got.ObjectMeta)
	}

	node.Status.Conditions[0].LastTransitionTime = at(0) // from Unknown to False and back
	if got := recordOf(w, mendv1.RecordRequester{}); got.Spec.UnhealthySince != nil {
		t.Errorf("it is unhealthy since %s, which is after it counted as that", got.Spec.UnhealthySince)
	}
	w.node, w.lastNode, w.record.NodeUID = nil, nil, "remembered-uid"
	if got := recordOf(w, mendv1.RecordRequester{}); got.Spec.Target.Node.UID != "remembered-uid" {
		t.Errorf("without an answer of the workload cluster the node has the UID %q", got.Spec.Target.Node.UID)
	}
	w.lastNode = node
	if got := recordOf(w, mendv1.RecordRequester{}); got.Spec.Target.Node.UID != "node-uid" {
		t.Errorf("with an answer before the last step the node has the UID %q", got.Spec.Target.Node.UID)
	}
	m.Spec.FailureDomain, node.Labels = "", map[string]string{corev1.LabelTopologyZone: "row-3"}
	if got := recordOf(w, mendv1.RecordRequester{}).Spec.Target.FailureDomain; got != "row-3" {
		t.Errorf("of a machine without a failure domain it says %q", got)
	}
	w.lastNode, m.Status.Conditions = nil, nil
	if got := recordOf(w, mendv1.RecordRequester{}); got.Spec.Cause != requestedByHand || len(got.Spec.Evidence) > 0 {
		t.Errorf("of a machine of which nothing is known it says %q", got.Spec.Cause)
	}
}

// byCheck makes rem one that a check of kubemend has just made.
func byCheck(rem *mendv1.HostRemediation) {
	rem.CreationTimestamp = metav1.NewTime(noon)
	rem.Annotations, rem.Labels = map[string]string{mendv1.MadeByAnnotation: "workers"}, map[string]string{mendv1.MadeByUIDLabel: "check-uid"}
}

// cycledBefore creates records of power cycles that began these minutes before noon, each of which helped for a while.
func (k *fixture) cycledBefore(minutes ...int) {
	k.t.Helper()
	for i, ago := range minutes {
		begun := noon.Add(-time.Duration(ago) * time.Minute)
		record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(rune('a' + i))}}
		record.Spec.Remediator, record.Spec.Decided = mendv1.RemediatedByRequest, metav1.NewTime(begun)
		record.Spec.Target.Host = &mendv1.RecordRef{Kind: "BareMetalHost", Namespace: "ns", Name: "h"}
		record.Status.Begun, record.Status.Ended = new(metav1.NewTime(begun)), new(metav1.NewTime(begun.Add(5*time.Minute)))
		k.creates(record)
	}
}

func TestAHostThatFailsSoonAfterEachPowerCycleWaits(t *testing.T) {
	k := fixtureOf(t, byCheck)
	k.cycledBefore(60, 45, 20)
	status := k.pass()
	for _, says := range []string{"3 times since 2026-01-01T11:00:00Z", "the next power cycle at 2026-01-01T12:04:00Z"} {
		if status.Step != string(powercycle.Pending) || !strings.Contains(status.Message, says) {
			t.Fatalf("it is in %s: %s; want it to say %s", status.Step, status.Message, says)
		}
	}
	if got := k.remediation().Annotations[mendv1.WaitsForAnnotation]; got != "RemediationLoop" {
		t.Errorf("for its check it waits for %q", got)
	}
	if next := k.explained().Next; !next.At.Equal(noon.Add(4*time.Minute)) || next.Manual {
		t.Errorf("a page says that next is, at %s: %s", next.At, next.Text)
	}
	k.expects(powersOff)
	if status := k.wait(4 * time.Minute); status.Step != string(powercycle.PoweringOff) {
		t.Errorf("after that it is in %s: %s", status.Step, status.Message)
	}
	if until := k.remediation().Status.BlockedUntil; until != nil {
		t.Errorf("it is blocked until %s", until)
	}
}

// A manager that has just started has not read the records yet.
func TestAHostWaitsAfterAStartUntilItsRecordsAreKnown(t *testing.T) {
	k := fixtureOf(t, byCheck)
	k.r.Records = &records.Records{
		Client: k.client, Live: k.client, Clock: k.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	if status := k.pass(); status.Step != string(powercycle.Pending) || !strings.Contains(status.Message, "not known yet") {
		t.Errorf("it is in %s: %s", status.Step, status.Message)
	}
	if result := k.reconciles(); result.RequeueAfter != retry {
		t.Errorf("it looks again in %s", result.RequeueAfter)
	}
	k.expects(powersOff)
	if status := k.wait(30 * time.Second); status.Step != string(powercycle.PoweringOff) {
		t.Errorf("after 30 s it is in %s: %s", status.Step, status.Message)
	}
}

func TestAPowerCycleBeginsAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		edit  func(*mendv1.HostRemediation)
		begin func(*fixture)
	}{
		"of a host that was well for an hour": {byCheck, func(k *fixture) { k.cycledBefore(65) }},
		"that a user wrote":                   {func(*mendv1.HostRemediation) {}, func(k *fixture) { k.cycledBefore(20) }},
		"that a user asked for by kubectl mend": {func(rem *mendv1.HostRemediation) {
			byCheck(rem)
			rem.Annotations[mendv1.RequestedAnnotation] = `{"by":"alice","at":"2026-01-01T12:00:00Z"}`
		}, func(k *fixture) { k.cycledBefore(20) }},
		"of a machine that a user has marked": {byCheck, func(k *fixture) {
			k.cycledBefore(20)
			k.edits("m", func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
			})
		}},
		"whose own record its check has written": {func(rem *mendv1.HostRemediation) {
			byCheck(rem)
			rem.Annotations[mendv1.RecordAnnotation] = "a"
		}, func(k *fixture) { k.cycledBefore(0) }},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, tc.edit)
			tc.begin(k)
			k.expects(powersOff)
			if status := k.pass(); status.Step != string(powercycle.PoweringOff) {
				t.Errorf("it is in %s: %s", status.Step, status.Message)
			}
		})
	}
}
