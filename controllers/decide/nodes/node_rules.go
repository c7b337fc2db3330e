package nodes

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// unselected: it has left the selection, and its remediation is over.
func (a asking) unselected() []Blocker {
	if a.n.Selected {
		return nil
	}
	return []Blocker{{Reason: NotSelected, Message: "The check does not select the node any more"}}
}

func (a asking) excluded() []Blocker {
	if excluded, _ := a.n.Excluded(); !excluded {
		return nil
	}
	return []Blocker{{
		Reason: NodeExcluded, Message: a.n.skippedOn("node has Exclude from Remediation label"), Event: skipped,
		Fix:      "remove the label " + nhcv1.ExcludeLabel + " from the node",
		EndsWhen: "the label " + nhcv1.ExcludeLabel + " is removed from the node",
	}}
}

// stuckFor is how long a Node is being deleted before an event asks a person to see to it. Karpenter drains it and ends its instance meanwhile.
const stuckFor = time.Hour

// deleting: the Node is being deleted, and something holds it by a finalizer. A remediation would bring back what somebody else ends.
func (a asking) deleting() []Blocker {
	if a.n.Object == nil || a.n.Object.DeletionTimestamp.IsZero() {
		return nil
	}
	stuck := a.n.Object.DeletionTimestamp.Add(stuckFor)
	if a.f.Now.Before(stuck) {
		return []Blocker{{
			Reason: NodeDeleting, Message: a.n.skippedOn("it is being deleted"), EndsWhen: "the Node is gone", Again: stuck,
			Event: skipped, Quiet: true,
		}}
	}
	finalizers := strings.Join(a.n.Object.Finalizers, ", ")
	return []Blocker{{
		Reason: NodeStuck, Message: a.n.skippedOn("it is being deleted for more than an hour, and kept by the finalizers " + finalizers),
		Fix: "find out why what put the finalizers " + finalizers + " on the Node does not end it", EndsWhen: "the Node is gone", Event: skipped,
	}}
}

// machine is what the Machine of the node says against it, what is reported first coming first.
func (a asking) machine() []Blocker {
	m := a.n.Machine
	if m == nil {
		return nil
	}
	var blockers []Blocker
	if m.Unread {
		blockers = append(blockers, Blocker{Reason: MachineUnread, Message: a.n.skippedOn("its Machine could not be read"), Event: skipped})
	}
	if m.Object == nil {
		return blockers
	}
	cluster, unannotate := m.cluster(), "remove the annotation from "+m.Ref().String()
	paused := "its Machine is paused by the annotation " + clusterv1.PausedAnnotation
	skips := "its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation
	for _, asked := range []struct {
		blocks bool
		Blocker
	}{
		{m.Cluster != nil && ptr.Deref(m.Cluster.Spec.Paused, false), Blocker{
			Reason: ClusterPaused, Message: a.n.skippedOn("its Cluster is paused"), Fix: "unpause " + cluster.String(), Object: cluster,
		}},
		{m.annotated(clusterv1.PausedAnnotation), Blocker{Reason: MachinePaused, Message: a.n.skippedOn(paused), Fix: unannotate, Object: m.Ref()}},
		{m.annotated(clusterv1.MachineSkipRemediationAnnotation), Blocker{
			Reason: MachineSkipped, Message: a.n.skippedOn(skips), Fix: unannotate, Object: m.Ref(),
		}},
		{!m.Object.DeletionTimestamp.IsZero(), Blocker{
			Reason: MachineDeleting, Message: a.n.skippedOn("its Machine is being deleted"), Object: m.Ref(),
		}},
	} {
		if asked.blocks {
			asked.Event = skipped
			blockers = append(blockers, asked.Blocker)
		}
	}
	return blockers
}

func (a asking) leaseTaken() []Blocker {
	l, now := a.n.Lease, a.f.Now
	if !l.Held(now) {
		return nil
	}
	until := l.expiry()
	again := health.Earliest(now.Add(leaseTaken), until.Add(time.Millisecond))
	return []Blocker{{
		Reason: LeaseTaken, Message: a.n.skippedBecause("node lease is already taken by " + l.Holder), Event: skipped,
		EndsWhen: "the lease that " + l.Holder + " has on the node runs out", Until: until, Again: again,
	}}
}

// fresh is asked besides when there is no request yet.
func (a asking) fresh() []Blocker {
	m := a.n.Machine
	if !m.There() {
		return nil
	}
	var blockers []Blocker
	if m.WatchedBy != "" {
		check := rule.Ref{Kind: "MachineHealthCheck", Namespace: m.Object.Namespace, Name: m.WatchedBy}
		blockers = append(blockers, Blocker{
			Reason: OverlappingCheck, Event: skipped, Object: check,
			Message: a.n.skippedBecause(check.String() + " watches its Machine " + m.Object.Name),
			Fix: "let only one of the two checks watch it: take it out of the selector of " + check.String() +
				", or pause that one",
		})
	}
	if meta.IsStatusConditionTrue(m.Object.Status.Conditions, clusterv1.MachineUpdatingCondition) {
		blockers = append(blockers, Blocker{
			Reason: MachineUpdating, Message: a.n.skippedBecause("its Machine " + m.Object.Name + " is being updated in place"), Event: skipped,
			EndsWhen: "the update of its Machine is over", Object: m.Ref(),
		})
	}
	return blockers
}

