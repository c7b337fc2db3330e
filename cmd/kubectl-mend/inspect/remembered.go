package inspect

import (
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

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
