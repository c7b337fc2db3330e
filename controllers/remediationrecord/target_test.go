package remediationrecord

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

func TestARecordNamesTheMachineItsOwnerAndItsCluster(t *testing.T) {
	yes := true
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "w1", UID: "m-uid", Labels: map[string]string{
			clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineDeploymentNameLabel: "workers",
		},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.org/v1", Kind: "Note", Name: "n"},
			{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "cp", UID: "cp-uid", Controller: &yes},
		},
	}}
	m.Spec.ClusterName, m.Spec.FailureDomain, m.Status.NodeRef.Name = "c1", "rack-7", "node-1"
	record := &mendv1.RemediationRecord{}
	OnMachine(record, m)
	OwnedBy(record, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c1", UID: "c-uid"}})
	want := mendv1.RecordTarget{
		ClusterName: "c1", ClusterUID: "c-uid", FailureDomain: "rack-7", ControlPlane: true,
		Machine: &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Namespace: "metal", Name: "w1", UID: "m-uid"},
		Owner:   &mendv1.RecordRef{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Namespace: "metal", Name: "cp", UID: "cp-uid"},
		Node:    &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "node-1"},
	}
	must.Equal(t, want, record.Spec.Target, "the target")
	owners := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "c-uid"}}
	must.Equal(t, owners, record.OwnerReferences, "the owners")
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "workers"}
	must.Equal(t, labels, record.Labels, "the labels")
	other := &mendv1.RemediationRecord{}
	OnMachine(other, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "w2"}})
	if bare := other.Spec.Target; bare.Owner != nil || bare.Node != nil {
		t.Errorf("a machine without owner and node has %+v", bare)
	}
}

func TestTheFailureDomainIsTheZoneOfTheNodeOfAMachineWithoutOne(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid", Labels: map[string]string{corev1.LabelTopologyZone: "row-3"}}}
	for name, tc := range map[string]struct {
		node *corev1.Node
		is   mendv1.RecordTarget
		want mendv1.RecordTarget
	}{
		"a machine with one":              {node, mendv1.RecordTarget{FailureDomain: "rack-7"}, mendv1.RecordTarget{FailureDomain: "rack-7", Node: NodeRef("n", "n-uid")}},
		"a machine, or a node, with none": {node, mendv1.RecordTarget{}, mendv1.RecordTarget{FailureDomain: "row-3", Node: NodeRef("n", "n-uid")}},
		"a node that is not known":        {nil, mendv1.RecordTarget{Node: NodeRef("n", "")}, mendv1.RecordTarget{Node: NodeRef("n", "")}},
	} {
		OnNode(&tc.is, tc.node)
		must.Equal(t, tc.want, tc.is, "%s", name)
		for label, want := range map[string]string{"rack-9": "rack-9", "": tc.is.FailureDomain} { // CAPM3's label of a host
			target := tc.is
			OnHost(&target, &host.Host{ObjectMeta: metav1.ObjectMeta{Name: "h", Labels: map[string]string{place.FailureDomainLabel: label}}})
			must.Is(t, want, target.FailureDomain, "%s: on a host it is", name)
		}
	}
}

func TestARequestCarriesItsRecord(t *testing.T) {
	for name, tc := range map[string]struct{ namespace, value string }{
		"in its namespace": {"metal", "r@uid"},
		"in another one":   {"elsewhere", "elsewhere/r@uid"},
	} {
		req := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Annotations: map[string]string{"other": "stays"}}}
		if named, _ := CarriedBy(req); named.Name != "" {
			t.Errorf("%s: first it carries %v", name, named)
		}
		record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "r", UID: "uid"}}
		Carry(req, record)
		if !carries(req, record) || req.Annotations[mendv1.RecordAnnotation] != tc.value || req.Annotations["other"] != "stays" {
			t.Errorf("%s: it carries %v", name, req.Annotations)
		}
		if record.UID = "another"; carries(req, record) {
			t.Errorf("%s: it carries another record of that name", name)
		}
		OwnedBy(record, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "before"}})
		if record.OwnerReferences[0].UID = "after"; !carries(req, record) {
			t.Errorf("%s: it does not carry the record that was moved with it", name)
		}
	}
}

