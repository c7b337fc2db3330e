package nodehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// lookAt is what is to be said of t, about which s is done.
func lookAt(w *observed, sum plan, t *target, s step) explain.Target {
	is := explain.Target{
		Ref: explain.Ref{Kind: "Node", Name: t.name}, Node: t.name,
		State: t.verdict.State, Verdict: t.verdict.State.String(), Findings: explain.Findings(t.verdict, w.now),
		Begins: s.start >= 0, Underway: underway(w, t), InFlight: t.inFlight(), UnderwaySince: since(t),
	}
	if m := t.machine.obj; m != nil {
		is.Machine = &explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}
	}
	switch {
	case t.node == nil: // it is not judged any more
		is.State, is.Verdict = health.Unknown, health.Unknown.String()
		is.Findings = []explain.Finding{{Reason: health.NodeDeleted, Text: health.NodeDeletedDetail(t.name), Counts: true}}
	case t.terminating:
		is.Left = terminatingText
	}
	if t.counts(w.now) {
		is.Class = classOf(t)
	}
	is.Would = would(w, t, s)
	is.Blockers = holdsOf(w, sum, t)
	is.Answer = answer(w, t, s)
	return is
}

// underway are the requests for t: those of the check, and then others'.
func underway(w *observed, t *target) []explain.Ref {
	var refs []explain.Ref
	add := func(kind, namespace, name string) {
		if ref := (explain.Ref{Kind: kind, Namespace: namespace, Name: name}); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for _, f := range t.requests {
		add(f.obj.GetKind(), f.obj.GetNamespace(), f.obj.GetName())
	}
	for i := range t.unseen {
		add(t.unseen[i].Resource.Kind, t.unseen[i].Resource.Namespace, t.unseen[i].Resource.Name)
	}
	for _, others := range [][]*unstructured.Unstructured{t.leftovers, w.requests.byNode[t.name]} {
		for _, obj := range others {
			add(obj.GetKind(), obj.GetNamespace(), obj.GetName())
		}
	}
	return refs
}

// since is since when the check remediates t; zero if it does not.
func since(t *target) time.Time {
	var first time.Time
	for _, f := range t.requests {
		first = health.Earliest(first, f.started())
	}
	for i := range t.unseen {
		first = health.Earliest(first, t.unseen[i].Started.Time)
	}
	return first
}

// would says what is done about t next, once nothing holds it up and nothing is waited for.
func would(w *observed, t *target, s step) string {
	switch {
	case t.node == nil:
		return "does nothing: the node is gone"
	case len(w.remedies) == 0:
		return "does nothing: the check names no remedy"
	case !t.selected && !t.remediated():
		return "does nothing: the check does not select the node any more"
	case t.verdict.State == health.Healthy, len(s.end) > 0: // its next failure begins at the first step
		return "makes a " + w.remedies[0].String()
	}
	_, next := w.climb(t)
	rung := next.Rung
	switch {
	case next.Do == escalation.Exhausted:
		return "does nothing more: no remedy is left to try"
	case next.Do != escalation.Start && next.Reason != escalation.AwaitingDeletion:
		rung = w.passing(t, rung+1) // that one is waited for
	}
	if rung >= len(w.remedies) || len(w.remedies) > 1 && w.passed(t, rung) {
		return "does nothing more: no remedy follows " + w.remedies[len(w.remedies)-1].String()
	}
	return "makes a " + w.remedies[rung].String()
}

// holdsOf is all that keeps a request for t from being made now, in the order in which it is asked. (Of a node that is not due yet: notYet.)
func holdsOf(w *observed, sum plan, t *target) []explain.Blocker {
	b := beginning{observed: w, sum: sum, t: t}
	switch {
	case t.node == nil, len(t.unseen) > 0, t.verdict.State != health.Unhealthy:
		return nil
	case !t.selected && !t.remediated(): // whatever else there is does not matter
		return distinct(b.unselected())
	}
	var all []*skip
	if !t.begun() {
		all = b.allOf(b.toBegin())
	}
	if len(w.rungs) == 0 {
		return distinct(all)
	}
	_, next := w.climb(t)
	all = append(all, only(t.stillDeleted(next))...)
	switch next.Do {
	case escalation.Start:
		all = append(all, b.allOf(b.toRemediate())...)
		b.rung = next.Rung
		all = append(all, b.allOf(b.toStart())...)
	case escalation.Exhausted:
		all = append(all, w.exhausted(t))
	case escalation.Wait, escalation.GiveUp:
	}
	return distinct(all)
}

// distinct are the holds of skips, each once: some are asked for more than once.
func distinct(skips []*skip) []explain.Blocker {
	var holds []explain.Blocker
	for _, s := range skips {
		if !slices.Contains(holds, s.Blocker) {
			holds = append(holds, s.Blocker)
		}
	}
	return holds
}

// answer is what the ladder and the remediators say of t.
func answer(w *observed, t *target, s step) string {
	var says []string
	add := func(text string) {
		if text = strings.TrimSuffix(text, "."); text != "" {
			says = append(says, text)
		}
	}
	add(s.why)
	if len(t.requests)+len(t.gone) > 0 && len(s.end) == 0 {
		add(s.climb.Why)
	}
	add(fateOfRequests(w, t, s))
	if t.missing && !t.remediated() {
		add("A remediation took the node away, and no new one has come in its place")
	}
	for _, f := range t.requests {
		for _, text := range f.saying() {
			add(text)
		}
	}
	return strings.Join(says, ". ")
}

// fateOfRequests says what becomes of the requests for t, and why; nothing while they go on.
func fateOfRequests(w *observed, t *target, s step) string {
	switch {
	case len(t.unseen) > 0:
		return "What has become of its requests cannot be read"
	case len(s.end) > 0 && t.node == nil:
		return "The node is gone, its requests are deleted"
	case len(s.end) > 0 && t.verdict.State == health.Unhealthy:
		return "The remediation has succeeded, and the node has become bad once more: its request is deleted, and it begins anew"
	case len(s.end) > 0:
		return "The node is well, its requests are deleted"
	case s.delayed && waitOf(w) < 0:
		return "The node is well, its requests are kept until a person confirms that"
	case s.delayed:
		return "The node is well, its requests are kept for the healthy delay of " + waitOf(w).String()
	}
	return ""
}

// waitOf is the healthy delay; below zero a person ends it.
func waitOf(w *observed) time.Duration { return ptr.Deref(w.check.Spec.HealthyDelay, noDelay).Duration }

// saying is what a request, and its remediator, say.
func (f *found) saying() []string {
	name := f.obj.GetKind() + " " + client.ObjectKeyFromObject(f.obj).String()
	var says []string
	if f.leaving() {
		says = append(says, name+" is being deleted")
	}
	for _, kind := range []string{nhcv1.ProcessingCondition, nhcv1.SucceededCondition, nhcv1.NodeDeletionExpectedCondition} {
		fields := f.said(kind)
		if fields == nil {
			continue
		}
		text := fmt.Sprintf("%s says %s=%v", name, kind, fields["status"])
		if reason, _ := fields["reason"].(string); reason != "" {
			text += " (" + reason + ")"
		}
		if message, _ := fields["message"].(string); message != "" {
			text += ": " + message
		}
		says = append(says, text)
	}
	return says
}
