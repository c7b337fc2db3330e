package records

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestARecordNamesTheMachineItsOwnerAndItsCluster(t *testing.T) {
	yes := true
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "w1", UID: "m-uid", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.org/v1", Kind: "Note", Name: "n"},
			{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "cp", UID: "cp-uid", Controller: &yes},
		},
	}}
	m.Spec.ClusterName, m.Spec.FailureDomain, m.Status.NodeRef.Name = "c1", "rack-7", "node-1"
	record := &mendv1.RemediationRecord{Spec: mendv1.RemediationRecordSpec{Target: MachineTarget(m)}}
	OwnedBy(record, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c1", UID: "c-uid"}})
	want := mendv1.RecordTarget{
		ClusterName: "c1", ClusterUID: "c-uid", FailureDomain: "rack-7", ControlPlane: true,
		Machine: &mendv1.RecordRef{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Namespace: "metal", Name: "w1", UID: "m-uid"},
		Owner:   &mendv1.RecordRef{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Namespace: "metal", Name: "cp", UID: "cp-uid"},
		Node:    &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "node-1"},
	}
	if diff := cmp.Diff(want, record.Spec.Target); diff != "" {
		t.Errorf("the target (-want +got):\n%s", diff)
	}
	owners := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "c-uid"}}
	if diff := cmp.Diff(owners, record.OwnerReferences); diff != "" {
		t.Errorf("the owners (-want +got):\n%s", diff)
	}
	if bare := MachineTarget(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "w2"}}); bare.Owner != nil || bare.Node != nil {
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
		if diff := cmp.Diff(tc.want, tc.is); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

func TestARequestNamesItsRecord(t *testing.T) {
	for name, tc := range map[string]struct{ record, value string }{
		"in its namespace":     {"metal", "r"},
		"in another one":       {"elsewhere", "elsewhere/r"},
		"of one that has none": {"", ""},
	} {
		req := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Annotations: map[string]string{"other": "stays"}}}
		want := types.NamespacedName{}
		if tc.record != "" {
			want = types.NamespacedName{Namespace: tc.record, Name: "r"}
			Name(req, want)
		}
		if got := NamedBy(req); got != want || req.Annotations[mendv1.RecordAnnotation] != tc.value || req.Annotations["other"] != "stays" {
			t.Errorf("%s: it names %v by %v, want %v", name, got, req.Annotations, want)
		}
	}
}
