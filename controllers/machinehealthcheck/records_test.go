package machinehealthcheck

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/decide/health"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// recordOfFirst returns the record of the first target of w, on that host.
func recordOfFirst(t *testing.T, w *observed, on *host.Host) *mendv1.RemediationRecord {
	t.Helper()
	p := decide(w)
	if !p.Decisions[0].Starts() {
		t.Fatalf("no remediation begins: %v", p.Decisions[0].Blockers)
	}
	return recordOf(w, p, p.Decisions[0], on)
}

func unhealthyBy(all ...health.Finding) func(*Target) {
	return func(t *Target) { of(t).verdict.Findings = all }
}

func TestARecordSaysWhatIsKnownWhenARemediationIsDecided(t *testing.T) {
	silent := health.Finding{
		Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: ago(time.Minute),
		Signal: health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Since: ago(6 * time.Minute)},
	}
	w := aCheck(
		a("m", health.Unhealthy, unhealthyBy(silent), func(t *Target) {
			m := t.Machine
			m.OwnerReferences[0].UID = "set-uid"
			m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
			m.Spec.FailureDomain, m.Status.FailureDomain = "wanted", "rack-7"
			m.Status.NodeRef.Name = "node-m"
			t.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-m", UID: "node-uid"}}
		}),
		a("other", health.Unhealthy, askedOwner), a("good", health.Healthy, markedBefore), a("better", health.Healthy, markedBefore),
	).limited("50%")
	w.Targets[0].Machine.Spec.ClusterName = "c1"
	w.Check.Labels = map[string]string{clusterv1.WatchLabel: "east"}
	on := &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rack-7-3", UID: "host-uid"}}
	on.Model = "ACME X1"

	capi := clusterv1.GroupVersion.String()
	want := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.WatchLabel: "east"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: capi, Kind: "Cluster", Name: "c1", UID: "cluster-uid"}},
		},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner,
			Target: mendv1.RecordTarget{
				ClusterName: "c1", ClusterUID: "cluster-uid", FailureDomain: "rack-7", ControlPlane: true, HostModel: "ACME X1",
				Machine: &mendv1.RecordRef{APIVersion: capi, Kind: "Machine", Namespace: "ns", Name: "m", UID: "uid-of-m"},
				Owner:   &mendv1.RecordRef{APIVersion: capi, Kind: "MachineSet", Namespace: "ns", Name: "workers", UID: "set-uid"},
				Node:    &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "node-m", UID: "node-uid"},
				Host:    &mendv1.RecordRef{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: "ns", Name: "rack-7-3", UID: "host-uid"},
			},
			Requester: mendv1.RecordRequester{
				Check: &mendv1.RecordRef{APIVersion: capi, Kind: "MachineHealthCheck", Namespace: "ns", Name: "check", UID: "check-uid"},
			},
			Cause: "Ready=Unknown",
			Evidence: []mendv1.RecordEvidence{{
				Type: "Ready", Status: "Unknown", Since: moment(ago(6 * time.Minute)), TimeoutSeconds: 300, Message: "NodeStatusUnknown",
			}},
			UnhealthySince: moment(ago(6 * time.Minute)), Due: moment(ago(time.Minute)), Decided: metav1.NewTime(noon),
			Counts: &mendv1.RecordCounts{Targets: 4, Healthy: 2, InFlight: 1, Limit: "50%"},
		},
	}
	must.Equal(t, want, recordOfFirst(t, w, on))
}

func TestARecordLeavesOutWhatIsNotKnown(t *testing.T) {
	is := recordOfFirst(t, aCheck(a("m", health.Unhealthy, withoutOwner, unhealthyBy(health.Finding{Reason: health.NodeDeleted, Node: "gone"}))).external(), nil)
	if is.Spec.Remediator != mendv1.RemediatedByRequest || is.Spec.Cause != "NodeDeleted" {
		t.Errorf("remediated by %s because of %s", is.Spec.Remediator, is.Spec.Cause)
	}
	if target := is.Spec.Target; target.Owner != nil || target.Node != nil || target.Host != nil || target.HostModel != "" || target.ControlPlane {
		t.Errorf("the target is %+v", target)
	}
	if is.Spec.UnhealthySince != nil || is.Spec.Due != nil || is.Spec.Evidence[0].Since != nil {
		t.Errorf("a node is gone since %v, due %v", is.Spec.UnhealthySince, is.Spec.Due)
	}
}