// metal finds hosts by a function of the test.
type metal func(context.Context) (host.Found, error)

func (m metal) Of(ctx context.Context, _ *clusterv1.Machine) (host.Found, error) { return m(ctx) }

func TestARecordNamesTheHostIfItCanBeRead(t *testing.T) {
	on := &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rack-7-3"}}
	for name, tc := range map[string]struct {
		metal Metal
		named bool
	}{
		"the host of the machine": {metal(func(context.Context) (host.Found, error) { return host.Found{Host: on, Is: powercycle.HostOurs}, nil }), true},
		"not that of another one": {metal(func(context.Context) (host.Found, error) {
			return host.Found{Host: on, Is: powercycle.HostForeign}, nil
		}), false},
		"none that may not be read":      {metal(func(context.Context) (host.Found, error) { return host.Found{}, errors.New("forbidden") }), false},
		"none if no answer comes":        {metal(func(ctx context.Context) (host.Found, error) { <-ctx.Done(); return host.Found{}, ctx.Err() }), false},
		"none without a reader of hosts": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() //nolint:forbidigo // of the bubble
				if is := (&Records{Hosts: tc.metal}).HostOf(t.Context(), &clusterv1.Machine{}); (is != nil) != tc.named {
					t.Errorf("the host is %v", is)
				}
				if took := time.Since(began); took > hostWithin { //nolint:forbidigo // of the bubble
					t.Errorf("it is waited for %s", took)
				}
			})
		})
	}
}

func TestARecordSaysWhyItsTargetCountedAsUnhealthy(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(ago(d))) }
	ready := func(due, since time.Duration) health.Finding {
		return health.Finding{
			Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: ago(due),
			Signal: health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Since: ago(since)},
		}
	}
	unknown := mendv1.RecordEvidence{Type: "Ready", Status: "Unknown", Since: at(6 * time.Minute), TimeoutSeconds: 300, Message: "NodeStatusUnknown"}
	for name, tc := range map[string]struct {
		findings []health.Finding
		want     mendv1.RemediationRecordSpec
	}{
		"a condition": {
			[]health.Finding{ready(time.Minute, 6*time.Minute)},
			mendv1.RemediationRecordSpec{Cause: "Ready=Unknown", Evidence: []mendv1.RecordEvidence{unknown}, UnhealthySince: at(6 * time.Minute), Due: at(time.Minute)},
		},
		"a second one that is not due is no evidence": {
			[]health.Finding{ready(time.Minute, 6*time.Minute), ready(-time.Minute, 4*time.Minute)},
			mendv1.RemediationRecordSpec{Cause: "Ready=Unknown", Evidence: []mendv1.RecordEvidence{unknown}, UnhealthySince: at(6 * time.Minute), Due: at(time.Minute)},
		},
		"a machine that has failed, since when is not known, and a condition": {
			[]health.Finding{{Reason: health.MachineFailed, Failure: "the disk is gone"}, ready(time.Minute, 6*time.Minute)},
			mendv1.RemediationRecordSpec{
				Cause: "MachineFailed", Evidence: []mendv1.RecordEvidence{{Type: "MachineFailed", Message: "the disk is gone"}, unknown},
				UnhealthySince: at(6 * time.Minute), Due: at(time.Minute),
			},
		},
		"a person's mark alone": {
			[]health.Finding{{Reason: health.MarkedByHand}},
			mendv1.RemediationRecordSpec{Cause: "MarkedByHand", Evidence: []mendv1.RecordEvidence{{Type: "MarkedByHand"}}},
		},
	} {
		got := mendv1.RemediationRecordSpec{}
		Judged(&got, health.Verdict{State: health.Unhealthy, Findings: tc.findings}, noon)
		must.Equal(t, tc.want, got, "%s", name)
	}
}

func TestARecordHasTheNumbersOfTheCheck(t *testing.T) {
	p := budget.Population{Healthy: 5, Unhealthy: 2, Pending: 1, InFlight: 1}
	want := &mendv1.RecordCounts{Targets: 8, Healthy: 5, InFlight: 1, Limit: "40%"}
	must.Equal(t, want, CountsOf(p, "40%"))
}
