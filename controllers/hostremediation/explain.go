package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

// ErrUnasked is to be in the errors of the Clusters and Nodes of a Reconciler that looks from where a workload cluster cannot be asked at
// all, such as a record of the management cluster alone. That says nothing of the cluster: the controller may see it.
var ErrUnasked = errors.New("the workload cluster cannot be asked from here")

// Explain returns what a reconcile of the remediation called key sees at now, and the step that it takes first, and does nothing: it writes nothing, watches
// nothing and claims nothing. It returns nil if there is no such remediation, or if it is none of ours. Of r it needs the Kind, Installed, Client and
// Live to read from, Hosts, Clusters and Nodes (see Sighted), and the settings.
//
// Where the node or the queue cannot be asked for (ErrUnasked), and the step depends on what the answer would be, what the remediation last
// said of itself is repeated, as long as what can be seen agrees with it; else the step is that of a reconcile that cannot ask either. Where a reconcile
// would fail, because the host or the machine cannot be read, what was last said is all there is. Both are said in Trouble.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Remediation, error) {
	w, err := r.look(ctx, key, now)
	switch {
	case w == nil || err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return r.unread(w, err), nil
	}
	return r.seen(w), nil
}

// Observe returns what a reconcile of the remediation called key decides on at now, with what it is explained by: facts, policy and names. The step
// is Decide's. It does nothing else, as Explain, and returns nil if there is no such remediation, or if it is none of ours.
func (r *Reconciler) Observe(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.PowerCycle, error) {
	w, err := r.look(ctx, key, now)
	if w == nil || err != nil {
		return nil, err
	}
	return w.about(), nil
}

// look observes the remediation called key for those who do not act on it. It returns nil if there is none that is ours; with an error, what was read
// so far.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey, now time.Time) (*observed, error) {
	if r.Kind.New == nil {
		return nil, fmt.Errorf("read %s %s: of %s no more is known than metadata", r.Kind.Kind, key, r.Kind.GroupVersion())
	}
	w := &observed{now: now, rem: r.Kind.New(), looks: true}
	if found, err := r.read(ctx, key, w); err != nil || !found {
		return nil, err
	}
	ours, err := r.survey(ctx, w)
	if err == nil && !ours {
		return nil, nil
	}
	return w, err
}

// seen is what is to be said of what was observed.
func (r *Reconciler) seen(w *observed) *explain.Remediation {
	step := w.about().Decide()
	var trouble []string
	said := ""
	if len(w.unasked) > 0 && w.depends(step) {
		step, said = w.recall(step)
		trouble = troubles(w.unasked, said)
	}
	is := r.standing(w, step)
	is.Trouble = trouble
	is.Reason, is.Acts, is.Text = string(step.Reason), step.Do != powercycle.Wait, cmp.Or(said, w.foretold(step))
	about := w.about()
	is.Evidence, is.Blockers = about.Evidence(), about.Blockers(step)
	is.Next = about.Next(step, is.Blockers)
	return is
}

// foretold is what is said of step once it is taken.
func (w *observed) foretold(step powercycle.Step) string {
	after := *w
	if !w.ownerless {
		after.remember(step)
	}
	return after.about().Message("", step)
}

// standing is how the remediation stands before the step is taken.
func (r *Reconciler) standing(w *observed, step powercycle.Step) *explain.Remediation {
	before := *w
	state := cmp.Or(w.facts.State, powercycle.Pending)
	if !w.ownerless {
		before.record.Memory = powercycle.After(w.facts, powercycle.Step{Do: powercycle.Wait, Next: state}, w.now)
	}
	m := before.record.Memory
	is := r.called(w)
	is.State, is.Attempt, is.Attempts = string(state), m.Attempt, w.policy.Attempts()
	is.Phase, is.Began, is.Since = string(reportOf(&before, step, "").Phase), m.Began, w.facts.Since
	if begun := w.facts.State != ""; begun || step.Do == powercycle.Wait {
		is.Since, is.Deadline = m.Since, deadlineOf(m, w.policy)
	}
	return is
}

// called is the remediation, and what it is about, by their names.
func (r *Reconciler) called(w *observed) *explain.Remediation {
	namespace := w.rem.GetNamespace()
	is := &explain.Remediation{
		Ref:  explain.Ref{Kind: r.Kind.Kind, Namespace: namespace, Name: w.rem.GetName()},
		Node: w.nodeName(), Host: w.record.Host,
	}
	if w.found.Host != nil {
		is.Host = w.found.Host.Name
	}
	if owner := ownerOf(w.rem); owner != nil {
		is.Machine = explain.Ref{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
	}
	return is
}

// unread is what is known of a remediation over which no reconcile can be made, for err.
func (r *Reconciler) unread(w *observed, err error) *explain.Remediation {
	is, m := r.called(w), w.record.Memory
	is.State, is.Attempt, is.Attempts, is.Began, is.Since = string(cmp.Or(m.State, powercycle.Pending)), m.Attempt, w.policy.Attempts(), m.Began, m.Since
	is.Phase, is.Deadline = string(phases[m.State]), deadlineOf(m, w.policy)
	if c := conditions.Get(w.rem, nhcv1.ProcessingCondition); c != nil {
		is.Reason, is.Text = c.Reason, c.Message
	}
	is.Trouble = troubles([]error{err}, is.Text)
	return is
}

// troubles says of errors what was done without the answer.
func troubles(errs []error, said string) []string {
	without := "; this is what a pass decides that cannot ask either"
	if said != "" {
		without = "; what the remediation last said is repeated"
	}
	var texts []string
	for _, err := range errs {
		if text := explain.Plain(err) + without; !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// possible are the facts that may be true of what could not be asked.
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
	blind := w.facts.Node == powercycle.NodeUnseen && errors.Is(errors.Join(w.unasked...), ErrUnasked)
	if blind {
		vary(func(f *powercycle.Facts) { f.Healthy, f.Unhealthy = true, false })
	}
	if blind && needsNode(w) {
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

// depends reports whether another step would be taken if what could not be asked was otherwise.
func (w *observed) depends(step powercycle.Step) bool {
	for _, f := range w.possible() {
		if s := powercycle.Next(f, w.policy, w.now); s.Do != step.Do || s.Next != step.Next || s.Reason != step.Reason {
			return true
		}
	}
	return false
}

// recall assumes of what could not be asked what the remediation has found out by what it last said, and returns the wait that it is in and
// the sentence. It returns step if nothing was said that can be true still.
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
