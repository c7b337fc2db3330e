package inspect

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/health"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Capacity observes what the capacity of a machine waits for, with what records have kept of machines of the same owner.
func (a *Asker) Capacity(ctx context.Context, s capacity.Subject) *capacity.Facts {
	a.remember(&s)
	o := &capacity.Observer{Management: a.reader, Mapper: a.Snapshot.RESTMapper(), NodeReady: a.nodeReady}
	facts, _ := o.Observe(ctx, s, a.Now) // what a snapshot has not is unread, whatever the reason, and the facts have that
	return facts
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

// remember adds to s what RemediationRecords say of the machines of its owner: which of them are gone and not replaced, and which replaces
// which. A MachineSet writes neither down.
func (a *Asker) remember(s *capacity.Subject) {
	lost := map[string]capacity.Loss{}
	s.Remembered = map[string]string{}
	for _, r := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, s.Namespace) {
		target := &r.Spec.Target
		if target.Machine == nil || !ofOwner(r, s) {
			continue
		}
		switch by := r.Status.Replacement; {
		case by != nil:
			s.Remembered[by.Machine.Name] = target.Machine.Name
			if target.Machine.Name == s.Name {
				s.Found = by.Machine.Name
			}
		case r.Open():
			at, _ := records.WentAt(r)
			host := ptr.Deref(target.Host, mendv1.RecordRef{}).Name
			lost[target.Machine.Name] = capacity.Loss{Name: target.Machine.Name, At: at, Host: host}
		}
	}
	for _, replaced := range s.Remembered {
		delete(lost, replaced)
	}
	for _, loss := range lost {
		s.Lost = append(s.Lost, loss)
	}
	slices.SortFunc(s.Lost, func(a, b capacity.Loss) int { return a.At.Compare(b.At) })
}

// Predecessor is the machine that m was made for, as it is written down. Of what is not, the other machines of its owner are needed.
func (a *Asker) Predecessor(m *clusterv1.Machine) capacity.Replacement {
	s := capacity.Of(m, m.CreationTimestamp.Time)
	a.remember(&s)
	return s.MadeFor(m)
}

// ofOwner reports whether r is about a machine of the owner of s: of its MachineDeployment, if there is one.
func ofOwner(r *mendv1.RemediationRecord, s *capacity.Subject) bool {
	if deployment := r.Labels[clusterv1.MachineDeploymentNameLabel]; deployment != "" && s.Deployment != "" {
		return deployment == s.Deployment && r.Spec.Target.ClusterName == s.Cluster
	}
	owner := r.Spec.Target.Owner
	return owner != nil && owner.Kind == s.Owner.Kind && owner.Name == s.Owner.Name
}
