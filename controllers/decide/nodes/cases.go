package nodes

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// unreadTemplate is a template without which nothing can be made: of the check before the first request, else of the step.
func (c *Case) unreadTemplate() *Template {
	needed := c.f.Templates
	if !c.begins {
		needed = needed[c.step : c.step+1]
	}
	i := slices.IndexFunc(needed, func(t Template) bool { return t.Object == nil })
	if i < 0 {
		return nil
	}
	if j := slices.IndexFunc(c.f.Templates, func(t Template) bool { return t.Unread }); j >= 0 {
		return &c.f.Templates[j]
	}
	return &needed[i]
}

// template is that of the step, or of the next one that can be about the node; nil if there is none.
func (c *Case) template() *Template {
	if step := c.passing(c.n, c.step); step < len(c.f.Templates) {
		return &c.f.Templates[step]
	}
	return nil
}

func (c *Case) unsuitable() Reason {
	if c.template() == nil {
		return ""
	}
	reason, _ := c.template().Unsuitable(c.n)
	return reason
}

func (c *Case) whyUnsuitable() string {
	_, why := c.template().Unsuitable(c.n)
	return why
}

// foreign is another maker's request that is for the node, or has the name that the check's would have; nil if there is none.
func (c *Case) foreign() *unstructured.Unstructured {
	t := c.template()
	if t == nil {
		return nil
	}
	for _, other := range c.n.Others {
		if other.GroupVersionKind().GroupKind() == t.Request.GroupKind() && !c.n.orphaned(other) {
			return other
		}
	}
	if named := c.namesake(); named.Object != nil && !named.Own {
		return named.Object
	}
	return nil
}

// namesake is the request that has the name which the one of this step would have.
func (c *Case) namesake() Named {
	step, t := c.passing(c.n, c.step), c.template()
	if t == nil || t.Object == nil || step >= len(c.n.Named) {
		return Named{}
	}
	if named := c.n.Named[step]; named.Object != nil && !c.n.orphaned(named.Object) {
		return named
	}
	return Named{}
}

// ownNamesake is that request, if the check made it.
func (c *Case) ownNamesake() *unstructured.Unstructured {
	if named := c.namesake(); named.Own {
		return named.Object
	}
	return nil
}

func (c *Case) namedByTemplate() bool {
	return c.ownNamesake().GetAnnotations()[nhcv1.TemplateNameAnnotation] == c.template().Name
}

func (n *Node) orphaned(request *unstructured.Unstructured) bool {
	return slices.ContainsFunc(n.Orphaned, func(o *unstructured.Unstructured) bool { return o.GetUID() == request.GetUID() })
}

// queued reports whether the queue of the control plane was read. It is not as long as something else blocks all of its nodes.
func (c *Case) queued() bool {
	return c.f.ControlPlane != nil && !c.f.ControlPlane.Searching && c.view.first >= 0
}

// objection is what the control plane has against the disruption of the node for one of those reasons; nil if nothing.
func (c *Case) objection(reasons ...controlplane.Reason) *controlplane.Objection {
	if !c.queued() || c.f.ControlPlane.Unread != "" {
		return nil
	}
	objections := c.objections(c.i)
	if i := slices.IndexFunc(objections, func(o controlplane.Objection) bool { return slices.Contains(reasons, o.Reason) }); i >= 0 {
		return &objections[i]
	}
	return nil
}

func (c *Case) disrupted() *controlplane.Objection {
	return c.objection(controlplane.BeingRemediated, controlplane.BeingReplaced)
}

func (c *Case) etcd() Reason {
	if c.f.ControlPlane == nil || c.view.first != c.i {
		return ""
	}
	return c.view.etcd
}

// remake is the age at which a deleted request is made again, for the first time. A remediator that deletes its requests at once would get
// one after the other.
const remake = time.Minute

func (c *Case) remadeAt() time.Time {
	return c.n.remade(func(gone *Listed) bool { return gone.Step == c.step })
}

// remade is the first moment at which a request that is gone may be made again; zero if there was none.
func (n *Node) remade(on func(*Listed) bool) time.Time {
	var at time.Time
	for i := range n.Gone {
		if gone := &n.Gone[i]; on(gone) && gone.TimedOut == nil {
			at = latest(latest(at, gone.Started.Add(remake)), n.Loop.Until(gone.Started.Time, time.Hour))
		}
	}
	return at
}

func (c *Case) waits() bool {
	return len(c.f.Templates) > 0 && (c.answer.Do == escalation.Wait || c.answer.Do == escalation.GiveUp)
}

// stillDeleted is a request of the last time that is waited for, which is still being deleted; nil if there is none.
func (c *Case) stillDeleted() *Request {
	if c.answer.Do != escalation.Wait || c.answer.Reason != escalation.AwaitingDeletion {
		return nil
	}
	for j := range c.n.Requests {
		if r := &c.n.Requests[j]; c.Requests[j].Former(r) {
			return r
		}
	}
	return nil
}
