package machinehealthcheck

import (
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Ownership is how a request relates to a check.
type Ownership int

const (
	// Foreign is a request that another check made, or somebody unknown, or that is for another Machine.
	Foreign Ownership = iota
	// Adoptable is one of an unknown maker from a template of the same kind, or by a check of the same name that was there before.
	Adoptable
	// Own is one that this very check made.
	Own
)

// ownership is that of the request that there is for t. One that was cloned from a template which another check of the machine names is that
// check's, as far as anybody knows.
func (w *observed) ownership(t *target) Ownership {
	is := OwnershipOf(w.check, t.machine, t.request)
	template := t.request.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	if is == Adoptable && template != w.check.Spec.Remediation.TemplateRef.Name {
		for _, other := range w.others {
			if other.template == template && other.selector.Matches(labels.Set(t.machine.Labels)) {
				return Foreign
			}
		}
	}
	return is
}

// OwnershipOf finds out how req, which has the name of m, relates to check. A request counts only for the Machine whose UID it names: one that a
// deleted Machine of the same name has left is nobody's, and goes with that Machine.
//
// A request without mark that was cloned from a template of the kind that the check names was made by Cluster API core before the check
// was claimed, also if the check named another template then. It is taken over, since otherwise nobody would ever end it.
func OwnershipOf(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine, req *remediationrequest.Metadata) Ownership {
	maker, marked := remediationrequest.MadeBy(req)
	switch {
	case !remediationrequest.IsFor(req, m):
		return Foreign
	case marked && maker.Name == check.Name && maker.UID == check.UID:
		return Own
	case marked && maker.Name == check.Name:
		return Adoptable
	case !marked && remediationrequest.ClonedFrom(req, remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)):
		return Adoptable
	default:
		return Foreign
	}
}
