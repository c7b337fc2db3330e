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

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// ErrUnasked is in the errors of Clusters and Nodes where a workload cluster cannot be asked at all, such as in a record of the management cluster alone. That
// is no fact about the cluster: the controller may reach it.
var ErrUnasked = errors.New("the workload cluster cannot be asked from here")

// Explain returns what a reconcile of the remediation called key observes at now, and the step that it takes first. It writes nothing and watches
// nothing. It returns nil if there is no such remediation, or if kubemend does not act on it. Of r it needs Kind, Installed, Client and Live to read
// from, Hosts, Clusters, Nodes, and the settings.
//
// Where the node or the queue cannot be read (ErrUnasked), Explain repeats the remediation's last condition; where a reconcile would
// fail, because the host or the machine cannot be read, that is all there is. Trouble has both.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Remediation, error) {
	if r.Kind.New == nil {
		return nil, fmt.Errorf("read %s %s: only the metadata of %s is known", r.Kind.Kind, key, r.Kind.GroupVersion())
	}
	w := &observed{now: now, rem: r.Kind.New(), explains: true}
	if found, err := r.read(ctx, key, w); err != nil || !found {
		return nil, err
	}
	acts, err := r.survey(ctx, w)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return r.unread(w, err), nil
	case !acts:
		return nil, nil
	}
	return r.explain(w), nil
}

// explain explains what was observed: the progress before the step is taken, and the message once it is.
func (r *Reconciler) explain(w *observed) *explain.Remediation {
	result, step, last := r.names(w), w.next(), ""
	if len(w.unasked) > 0 {
		if cond := conditions.Get(w.rem, nhcv1.ProcessingCondition); cond != nil && step.Do == powercycle.Wait {
			last, step.Reason, step.Detail = cond.Message, powercycle.Reason(cond.Reason), ""
		}
		if step.Reason == powercycle.WorkloadMovingReason { // the node is fenced then
			w.facts.Node, w.facts.Fenced, w.facts.FencedByUs = powercycle.NodePresent, true, true
		}
		result.ReadErrors = unaskedTexts(w.unasked, last != "")
	}
	before, after, state := *w, *w, cmp.Or(w.facts.State, powercycle.Pending)
	if w.idle == "" {
		before.record.Memory = powercycle.After(w.facts, powercycle.Step{Do: powercycle.Wait, Next: state}, w.now)
		after.remember(step)
	}
	memory := before.record.Memory
	result.State, result.Attempt, result.Attempts, result.AttemptStarted = string(state), memory.Attempt, w.policy.Attempts(), cliv1.Moment(memory.Began)
	result.RemediationPhase, result.StateSince = string(reportOf(&before, step, "").Phase), cliv1.Moment(w.facts.Since)
	if w.facts.State != "" || step.Do == powercycle.Wait {
		result.StateSince, result.Deadline = cliv1.Moment(memory.Since), cliv1.Moment(deadlineOf(memory, w.policy))
	}
	result.Reason, result.Acts, result.Message = string(step.Reason), step.Do != powercycle.Wait, cmp.Or(last, after.cycle().Message("", step))
	result.Evidence, result.Blockers = w.evidence(), w.blockers(step)
	if last != "" && len(result.Blockers) > 1 {
		result.Blockers = result.Blockers[:1] // what comes after it is not known
	}
	result.Next = w.explainNext(step, result.Blockers)
	return result
}

// names are the names of the remediation, its host, node and machine.
func (r *Reconciler) names(w *observed) *explain.Remediation {
	namespace := w.rem.GetNamespace()
	result := &explain.Remediation{HostRemediation: cliv1.HostRemediation{
		Reference: explain.Ref{Kind: r.Kind.Kind, Namespace: namespace, Name: w.rem.GetName()},
		Node:      w.nodeName(), Host: w.record.Host,
	}, Conditions: w.rem.GetConditions()}
	if by, known := explain.AttributionOf(w.rem, mendv1.RequestedAnnotation); known {
		result.Requested = by.Text()
	}
	if w.found.Host != nil {
		result.Host = w.found.Host.Name
	}
	if owner := remediation.OwnerOf(w.rem); owner != nil {
		result.Machine = &explain.Ref{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
	}
	return result
}

// unread is what is known of a remediation that cannot be reconciled, for err.
func (r *Reconciler) unread(w *observed, err error) *explain.Remediation {
	result, memory := r.names(w), w.record.Memory
	result.State, result.StateSince = string(cmp.Or(memory.State, powercycle.Pending)), cliv1.Moment(memory.Since)
	result.Attempt, result.Attempts, result.AttemptStarted = memory.Attempt, w.policy.Attempts(), cliv1.Moment(memory.Began)
	result.RemediationPhase, result.Deadline = string(phases[memory.State]), cliv1.Moment(deadlineOf(memory, w.policy))
	if cond := conditions.Get(w.rem, nhcv1.ProcessingCondition); cond != nil {
		result.Reason, result.Message = cond.Reason, cond.Message
	}
	result.ReadErrors = unaskedTexts([]error{err}, result.Message != "")
	return result
}

// unaskedTexts say what could not be read for a decision, and what is shown instead: the last condition, if there is one, or the decision without the answer.
func unaskedTexts(errs []error, last bool) []string {
	without := "; this is what a reconcile decides that cannot read it either"
	if last {
		without = "; the last condition of the remediation is repeated"
	}
	var texts []string
	for _, err := range errs {
		if text := workload.Plain(err) + without; !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// cycle is the power cycle as its messages tell it.
func (w *observed) cycle() *powercycle.Cycle {
	return &powercycle.Cycle{
		Facts: w.facts, Policy: w.policy, After: w.record.Memory, Pause: w.pause(), Ahead: w.ahead,
		Mismatch: w.found.Why, Undoers: w.undoers,
		Unseen: w.unseenBecause, Twin: w.twin, IdleVolumes: strings.Join(w.seen.Idle, ", "), Left: w.seen.Left, LeftCount: w.seen.Count,
	}
}
