package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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
	step := w.next()
	var trouble []string
	last := ""
	if len(w.unasked) > 0 && w.depends(step) {
		step, last = w.recall(step)
		trouble = unaskedTexts(w.unasked, last != "")
	}
	is := r.progress(w, step)
	is.ReadErrors = trouble
	is.Reason, is.Acts, is.Text = string(step.Reason), step.Do != powercycle.Wait, cmp.Or(last, w.messageOf(step))
	is.Evidence, is.Blockers = w.evidence(), w.blockers(step)
	is.Next = w.explainNext(step, is.Blockers)
	return is
}

// messageOf is the message of step once it is taken.
func (w *observed) messageOf(step powercycle.Step) string {
	after := *w
	if w.idle == "" {
		after.remember(step)
	}
	return after.cycle().Message("", step)
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
	is.ReadErrors = unaskedTexts([]error{err}, is.Text != "")
	return is
}

// unaskedTexts say what could not be read for a decision, and what is shown instead: the last condition, if there is one, or the decision without the answer.
func unaskedTexts(errs []error, last bool) []string {
	without := "; this is what a reconcile decides that cannot read it either"
	if last {
		without = "; the last condition of the remediation is repeated"
	}
	var texts []string
	for _, err := range errs {
		if text := explain.Plain(err) + without; !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
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

// cycle is the power cycle as its messages tell it.
func (w *observed) cycle() *powercycle.Cycle {
	return &powercycle.Cycle{
		Facts: w.facts, Policy: w.policy, After: w.record.Memory, Pause: w.pause(), Ahead: w.ahead,
		Mismatch: w.found.Why, Unmanaged: w.power.Unmanaged, Doubt: w.power.Doubt, Trouble: w.power.Trouble, KeptOffBy: w.power.KeptOffBy,
		Unseen: w.unseenBecause, IdleVolumes: strings.Join(w.seen.Idle, ", "), Left: w.seen.Left, LeftCount: w.seen.Count,
	}
}
