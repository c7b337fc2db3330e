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

// RemediationsOf explains the Metal3Remediations and HostRemediations that a machine owns.
func (a *Asker) RemediationsOf(ctx context.Context, machine *clusterv1.Machine) []explain.Remediation {
	existing, _ := a.existing(ctx, machine.Namespace)
	return a.explained(existing.Of(machine))
}

// RemediationsHolding explains the remediations that act on the power of a host. It also returns the UIDs in the host's annotations that
// belong to no remediation, but none if some remediations could not be read, because a UID may belong to one of these.
func (a *Asker) RemediationsHolding(ctx context.Context, on *bmov1alpha1.BareMetalHost) ([]explain.Remediation, []types.UID) {
	existing, whole := a.existing(ctx, on.Namespace)
	known, unknown := existing.OnHost(on)
	if !whole {
		unknown = nil
	}
	return a.explained(known), unknown
}

// Remediation explains a remediation. It returns nil if there is none, or if CAPM3 serves the kind only in a version of which kubemend
// reads only metadata.
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
	kinds, _ := remediation.InstalledKinds(a.Snapshot.RESTMapper()) // the mapper of a snapshot asks no server, and does not fail
	return kinds
}

// existing returns the remediations of a namespace, of the kinds that could be read. whole is true if all kinds could be read; the snapshot
// remembers why one could not.
func (a *Asker) existing(ctx context.Context, namespace string) (existing remediation.Existing, whole bool) {
	readable := slices.DeleteFunc(a.kinds(), func(kind remediation.Kind) bool {
		return a.Snapshot.List(ctx, kind.List(), client.InNamespace(namespace)) != nil
	})
	existing, _ = remediation.List(ctx, a.Snapshot, readable, namespace)
	return existing, len(readable) == len(a.kinds())
}

// explained explains remediations, except those of which kubemend reads only metadata.
func (a *Asker) explained(remediations []remediation.OfKind) []explain.Remediation {
	var explained []explain.Remediation
	for _, rem := range remediations {
		if rem.Kind.New != nil {
			explained = append(explained, *a.remediation(rem.Kind, remediation.Wrap(rem.Object)))
		}
	}
	return explained
}

// remediation explains a remediation from what the manager wrote on it, and reports if no manager acts on it.
func (a *Asker) remediation(kind remediation.Kind, rem remediation.Object) *explain.Remediation {
	explained, cluster, crd := hostremediation.Explain(kind, rem), a.clusterOf(rem), kind.ControllerName()+"s."+kind.Group
	for _, manager := range a.Managers.All {
		says := ptr.Deref(manager.Announcement, managerlease.Announcement{}) // a manager without announcement may act on everything
		here := manager.Alive && manager.Unserved(crd) == nil && (says.Namespace == "" || says.Namespace == rem.GetNamespace())
		if here && hostremediation.Acts(kind, rem, cluster, says.WatchFilter, says.Teardown) {
			explained.Acts = true // a manager also ends remediations that it would not begin now
			return explained
		}
	}
	_, hold, next := a.Managers.absent(crd, func(is *managerlease.Manager) managerlease.Off {
		return is.StandsOff(rem.Unwrapped(), cluster)
	})
	if hold == nil {
		return explained
	}
	explained.Reason, explained.Message = hold.Reason, hold.Text
	explained.Next = cmp.Or(next, explain.Step{Reason: hold.Reason, Text: "nothing, as long as no manager reconciles it"})
	if hold.Reason == explain.NotServed {
		explained.Blockers, explained.Evidence = nil, nil
	} else {
		explained.Deadline = nil
	}
	return explained
}

// clusterOf returns the Cluster of the Machine that owns a remediation, or an empty Cluster. Its label counts for watch filters as well.
func (a *Asker) clusterOf(rem remediation.Object) *clusterv1.Cluster {
	key := client.ObjectKey{Namespace: rem.GetNamespace(), Name: ptr.Deref(remediation.OwnerOf(rem), metav1.OwnerReference{}).Name}
	machine := cmp.Or(snapshot.One[clusterv1.Machine](a.Snapshot, key), &clusterv1.Machine{})
	return a.cluster(client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.ClusterName})
}

// Capacity observes what the capacity of a machine waits for, using the RemediationRecords of machines of the same owner.
func (a *Asker) Capacity(ctx context.Context, s capacity.Subject) *capacity.Facts {
	a.remember(&s)
	o := &capacity.Observer{Management: a.Snapshot, Mapper: a.Snapshot.RESTMapper(), NodeReady: a.nodeReady}
	facts, _ := o.Observe(ctx, s, a.Now) // the facts list what could not be read
	return facts
}

// NodeReady reports whether the node of m is Ready, by the node itself or, if it was not read, by the Machine's condition NodeReady; known
// is false if neither is there.
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

// nodeReady returns the condition Ready of the node of m; known is false if the node was not read.
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
				Status: metav1.ConditionStatus(cond.Status), Reason: cond.Reason, Message: cond.Message,
				LastTransitionTime: cond.LastTransitionTime,
			}, true
		}
	}
	return metav1.Condition{}, true
}

// remember adds to s what RemediationRecords say of the machines of its MachineDeployment or, without one, of its owner: which machines are
// gone and not replaced, and which machine replaces which. No field of a MachineSet has this.
func (a *Asker) remember(s *capacity.Subject) {
	lost := map[string]capacity.Subject{}
	s.Remembered = map[string]string{}
	for _, r := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, s.Namespace) {
		if r.Spec.Target.Machine == nil {
			continue
		}
		loss := records.SubjectOf(r)
		same := loss.Owner.Kind != "" && loss.Owner.Kind == s.Owner.Kind && loss.Owner.Name == s.Owner.Name
		if loss.Deployment != "" && s.Deployment != "" {
			same = loss.Deployment == s.Deployment && loss.Cluster == s.Cluster
		}
		switch {
		case !same:
		case loss.Found != "":
			s.Remembered[loss.Found] = loss.Name
			if loss.Name == s.Name {
				s.Found = loss.Found
			}
		case r.Open():
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

// Predecessor returns the machine that m replaces, by the annotations of m or by RemediationRecords. It does not look at other machines.
func (a *Asker) Predecessor(m *clusterv1.Machine) capacity.Replacement {
	s := capacity.Of(m)
	a.remember(&s)
	return s.MadeFor(m)
}