func TestARecordNamesTheUserWhoMarkedTheMachine(t *testing.T) {
	marked := func(value string) func(*Target) {
		return func(t *Target) {
			t.Machine.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: "", mendv1.RequestedAnnotation: value}
			of(t).verdict.Findings = []health.Finding{{Reason: health.MarkedByHand}}
		}
	}
	for name, tc := range map[string]struct {
		annotation, user, reason string
		due                      *metav1.Time
	}{
		"by kubectl mend remediate": {`{"by":"alice","at":"2026-01-01T11:59:50Z","reason":"NIC drops packets"}`, "alice", "NIC drops packets", moment(ago(10 * time.Second))},
		"by the annotation alone":   {"", "", "", nil},
		"with a time to come":       {`{"by":"alice","at":"2030-01-01T00:00:00Z"}`, "alice", "", nil},
	} {
		is := recordOfFirst(t, aCheck(a("m", health.Unhealthy, marked(tc.annotation))), nil).Spec
		if is.Cause != "MarkedByHand" || is.Requester.User != tc.user || is.Requester.Reason != tc.reason || is.Requester.Check.Name != "check" {
			t.Errorf("%s: requested by %+v because of %s", name, is.Requester, is.Cause)
		}
		must.Equal(t, tc.due, is.Due, "%s: due", name)
	}
	// An old request for remediation by a user does not count if the machine is unhealthy for another reason.
	is := recordOfFirst(t, aCheck(a("m", health.Unhealthy, func(t *Target) {
		t.Machine.Annotations = map[string]string{mendv1.RequestedAnnotation: `{"by":"alice"}`}
	})), nil)
	if is.Spec.Requester.User != "" {
		t.Errorf("%s is said to have asked for it", is.Spec.Requester.User)
	}
}

// moment returns at as a pointer, as records have it.
func moment(at time.Time) *metav1.Time { return ptr.To(metav1.NewTime(at)) }

// askedByHand marks a machine for remediation by hand: the simplest way to be unhealthy, without a node.
func askedByHand(t *Target) {
	t.Machine.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
}

// recording returns a reconciler that writes records.
func recording(c client.Client) *Reconciler {
	clock := clocktesting.NewFakePassiveClock(noon)
	return &Reconciler{Client: c, Clock: clock, Records: &records.Records{
		Client: c, Live: c, Clock: clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}}
}

// Cluster API core made the request before the check was claimed, and wrote no record.
func TestARequestThatIsAdoptedHasARecord(t *testing.T) {
	recorded := requestedBy("", "", func(r *remediationrequest.Metadata) { r.Annotations[mendv1.RecordAnnotation] = "m-1234567890" })
	for name, tc := range map[string]struct {
		w    *observed
		want int
	}{
		"of a machine that is unhealthy":          {aCheck(a("m", health.Unhealthy, askedByHand, requestedBy("", ""))).external(), 1},
		"not one that names its record":           {aCheck(a("m", health.Unhealthy, askedByHand, recorded)).external(), 0},
		"nor one whose machine is healthy again":  {aCheck(a("m", health.Healthy, markedBefore, requestedBy("", ""))).external(), 0},
		"one of a check of this name before this": {aCheck(a("m", health.Unhealthy, askedByHand, requestedBy("check", "old-uid"))).external(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := server(t).Build()
			r := recording(server)
			p := decide(tc.w)
			s := p.Decisions[0]
			if s.Step != AdoptRequest {
				t.Fatalf("the step is %q", s.Step)
			}
			named := r.recordAdopted(t.Context(), tc.w, p, s)
			all := &mendv1.RemediationRecordList{}
			must.Do(t, server.List(t.Context(), all))
			if len(all.Items) != tc.want || (named != "") != (tc.want == 1) {
				t.Fatalf("there are %d records, and the request names %q", len(all.Items), named)
			}
			if tc.want == 1 && (all.Items[0].Name != named || all.Items[0].Spec.Remediator != mendv1.RemediatedByRequest) {
				t.Errorf("the record is %+v", all.Items[0].Spec)
			}
		})
	}
}

// Otherwise hundreds of machines that fail together would be marked only after the last of their records is written.
func TestMachinesAreMarkedBeforeTheirRecords(t *testing.T) {
	var mu sync.Mutex
	var writes []string
	wrote := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		writes = append(writes, what)
	}
	w := aCheck(a("m1", health.Unhealthy, askedByHand), a("m2", health.Unhealthy, askedByHand))
	c := server(t, w.Targets[0].Machine, w.Targets[1].Machine).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			wrote("mark")
			return c.SubResource(name).Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			wrote("record")
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
	for _, o := range recording(c).act(t.Context(), w, decide(w)) {
		if !o.requested || o.err != nil {
			t.Errorf("the owner of %s is not asked: %v", o.Target.Name, o.err)
		}
	}
	if len(writes) != 6 || !slices.Equal(writes[:3], []string{"mark", "mark", "record"}) {
		t.Errorf("written are %v", writes)
	}
}
