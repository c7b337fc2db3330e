package remediationrecord

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// next is the check that has a step left for the target; without a name none has. What holds a step up may do so for hours, and the remediation is not given
// up until then.
func (o *observed) next() mendv1.RecordRef {
	t := &o.facts.Target
	if !o.checked || !t.Known || !t.Exists || !t.Deleting.IsZero() {
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
	all := o.nodeCheck.Status.UnhealthyNodes
	i := slices.IndexFunc(all, func(n nhcv1.UnhealthyNode) bool { return n.Name == node.Name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// stepLeft reports whether the NodeHealthCheck has a step left for the node: by its ladder and by what its status says of the node.
func (o *observed) stepLeft() bool {
	listed := o.listed()
	if listed == nil {
		return false
	}
	steps := stepsOf(&o.nodeCheck.Spec)
	ladder := make([]escalation.Step, 0, len(steps))
	for _, s := range steps {
		ladder = append(ladder, escalation.Step{Timeout: s.Timeout.Duration})
	}
	answer := escalation.Decide(ladder, o.asked(steps, listed.Remediations), o.now)
	at := answer.Step
	switch answer.Do {
	case escalation.Exhausted:
		return false
	case escalation.Start:
	case escalation.Wait, escalation.GiveUp:
		at++
	}
	for ; at < len(steps); at++ {
		if o.canBeAbout(&steps[at]) {
			return true
		}
	}
	return false
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

// asked are the requests that the status of the check lists, as its ladder sees them. Those of templates that it does not name any more are none.
func (o *observed) asked(steps []nhcv1.EscalatingRemediation, listed []nhcv1.Remediation) []escalation.Request {
	all := make([]escalation.Request, 0, len(listed))
	for i := range listed {
		was := &listed[i]
		is := escalation.Request{Started: was.Started.Time, Gone: true, Succeeded: escalation.Unsure}
		is.Step = slices.IndexFunc(steps, func(s nhcv1.EscalatingRemediation) bool { return madeFrom(&s, was) })
		if was.TimedOut != nil {
			is.GivenUp, is.Notified = was.TimedOut.Time, true
		}
		for j := range o.facts.Requests {
			r := &o.facts.Requests[j]
			if r.Kind != was.Resource.Kind || r.Namespace != was.Resource.Namespace || r.Name != was.Resource.Name {
				continue
			}
			is.Gone = false
			switch {
			case r.Failed:
				is.Succeeded = escalation.No
			case r.Succeeded:
				is.Succeeded = escalation.Yes
			}
		}
		all = append(all, is)
	}
	return all
}

// madeFrom reports whether a request was made from the template of a step.
func madeFrom(s *nhcv1.EscalatingRemediation, was *nhcv1.Remediation) bool {
	ref := &s.RemediationTemplate
	kind := remediationrequest.KindOf(ref.GroupVersionKind()).GroupKind()
	return kind == schema.FromAPIVersionAndKind(was.Resource.APIVersion, was.Resource.Kind).GroupKind() && ref.Namespace == was.Resource.Namespace &&
		(was.TemplateName == "" || was.TemplateName == ref.Name)
}

// canBeAbout reports whether a step can be about the node. The check skips one whose requests a Machine owns, if no Machine in the namespace of its template
// is behind the node: one of Cluster API or, for templates of infrastructure, one of OpenShift.
func (o *observed) canBeAbout(s *nhcv1.EscalatingRemediation) bool {
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
