package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/explain"
)

// ErrUnasked is in the errors of Clusters and Nodes where a workload cluster cannot be asked at all, such as in a record of the management cluster alone. That
// is no fact about the cluster: the controller may reach it.
var ErrUnasked = errors.New("the workload cluster cannot be asked from here")

// Explain returns what a reconcile of the remediation called key observes at now, and the step that it takes first. It writes nothing, watches nothing and
// claims nothing. It returns nil if there is no such remediation, or if kubemend does not act on it. Of r it needs Kind, Installed, Client and Live to read
// from, Hosts, Clusters, Nodes, and the settings.
//
// Where the node or the queue cannot be read (ErrUnasked), and the step depends on them, Explain repeats the remediation's last condition, as long as the
// other facts agree with it; else the step is that of a reconcile that cannot read them either. Where a reconcile would fail, because the host or the machine
// cannot be read, the last condition is all there is. Trouble has both.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Remediation, error) {
	w, err := r.inspect(ctx, key, now)
	switch {
	case w == nil || err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return r.unread(w, err), nil
	}
	return r.explain(w), nil
}

// Observe returns what a reconcile of the remediation called key decides on at now, with the names that explain it. Its Decide returns the step. Like
// Explain it only reads, and returns nil if there is no such remediation, or if kubemend does not act on it.
func (r *Reconciler) Observe(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.PowerCycle, error) {
	w, err := r.inspect(ctx, key, now)
	if w == nil || err != nil {
		return nil, err
	}
	return w.about(), nil
}

// inspect observes the remediation called key without acting on it. It returns nil if there is none that kubemend acts on; with an error, what was read so
// far.
func (r *Reconciler) inspect(ctx context.Context, key client.ObjectKey, now time.Time) (*observed, error) {
	if r.Kind.New == nil {
		return nil, fmt.Errorf("read %s %s: only the metadata of %s is known", r.Kind.Kind, key, r.Kind.GroupVersion())
	}
	w := &observed{now: now, rem: r.Kind.New(), explains: true}
	if found, err := r.read(ctx, key, w); err != nil || !found {
		return nil, err
	}
	ours, err := r.survey(ctx, w)
	if err == nil && !ours {
		return nil, nil
	}
	return w, err
}

// explain explains what was observed.
func (r *Reconciler) explain(w *observed) *explain.Remediation {
	step := w.about().Decide()
	var trouble []string
	last := ""
	if len(w.unasked) > 0 && w.depends(step) {
		step, last = w.recall(step)
		trouble = explain.Unasked(w.unasked, last != "")
	}
	is := r.progress(w, step)
	is.ReadErrors = trouble
	is.Reason, is.Acts, is.Text = string(step.Reason), step.Do != powercycle.Wait, cmp.Or(last, w.messageOf(step))
	about := w.about()
	is.Evidence, is.Blockers = about.Evidence(), about.Blockers(step)
	is.Next = about.Next(step, is.Blockers)
	return is
}

// messageOf is the message of step once it is taken.
func (w *observed) messageOf(step powercycle.Step) string {
	after := *w
	if w.idle == "" {
		after.remember(step)
	}
	return after.about().Message("", step)
}

// progress is the progress of the remediation before the step is taken.
func (r *Reconciler) progress(w *observed, step powercycle.Step) *explain.Remediation {
	before := *w
	state := cmp.Or(w.facts.State, powercycle.Pending)
	if w.idle == "" {
		before.record.Memory = powercycle.After(w.facts, powercycle.Step{Do: powercycle.Wait, Next: state}, w.now)
	}
	m := before.record.Memory
	is := r.names(w)
	is.State, is.Attempt, is.Attempts = string(state), m.Attempt, w.policy.Attempts()
	is.Phase, is.AttemptStarted, is.StateSince = string(reportOf(&before, step, "").Phase), m.Began, w.facts.Since
	if begun := w.facts.State != ""; begun || step.Do == powercycle.Wait {
		is.StateSince, is.Deadline = m.Since, deadlineOf(m, w.policy)
	}
	return is
}

