package remediationrecord

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// next is the check that has a step left for the target, and that kubemend acts on; without a name none has. What holds a step up may do so for hours, and the
// remediation is not given up until then.
func (o *observed) next() mendv1.RecordRef {
	t := &o.facts.Target
	if !o.checked || !o.acts || !t.Known || !t.Exists || !t.Deleting.IsZero() {
		return mendv1.RecordRef{}
	}
	left := t.Checked == No && len(o.facts.Requests) == 0 // a MachineHealthCheck asks again where nothing asks any more, and then waits
	if o.nodeCheck != nil {
		left = o.stepLeft()
	}
	if !left {
		return mendv1.RecordRef{}
	}
	return *o.record.Spec.Requester.Check
}

// listed is what the status of the NodeHealthCheck says of the node, which it lists as long as the remediation is not over; nil if it says nothing, or if the
// check is on its way out.
func (o *observed) listed() *nhcv1.UnhealthyNode {
	node := o.record.Spec.Target.Node
	if o.nodeCheck == nil || !o.checked || node == nil {
		return nil
	}
	for i := range o.nodeCheck.Status.UnhealthyNodes {
		if listed := &o.nodeCheck.Status.UnhealthyNodes[i]; listed.Name == node.Name {
			return listed
		}
	}
	return nil
}

// stepLeft reports whether the NodeHealthCheck has a step left for the node: the one that it is on, if its request was deleted before its time, or a later one.
// Requests of templates that the check does not name any more are of none.
func (o *observed) stepLeft() bool {
	listed := o.listed()
	if listed == nil {
		return false
	}
	steps, at := stepsOf(&o.nodeCheck.Spec), 0
	for i := range listed.Remediations {
		made := &listed.Remediations[i]
		step := slices.IndexFunc(steps, func(s nhcv1.EscalatingRemediation) bool { return madeFrom(&s, made) })
		if step < at {
			continue
		}
		at = step
		if made.TimedOut != nil || o.exists(made) {
			at++
		}
	}
	return slices.ContainsFunc(steps[at:], o.canBeAbout)
}

// exists reports whether the request is there that the status of the check lists.
func (o *observed) exists(made *nhcv1.Remediation) bool {
	return slices.ContainsFunc(o.facts.Requests, func(r Request) bool {
		return r.Kind == made.Resource.Kind && r.Namespace == made.Resource.Namespace && r.Name == made.Resource.Name
	})
}

// stepsOf are the steps of a NodeHealthCheck in their order; one without an escalation has one.
func stepsOf(spec *nhcv1.NodeHealthCheckSpec) []nhcv1.EscalatingRemediation {
	if ref := spec.RemediationTemplate; ref != nil {
		return []nhcv1.EscalatingRemediation{{RemediationTemplate: *ref}}
	}
	steps := slices.Clone(spec.EscalatingRemediations)
	slices.SortStableFunc(steps, func(a, b nhcv1.EscalatingRemediation) int { return cmp.Compare(a.Order, b.Order) })
	return steps
}

// madeFrom reports whether a request was made from the template of a step.
func madeFrom(s *nhcv1.EscalatingRemediation, made *nhcv1.Remediation) bool {
	ref := &s.RemediationTemplate
	kind := remediationrequest.KindOf(ref.GroupVersionKind()).GroupKind()
	return kind == schema.FromAPIVersionAndKind(made.Resource.APIVersion, made.Resource.Kind).GroupKind() && ref.Namespace == made.Resource.Namespace &&
		(made.TemplateName == "" || made.TemplateName == ref.Name)
}

// canBeAbout reports whether a step can be about the node. The check skips one whose requests a Machine owns, if no Machine in the namespace of its template
// is behind the node: one of Cluster API or, for templates of infrastructure, one of OpenShift.
func (o *observed) canBeAbout(s nhcv1.EscalatingRemediation) bool {
	t := &s.RemediationTemplate
	group := t.GroupVersionKind().Group
	machine := o.record.Spec.Target.Machine
	switch {
	case group != mendv1.GroupVersion.Group && group != infrav1.GroupVersion.Group:
		return true
	case machine != nil && machine.Namespace == t.Namespace:
		return true
	}
	namespace, _, _ := strings.Cut(o.openshift, "/")
	return group == infrav1.GroupVersion.Group && namespace != "" && namespace == t.Namespace
}
