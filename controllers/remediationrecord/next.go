package remediationrecord

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// next is the check that has a step left for the target, and that kubemend acts on; without a name none has. What holds a step up may do so
// for hours, and the remediation is not given up until then. A MachineHealthCheck asks again where nothing asks any more, and then waits.
func (r *Reconciler) next(o *observed) mendv1.RecordRef {
	t, left, acts := &o.facts.Target, false, false
	switch check := o.check.(type) {
	case *nhcv1.NodeHealthCheck:
		left, acts = o.stepLeft(), r.actsOnNodes()
	case *clusterv1.MachineHealthCheck:
		claim, paused := check.Annotations[clusterv1.PausedAnnotation]
		left, acts = t.Checked == No && len(o.facts.Requests) == 0, claim == mendv1.Claim || !paused && r.ActsOnUnclaimed
	}
	if !left || !acts || !t.Exists || t.leaving() || !o.check.GetDeletionTimestamp().IsZero() {
		return mendv1.RecordRef{}
	}
	return *o.record.Spec.Requester.Check
}

// listed is what the status of the NodeHealthCheck says of the node, which it lists as long as the remediation is not over; nil if it says
// nothing, or if the check is on its way out.
func (o *observed) listed() *nhcv1.UnhealthyNode {
	check, ofNodes := o.check.(*nhcv1.NodeHealthCheck)
	if node := o.record.Spec.Target.Node; ofNodes && node != nil && check.DeletionTimestamp.IsZero() {
		for i := range check.Status.UnhealthyNodes {
			if listed := &check.Status.UnhealthyNodes[i]; listed.Name == node.Name {
				return listed
			}
		}
	}
	return nil
}

// stepLeft reports whether the NodeHealthCheck has a step left for the node: the one that it is on, if its request was deleted before its
// time, or a later one. Requests of templates that the check does not name any more are of none.
func (o *observed) stepLeft() bool {
	listed := o.listed()
	if listed == nil {
		return false
	}
	steps, at := o.templates, 0
	for _, made := range listed.Remediations {
		kind := schema.FromAPIVersionAndKind(made.Resource.APIVersion, made.Resource.Kind).GroupKind()
		step := slices.IndexFunc(steps, func(template corev1.ObjectReference) bool {
			return kind == remediationrequest.KindOf(template.GroupVersionKind()).GroupKind() && template.Namespace == made.Resource.Namespace &&
				(made.TemplateName == "" || made.TemplateName == template.Name)
		})
		if step < at {
			continue
		}
		at = step
		exists := slices.ContainsFunc(o.facts.Requests, func(req Request) bool {
			return req.Kind == made.Resource.Kind && req.Namespace == made.Resource.Namespace && req.Name == made.Resource.Name
		})
		if made.TimedOut != nil || exists {
			at++
		}
	}
	return slices.ContainsFunc(steps[at:], o.canBeAbout)
}

// stepsOf are the templates of the steps of a NodeHealthCheck in their order; one without an escalation has one.
func stepsOf(spec *nhcv1.NodeHealthCheckSpec) []corev1.ObjectReference {
	if ref := spec.RemediationTemplate; ref != nil {
		return []corev1.ObjectReference{*ref}
	}
	steps := slices.Clone(spec.EscalatingRemediations)
	slices.SortStableFunc(steps, func(a, b nhcv1.EscalatingRemediation) int { return cmp.Compare(a.Order, b.Order) })
	templates := make([]corev1.ObjectReference, 0, len(steps))
	for i := range steps {
		templates = append(templates, steps[i].RemediationTemplate)
	}
	return templates
}

// canBeAbout reports whether a step can be about the node. The check skips one whose requests a Machine owns, if no Machine in the
// namespace of its template is behind the node: one of Cluster API or, for templates of infrastructure, one of OpenShift.
func (o *observed) canBeAbout(template corev1.ObjectReference) bool {
	group, machine := template.GroupVersionKind().Group, o.record.Spec.Target.Machine
	switch {
	case group != mendv1.GroupVersion.Group && group != infrav1.GroupVersion.Group:
		return true
	case machine != nil && machine.Namespace == template.Namespace:
		return true
	case group != infrav1.GroupVersion.Group || o.node == nil:
		return false
	}
	namespace, _, _ := strings.Cut(o.node.Annotations[nhcv1.OpenShiftMachineAnnotation], "/")
	return namespace != "" && namespace == template.Namespace
}