// names are the names of the remediation, its host, node and machine.
func (r *Reconciler) names(w *observed) *explain.Remediation {
	namespace := w.rem.GetNamespace()
	is := &explain.Remediation{
		Ref:  explain.Ref{Kind: r.Kind.Kind, Namespace: namespace, Name: w.rem.GetName()},
		Node: w.nodeName(), Host: w.record.Host,
	}
	if by, known := explain.AttributionOf(w.rem, mendv1.RequestedAnnotation); known {
		is.Requested = by.Text()
	}
	if w.found.Host != nil {
		is.Host = w.found.Host.Name
	}
	if owner := remediation.OwnerOf(w.rem); owner != nil {
		is.Machine = explain.Ref{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
	}
	return is
}

// unread is what is known of a remediation that cannot be reconciled, for err.
func (r *Reconciler) unread(w *observed, err error) *explain.Remediation {
	is, m := r.names(w), w.record.Memory
	is.State, is.StateSince = string(cmp.Or(m.State, powercycle.Pending)), m.Since
	is.Attempt, is.Attempts, is.AttemptStarted = m.Attempt, w.policy.Attempts(), m.Began
	is.Phase, is.Deadline = string(phases[m.State]), deadlineOf(m, w.policy)
	if c := conditions.Get(w.rem, nhcv1.ProcessingCondition); c != nil {
		is.Reason, is.Text = c.Reason, c.Message
	}
	is.ReadErrors = explain.Unasked([]error{err}, is.Text != "")
	return is
}

// possible are the facts that may be true where they could not be read.
func (w *observed) possible() []powercycle.Facts {
	all := []powercycle.Facts{w.facts}
	vary := func(change func(*powercycle.Facts)) {
		for _, f := range all {
			change(&f)
			all = append(all, f)
		}
	}
	if len(w.ahead) > 0 {
		vary(func(f *powercycle.Facts) { f.First = true })
	}
	unreadable := w.facts.Node == powercycle.NodeUnseen && errors.Is(errors.Join(w.unasked...), ErrUnasked)
	if unreadable {
		vary(func(f *powercycle.Facts) { f.Healthy, f.Unhealthy = true, false })
	}
	if unreadable && needsNode(w) {
		node := func(is powercycle.Node, fenced, drained bool) func(*powercycle.Facts) {
			return func(f *powercycle.Facts) {
				f.Node, f.Looked, f.Fenced, f.FencedByUs, f.Drained = is, true, fenced, fenced, drained
			}
		}
		unseen := all
		for _, change := range []func(*powercycle.Facts){
			node(powercycle.NodePresent, true, false), node(powercycle.NodePresent, true, true),
			node(powercycle.NodePresent, false, false), node(powercycle.NodeAbsent, false, false), node(powercycle.NodeAbsent, false, true),
		} {
			for _, f := range unseen {
				change(&f)
				all = append(all, f)
			}
		}
	}
	return all
}

// depends reports whether the step depends on facts that could not be read.
func (w *observed) depends(step powercycle.Step) bool {
	for _, f := range w.possible() {
		if s := powercycle.Next(f, w.policy, w.now); s.Do != step.Do || s.Next != step.Next || s.Reason != step.Reason {
			return true
		}
	}
	return false
}

// recall assumes the facts that the remediation's last condition implies where they could not be read, and returns the wait that it is in and the condition's
// message. It returns step if the condition cannot be true any more.
func (w *observed) recall(step powercycle.Step) (powercycle.Step, string) {
	last := conditions.Get(w.rem, nhcv1.ProcessingCondition)
	if last == nil {
		return step, ""
	}
	for _, f := range w.possible() {
		if s := powercycle.Next(f, w.policy, w.now); s.Do == powercycle.Wait && string(s.Reason) == last.Reason {
			w.facts = f
			return s, last.Message
		}
	}
	return step, ""
}

// about is what was observed, as package explain renders it.
func (w *observed) about() *explain.PowerCycle {
	p := &explain.PowerCycle{
		Namespace: w.rem.GetNamespace(), Facts: w.facts, Policy: w.policy, Now: w.now, After: w.record.Memory, Idle: w.idle,
		Asked: asked(w.rem), Deleted: !w.rem.GetDeletionTimestamp().IsZero(), Finalizer: w.kind.Finalizer, Pause: w.pause(),
		Host: w.aboutHost(), Node: w.aboutNode(), Ahead: w.ahead, Unasked: len(w.unasked) > 0,
	}
	if owner := remediation.OwnerOf(w.rem); owner != nil {
		p.Owner = owner.Name
	}
	if w.cluster != nil {
		p.Cluster = w.cluster.Name
	}
	if w.machine != nil {
		p.Machine = w.machine.Name
		if c := conditions.Get(w.machine, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Status == metav1.ConditionFalse {
			p.MachineUnhealthy = c.Reason
		}
	}
	return p
}

func (w *observed) aboutHost() explain.HostDetails {
	h, power := w.found.Host, w.power
	is := explain.HostDetails{
		Known: h != nil, Mismatch: w.found.Why, Unmanaged: power.Unmanaged, Trouble: power.Trouble, Doubt: power.Doubt, KeptOffBy: power.KeptOffBy,
	}
	if h == nil {
		return is
	}
	is.Namespace, is.Name, is.Unhealthy = h.Namespace, h.Name, host.Unhealthy(h)
	is.KeptOffFor, is.KeptOffAs = keptOffFor(h, w.record.By(w.rem)), w.keptOffAs()
	if ref := h.Spec.ConsumerRef; ref != nil {
		is.Consumer = fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	}
	return is
}

// keptOffAs is the UID by which the remediation keeps its host powered off: that of before it was moved, if it was.
func (w *observed) keptOffAs() string {
	by := w.record.By(w.rem)
	for key := range w.found.Host.Annotations {
		if uid, hold := host.KeptOffFor(key); hold && by.Before != "" && uid == by.Before {
			return string(uid)
		}
	}
	return string(by.UID)
}

func (w *observed) aboutNode() explain.NodeDetails {
	seen := w.seen
	is := explain.NodeDetails{
		Name: w.nodeName(), Unseen: w.unseenBecause, Unhealthy: w.unhealthy, Before: w.record.BootID, Looked: seen.Presence == fence.Present,
		Answered: seen.Presence != fence.Unseen, Deleting: seen.Deleting, Fence: string(seen.Mark), Ours: seen.Ours,
		Left: seen.Left, Count: seen.Count, Drained: seen.Drained, Idle: seen.Idle,
	}
	if w.node != nil {
		is.Ready, is.BootID = string(readyOf(w.node)), w.node.Status.NodeInfo.BootID
	}
	if seen.Node != nil {
		is.ProviderID, is.UID, is.OutOfService = seen.Node.Spec.ProviderID, string(seen.Node.UID), fence.OutOfService(seen.Node)
	}
	return is
}