// obstacles are what makes the step itself impossible.
func (a asking) obstacles() []Blocker {
	step := a.passing(a.n, a.step)
	if step >= len(a.f.Templates) {
		return nil
	}
	t := &a.f.Templates[step]
	var blockers []Blocker
	if reason, why := t.Unsuitable(a.n); reason != "" {
		blockers = append(blockers, Blocker{
			Reason: reason, Message: a.n.skippedBecause(why), Event: skipped, Object: t.Ref(),
			Fix: "have the check name a template that is about this node",
		})
	}
	again := a.f.Now.Add(time.Minute) // the end of a request that has the name, or lost its mark, enqueues no check
	if len(a.n.Orphaned) > 0 {
		request := RefOf(a.n.Orphaned[0])
		blockers = append(blockers, Blocker{
			Reason: OrphanedRequest, Event: skipped, EndsWhen: request.String() + " is gone", Object: request, Again: again,
			Message: a.n.skippedBecause(request.String() + ", orphaned by a deleted NodeHealthCheck of the same name, is not gone yet"),
		})
	}
	for _, other := range a.n.Others {
		if other.GroupVersionKind().GroupKind() == t.Request.GroupKind() && !a.n.orphaned(other) {
			blockers = append(blockers, a.foreign(RefOf(other), again))
		}
	}
	return append(blockers, a.nameTaken(step, again)...)
}

// foreign: another maker's request is for the node, or has the name that the check's would have.
func (a asking) foreign(request rule.Ref, again time.Time) Blocker {
	return Blocker{
		Reason: ForeignRequest, Event: skipped, Object: request, Again: again,
		Message: a.n.skippedBecause(request.String() + " exists and was not made by this NodeHealthCheck"),
		Fix:     "delete " + request.String() + " when it is not needed any more", EndsWhen: request.String() + " is gone",
	}
}

func (n *Node) orphaned(request *unstructured.Unstructured) bool {
	return slices.ContainsFunc(n.Orphaned, func(o *unstructured.Unstructured) bool { return o.GetUID() == request.GetUID() })
}

// nameTaken: there is a request of the name that the one of this step would have.
func (a asking) nameTaken(step int, again time.Time) []Blocker {
	t := &a.f.Templates[step]
	if t.Object == nil || step >= len(a.n.Named) || a.n.Named[step].Object == nil {
		return nil
	}
	same, own := a.n.Named[step].Object, a.n.Named[step].Own
	ref := RefOf(same)
	earlier := func(r Request) bool { return r.Object.GetUID() == same.GetUID() && r.Step < a.step }
	switch {
	case a.n.orphaned(same):
		return nil
	case !own:
		return []Blocker{a.foreign(ref, again)}
	case same.GetAnnotations()[nhcv1.TemplateNameAnnotation] != t.Name:
		return []Blocker{{
			Reason: OtherTemplate, Event: skipped, Fix: "have the steps of the check name templates of different kinds", Object: ref,
			Message: a.n.skippedBecause(ref.String() + " exists and was made from another template: " +
				"using multiple templates of same kind is not supported for this template"),
		}}
	case slices.ContainsFunc(a.n.Requests, earlier):
		return []Blocker{{
			Reason: SameTemplate, Event: skipped, Fix: "have the two steps of the check name two templates", Object: ref,
			Message: a.n.skippedBecause("two steps of the check have the same template, " + t.Name + ", and " + ref.String() +
				" of the first one exists"),
		}}
	}
	return nil
}

// quorumRetry is how soon a node of the control plane is looked at again that had to wait. (medik8s.)
const quorumRetry = time.Minute

// members is what the control plane says against it: another node is being remediated, or goes first, or without this one, which is alive, too few would
// be left. As long as something else blocks all nodes of the control plane it is not read.
func (a asking) members() []Blocker {
	c := a.f.ControlPlane
	if c == nil {
		if a.begun(a.i) || len(a.toRemediate()) > 0 {
			return nil
		}
		return []Blocker{membersNotSeen(a.n.Name)}
	}
	var blockers []Blocker
	switch {
	case c.Searching:
		searched := quorumLoss(a.n.Name, ControlPlaneSearched, "the control plane could not be read: "+c.Unread, rule.Ref{})
		searched.Quiet = true // it is over soon
		blockers = append(blockers, searched)
	case a.view.first >= 0:
		blockers = append(blockers, a.against(a.n.Name)...)
	}
	switch {
	case a.view.first >= 0 && a.view.first != a.i:
		blockers = append(blockers, ahead(a.n.Name, a.f.Nodes[a.view.first].Name))
	case a.view.first == a.i && a.view.etcd != nil:
		blockers = append(blockers, *a.view.etcd)
	}
	for i := range blockers {
		blockers[i].Again = a.f.Now.Add(quorumRetry)
	}
	return blockers
}

// remake is how long a request has to have been there before another one is made in its place, if somebody deleted it. A remediator that
// deletes what it is asked at once would be asked without end.
const remake = time.Minute

// justDeleted: somebody deleted the request a moment ago.
func (a asking) justDeleted() []Blocker {
	at := a.n.remade(func(gone *Listed) bool { return gone.Step == a.step })
	if !a.f.Now.Before(at) {
		return nil
	}
	return []Blocker{{
		Reason: JustDeleted, EndsWhen: "a minute has passed since it was made first", Until: at,
		Message: "The request for node " + a.n.Name + " was deleted a moment ago, it is made again a minute after it was made first",
	}}
}

// remade is the first moment at which a request that is gone may be made again; zero if there was none.
func (n *Node) remade(on func(*Listed) bool) time.Time {
	var at time.Time
	for i := range n.Gone {
		if gone := &n.Gone[i]; on(gone) && gone.TimedOut == nil && gone.Started.Add(remake).After(at) {
			at = gone.Started.Add(remake)
		}
	}
	return at
}
