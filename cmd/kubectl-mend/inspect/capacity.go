package inspect

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Capacity observes what the capacity of a machine waits for, with what records have kept of machines of the same owner.
func (a *Asker) Capacity(ctx context.Context, s capacity.Subject) (*capacity.Facts, error) {
	a.remember(&s)
	o := &capacity.Observer{Management: a.reader, Mapper: a.Snapshot.RESTMapper(), NodeReady: a.nodeReady}
	return o.Observe(ctx, s, a.Now)
}

// NodeReady reports whether the node of m is Ready, as it was read or, if it was not, as Cluster API says.
func (a *Asker) NodeReady(m *clusterv1.Machine) bool {
	if ready, known := a.nodeReady(m); known {
		return ready.Status == metav1.ConditionTrue
	}
	return m.Status.NodeRef.IsDefined() && conditions.IsTrue(m, clusterv1.MachineNodeReadyCondition)
}

// NodeNotReady reports whether the node of m is known not to be Ready, as NodeReady is.
func (a *Asker) NodeNotReady(m *clusterv1.Machine) bool {
	if ready, known := a.nodeReady(m); known {
		return ready.Status != metav1.ConditionTrue
	}
	said := conditions.Get(m, clusterv1.MachineNodeReadyCondition)
	return m.Status.NodeRef.IsDefined() && said != nil && said.Status != metav1.ConditionTrue
}

// nodeReady is the condition Ready of the node of m as it was read; false if that node was not.
func (a *Asker) nodeReady(m *clusterv1.Machine) (ready metav1.Condition, known bool) {
	cluster := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	node := a.Snapshot.Node(cluster, m.Status.NodeRef.Name)
	if node == nil || !health.IsNodeOf(m, node) {
		nodes := a.Snapshot.Nodes(cluster)
		i := slices.IndexFunc(nodes, func(node *corev1.Node) bool { return health.IsNodeOf(m, node) })
		if i < 0 {
			return metav1.Condition{}, false
		}
		node = nodes[i]
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return metav1.Condition{
				Status: metav1.ConditionStatus(cond.Status), Reason: cond.Reason, Message: cond.Message, LastTransitionTime: cond.LastTransitionTime,
			}, true
		}
	}
	return metav1.Condition{}, true
}
