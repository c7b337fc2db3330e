package inspect

import (
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	decide "github.com/kubemend/kubemend/controllers/decide/capacity"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// remember adds to f what RemediationRecords say of the machines of its owner: which of them are gone and not replaced, and which replaces which. A
// MachineSet writes neither down.
func (a *Asker) remember(f *decide.Facts, s *capacity.Subject) {
	lost, replaced := map[string]decide.Loss{}, map[string]bool{}
	for _, r := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, f.Namespace) {
		target := &r.Spec.Target
		if target.Machine == nil || !ofOwner(r, s) {
			continue
		}
		name := target.Machine.Name
		switch by := r.Status.Replacement; {
		case by != nil:
			replaced[name] = true
			if m := machineOf(f, by.Machine.Name); m != nil {
				m.Remembered = name
			} else if name == f.Old.Name {
				f.Found = by.Machine.Name
			}
		case r.Open() && machineOf(f, name) == nil:
			at, _ := records.WentAt(r)
			lost[name] = decide.Loss{Name: name, At: at, Host: ptr.Deref(r.Spec.Target.Host, mendv1.RecordRef{}).Name}
		}
	}
	for _, l := range lost {
		if !replaced[l.Name] {
			f.Lost = append(f.Lost, l)
		}
	}
	slices.SortFunc(f.Lost, func(a, b decide.Loss) int { return a.At.Compare(b.At) })
}

// Predecessor is the machine that m was made for, as it is written down. Of what is not, the other machines of its owner are needed.
func (a *Asker) Predecessor(m *clusterv1.Machine) decide.Replacement {
	f, s := decide.Facts{Namespace: m.Namespace, Old: decide.Machine{Name: m.Name}}, capacity.Of(m, m.CreationTimestamp.Time)
	f.Old.Replaces, _ = capacity.Replaces(m)
	a.remember(&f, &s)
	f.Lost = nil
	return decide.Predecessor(f)
}

// machineOf is what f knows of a machine; nil if there is none of that name.
func machineOf(f *decide.Facts, name string) *decide.Machine {
	if f.Old.Name == name {
		return &f.Old
	}
	i := slices.IndexFunc(f.Others, func(m decide.Machine) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Others[i]
}

// ofOwner reports whether r is about a machine of the owner of s: of its MachineDeployment, if there is one.
func ofOwner(r *mendv1.RemediationRecord, s *capacity.Subject) bool {
	if of := r.Labels[clusterv1.MachineDeploymentNameLabel]; of != "" && s.Deployment != "" {
		return of == s.Deployment && r.Spec.Target.ClusterName == s.Cluster
	}
	owner := r.Spec.Target.Owner
	return owner != nil && owner.Kind == s.Owner.Kind && owner.Name == s.Owner.Name
}
