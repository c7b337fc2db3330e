package remediationrecord

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The steps of a NodeHealthCheck may have their templates in several namespaces.
func TestRequestsOfAnEscalationAreFoundInTheNamespacesOfItsTemplates(t *testing.T) {
	step := func(namespace string) nhcv1.EscalatingRemediation {
		return nhcv1.EscalatingRemediation{RemediationTemplate: corev1.ObjectReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Namespace: namespace, Name: "reboot",
		}}
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes", UID: "nhc-uid"}}
	check.Spec.EscalatingRemediations = []nhcv1.EscalatingRemediation{step("metal"), step("elsewhere")}
	for names, want := range map[string]string{
		"metal/w1-record": "True RequestCreated",
		"w1-record":       "", // of that name in its own namespace
	} {
		is := recordOf(func(r *mendv1.RemediationRecord) {
			r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nodes", UID: "nhc-uid"}
		})
		request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
			Namespace: "elsewhere", Name: "w1", UID: "r", CreationTimestamp: after(time.Second), Annotations: map[string]string{mendv1.RecordAnnotation: names},
		}}
		m := newManagement(t, append(fleet(), unhealthy(), check.DeepCopy(), is, request)...)
		got := m.reconcile(time.Minute)
		if begun := condition(got, mendv1.RecordBegun); begun != want && (want != "" || len(got.Status.Requests) > 0) {
			t.Errorf("a request that names %q: begun %q, want %q, by %v", names, begun, want, got.Status.Requests)
		}
	}
}

// A NodeHealthCheck judges the nodes of this cluster, also those that have a Machine: their records belong to no Cluster.
func TestTheNodeOfAMachineOfThisClusterIsReadHere(t *testing.T) {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		r.Spec.Target.ClusterName, r.Spec.Target.ClusterUID = "", ""
		r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "here"}
	})
	m := newManagement(t, append(fleet(), unhealthy(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", UID: "node-uid"}}, is)...)
	o := &observed{record: is, machine: unhealthy()}
	if node, known, err := m.node(t.Context(), o); err != nil || !known || node == nil || node.UID != "node-uid" {
		t.Errorf("the node is %v, known %t: %v", node, known, err)
	}
}
