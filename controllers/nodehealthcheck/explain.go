package nodehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Look is what a reconcile of the check called name would see and decide at now. It returns nil, nil if there is no such check. Nothing is written,
// told or measured, and later reconciles are not influenced. It must not be called during a reconcile of r over the same check.
//
// How long a condition counts across the turns between its bad statuses is remembered by the process that made the passes (see streaks), as is
// what it wrote and the caches do not show yet. A Look of a Reconciler that has made no reconcile takes each condition by its own last transition: a
// node whose condition turns from one bad status to another may be due later in it than in the manager, and never earlier.
//
// Stance is Acting; Paused for pause requests; and Nobody if the check is disabled, or r does not serve the kind. Whether kubemend serves it in
// a cluster, and whether it is there at all, the caller has to know.
func (r *Reconciler) Explain(ctx context.Context, name string, now time.Time) (*explain.Check, error) {
	w, soon, err := r.foresee(ctx, name, now)
	if err == nil && w != nil && len(soon.pending) > 0 { // that was the first time that it was asked for; a reconcile would wait a moment as well
		w, soon, err = r.foresee(ctx, name, now)
	}
	if w == nil || err != nil {
		return nil, err
	}
	c := &explain.Check{Ref: explain.Ref{Kind: "NodeHealthCheck", Name: name}, Mode: explain.Acting, Limit: limitText(&w.check.Spec)}
	if len(w.pending) > 0 {
		said(c, awaiting(w))
	} else {
		decided(c, w, soon)
	}
	if r.idle.Load() {
		c.Mode, c.Because = explain.Nobody, "another controller acts on NodeHealthChecks"
	}
	for _, trouble := range slices.Concat(w.trouble, soon.trouble) {
		if text := trouble.Error(); !slices.Contains(c.Trouble, text) {
			c.Trouble = append(c.Trouble, text)
		}
	}
	return c, nil
}

// decided fills in what a reconcile that sees w decides. soon is what it will see of the nodes that are not due yet.
func decided(c *explain.Check, w, soon *observed) {
	s := decide(w)
	soon.disabled = w.disabled
	later := s
	later.holds = soon.holds(s)
	c.Population, c.Limits, c.Remaining = s.population, s.limits, s.grant.Remaining
	said(c, statusAfter(w, s, nil))
	c.Next = sooner(w.next, explain.Step{At: s.storm.Recheck, Text: stormOver})
	steps := make(map[*target]step, len(w.targets))
	for _, step := range stepsOf(w, s) {
		steps[step.target] = step
	}
	for i := range w.targets {
		t := &w.targets[i]
		step, planned := steps[t]
		if !planned {
			step.start = -1
		}
		is := lookAt(w, s, t, step)
		if b := (beginning{observed: soon, sum: later, t: &soon.targets[i]}); t.verdict.State == health.Pending {
			is.Blockers, is.Would = notYet(t, b), would(soon, b.t, step)
		}
		is.Next = nextOf(w, t, step, &is)
		c.Next = sooner(c.Next, explain.Step{At: is.Next.At, Text: is.Ref.String() + ": " + is.Next.Text})
		c.Targets = append(c.Targets, is)
	}
}

// said fills in what the check says after the reconcile.
func said(c *explain.Check, next *nhcv1.NodeHealthCheck) {
	c.Conditions = next.Status.Conditions
	if allowed := conditionOf(next, nhcv1.RemediationAllowedCondition); allowed != nil && allowed.Status == metav1.ConditionFalse {
		c.Reason, c.Text = allowed.Reason, allowed.Message
	}
	switch phase, why := phaseOf(next, false); phase {
	case nhcv1.PhaseDisabled:
		c.Mode, c.Because = explain.Nobody, why
	case nhcv1.PhasePaused:
		c.Mode, c.Because = explain.Paused, why
	case nhcv1.PhaseEnabled, nhcv1.PhaseRemediating:
	}
}

// WhyNotSelected says why check does not select node: which requirements of its selector fail on which of the node's labels. It is empty if it
// selects it. An empty selector selects all nodes.
func WhyNotSelected(check *nhcv1.NodeHealthCheck, node *corev1.Node) string {
	if _, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector); err != nil {
		return invalidSelector(err)
	}
	return explain.Unmatched(check.Spec.Selector, node.Labels)
}

func invalidSelector(err error) string { return fmt.Sprintf("spec.selector is invalid: %v", err) }
