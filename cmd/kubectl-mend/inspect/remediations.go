package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/managerlease"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Hosts reads the bare-metal hosts of the snapshot.
func (a *Asker) Hosts() *host.Hosts { return &host.Hosts{Client: a.Snapshot, Live: a.Snapshot} }

// RemediationsOf explains the remediations that a machine owns, of both kinds.
func (a *Asker) RemediationsOf(ctx context.Context, machine *clusterv1.Machine) []explain.Remediation {
	existing, _ := a.existing(ctx, machine.Namespace)
	return a.explained(existing.Of(machine))
}

// RemediationsHolding explains the remediations that act on the power of a host, and returns the UIDs of those that act on it and do not
// exist: of none where some could not be read, as it may be one of those.
func (a *Asker) RemediationsHolding(ctx context.Context, on *bmov1alpha1.BareMetalHost) ([]explain.Remediation, []types.UID) {
	existing, whole := a.existing(ctx, on.Namespace)
	known, unknown := existing.OnHost(on)
	if !whole {
		unknown = nil
	}
	return a.explained(known), unknown
}

// Remediation explains the one of that kind and name; nil if there is none, or if it is in a version of which no more is known than
// metadata: it is CAPM3's.
func (a *Asker) Remediation(ctx context.Context, kind string, key client.ObjectKey) (*explain.Remediation, error) {
	for _, k := range a.kinds() {
		if k.Kind != kind || k.New == nil {
			continue
		}
		rem := k.New()
		if err := a.Snapshot.Get(ctx, key, rem.Unwrapped()); err == nil {
			return a.remediation(k, rem), nil
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read %s %s: %w", kind, key, err)
		}
	}
	return nil, nil
}

func (a *Asker) kinds() []remediation.Kind {
	kinds, _ := remediation.InstalledKinds(a.Snapshot.RESTMapper()) // a snapshot knows which kinds it has
	return kinds
}

// existing are the remediations of a namespace, of the kinds that could be read; whole reports that all could. The snapshot reports the
// others.
func (a *Asker) existing(ctx context.Context, namespace string) (existing remediation.Existing, whole bool) {
	readable := slices.DeleteFunc(a.kinds(), func(kind remediation.Kind) bool {
		return a.Snapshot.List(ctx, kind.List(), client.InNamespace(namespace)) != nil
	})
	existing, _ = remediation.List(ctx, a.Snapshot, readable, namespace)
	return existing, len(readable) == len(a.kinds())
}

// explained are those of remediations, which were read, that are known whole.
func (a *Asker) explained(remediations []remediation.OfKind) []explain.Remediation {
	var explained []explain.Remediation
	for _, rem := range remediations {
		if rem.Kind.New != nil {
			explained = append(explained, *a.remediation(rem.Kind, remediation.Wrap(rem.Object)))
		}
	}
	return explained
}

// remediation explains one by what the manager that acts on it wrote, and says if none does.
func (a *Asker) remediation(kind remediation.Kind, rem remediation.Object) *explain.Remediation {
	explained, cluster, crd := hostremediation.Explain(kind, rem), a.clusterOf(rem), kind.ControllerName()+"s."+kind.Group
	for _, manager := range a.Managers.All {
		says := ptr.Deref(manager.Announcement, managerlease.Announcement{}) // without one it may reconcile everything
		here := manager.Alive && manager.Unserved(crd) == nil && (says.Namespace == "" || says.Namespace == rem.GetNamespace())
		if here && hostremediation.Acts(kind, rem, cluster, says.WatchFilter, says.Teardown) {
			explained.Acts = true // what it has begun it ends, whatever it would begin
			return explained
		}
	}
	switch served, unserved := a.Managers.serves(crd); {
	case !served && unserved != nil:
		_, explained.Next = otherwise(unserved)
		explained.Reason, explained.Message = explain.NotServed, explain.KindNotServed(unserved.Because)
		explained.Blockers, explained.Evidence = nil, nil
		return explained
	case a.Managers.Unknown != "":
		return explained
	}
	object := rem.Unwrapped()
	because, person := a.Managers.nobodyActs(func(is *managerlease.Manager) managerlease.Off { return is.StandsOff(object, cluster) })
	explained.Reason, explained.Message, explained.Deadline = explain.NoManager, because, nil
	explained.Next = step(person, "nothing, as long as no manager reconciles it")
	return explained
}

// clusterOf is the Cluster of the Machine that owns a remediation, whose label counts as well as its own; an empty one if there is none.
func (a *Asker) clusterOf(rem remediation.Object) *clusterv1.Cluster {
	key := client.ObjectKey{Namespace: rem.GetNamespace(), Name: ptr.Deref(remediation.OwnerOf(rem), metav1.OwnerReference{}).Name}
	machine := cmp.Or(snapshot.One[clusterv1.Machine](a.Snapshot, key), &clusterv1.Machine{})
	return a.cluster(client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.ClusterName})
}

// Capacity observes what the capacity of a machine waits for, with what records have kept of machines of the same owner.
func (a *Asker) Capacity(ctx context.Context, s capacity.Subject) *capacity.Facts {
	a.remember(&s)
	o := &capacity.Observer{Management: a.Snapshot, Mapper: a.Snapshot.RESTMapper(), NodeReady: a.nodeReady}
	facts, _ := o.Observe(ctx, s, a.Now) // what a snapshot has not is unread, whatever the reason, and the facts have that
	return facts
}

// NodeReady reports whether the node of m is Ready, as it was read or, if it was not, as Cluster API says; known is false if neither says.
func (a *Asker) NodeReady(m *clusterv1.Machine) (ready, known bool) {
	if cond, read := a.nodeReady(m); read {
		return cond.Status == metav1.ConditionTrue, true
	}
	said := conditions.Get(m, clusterv1.MachineNodeReadyCondition)
	if said == nil || !m.Status.NodeRef.IsDefined() {
		return false, false
	}
	return said.Status == metav1.ConditionTrue, true
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
	lost := map[string]capacity.Subject{}
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
			loss := records.SubjectOf(r)
			loss.Gone, _ = records.WentAt(r)
			lost[loss.Name] = loss
		}
	}
	for _, replaced := range s.Remembered {
		delete(lost, replaced)
	}
	for _, loss := range lost {
		s.Lost = append(s.Lost, loss)
	}
	slices.SortFunc(s.Lost, func(a, b capacity.Subject) int { return a.Gone.Compare(b.Gone) })
}

// Predecessor is the machine that m was made for, as it is written down. Of what is not, the other machines of its owner are needed.
func (a *Asker) Predecessor(m *clusterv1.Machine) capacity.Replacement {
	s := capacity.Of(m)
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
