package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/owners"
)

// counters count in the state which remediations have begun. They ask no controller.
type counters struct {
	*engine

	kinds   []requestKind
	begun   []Remediation
	known   map[string]bool // what was in progress when it was counted last
	atOnce  int
	blocked []Blocked
	// open are the indexes in blocked of what is not over, by check.
	open map[explain.Ref]int
}

func newCounters(s *engine, kinds []requestKind) *counters {
	return &counters{engine: s, kinds: kinds, begun: []Remediation{}, known: map[string]bool{}, open: map[explain.Ref]int{}}
}

// count counts what is in progress now.
func (t *counters) count(ctx context.Context) error {
	targets := map[explain.Ref]bool{}
	known := t.known
	t.known = map[string]bool{}
	requested := map[client.ObjectKey]bool{}
	for _, kind := range t.kinds {
		requests, err := t.requests(ctx, kind)
		if err != nil {
			return err
		}
		for i := range requests {
			req := &requests[i]
			requested[client.ObjectKeyFromObject(req)] = true
			target := targetOf(req)
			targets[target] = true
			t.inProgress(known, string(req.UID), Remediation{Target: target, Request: &explain.Ref{Kind: kind.Kind, Namespace: req.Namespace, Name: req.Name}})
		}
	}
	machines := &clusterv1.MachineList{}
	if err := t.client.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list machines: %w", err)
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		if !owners.Asked(m) || requested[client.ObjectKeyFromObject(m)] { // a power cycle that asked the owner is one remediation with it
			continue
		}
		target := explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}
		targets[target] = true
		t.inProgress(known, "owner of "+string(m.UID), Remediation{Target: target})
	}
	t.atOnce = max(t.atOnce, len(targets))
	return t.countBlocked(ctx)
}

// inProgress notes a remediation, which begins if it was not known before.
func (t *counters) inProgress(before map[string]bool, key string, r Remediation) {
	t.known[key] = true
	if before[key] {
		return
	}
	r.At = t.clock.Now()
	r.After = r.At.Sub(t.eventLog.begin).String()
	t.begun = append(t.begun, r)
}

// before takes what is in progress for what has begun before the simulation.
func (t *counters) before(ctx context.Context) error {
	if err := t.count(ctx); err != nil {
		return err
	}
	t.begun, t.blocked, t.open = []Remediation{}, nil, map[explain.Ref]int{}
	return nil
}

// targetOf is what a request is about.
func targetOf(req *metav1.PartialObjectMetadata) explain.Ref {
	if node, is := req.Annotations[nhcv1.NodeNameAnnotation]; is {
		return explain.Ref{Kind: "Node", Name: node}
	}
	return explain.Ref{Kind: "Machine", Namespace: req.Namespace, Name: req.Name}
}

// countBlocked notes which checks allow no remediation.
func (t *counters) countBlocked(ctx context.Context) error {
	checks := &clusterv1.MachineHealthCheckList{}
	if err := t.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	for i := range checks.Items {
		c := &checks.Items[i]
		t.note(explain.Ref{Kind: "MachineHealthCheck", Namespace: c.Namespace, Name: c.Name},
			meta.FindStatusCondition(c.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition))
	}
	nodeChecks := &nhcv1.NodeHealthCheckList{}
	if err := t.client.List(ctx, nodeChecks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	for i := range nodeChecks.Items {
		c := &nodeChecks.Items[i]
		t.note(explain.Ref{Kind: "NodeHealthCheck", Name: c.Name}, meta.FindStatusCondition(c.Status.Conditions, nhcv1.RemediationAllowedCondition))
	}
	return nil
}

// note notes whether a check allows remediation.
func (t *counters) note(check explain.Ref, allowed *metav1.Condition) {
	after := t.clock.Now().Sub(t.eventLog.begin).String()
	reason := ""
	if allowed != nil && allowed.Status == metav1.ConditionFalse {
		reason = allowed.Reason
	}
	at, open := t.open[check]
	if open && t.blocked[at].Reason != reason {
		t.blocked[at].Until = after
		delete(t.open, check)
		open = false
	}
	if reason != "" && !open {
		t.open[check] = len(t.blocked)
		t.blocked = append(t.blocked, Blocked{Check: check, Reason: reason, From: after})
	}
}

// summary is the sum of what has happened.
func (t *counters) summary(ctx context.Context, horizon time.Duration) (Summary, error) {
	s := Summary{Begun: len(t.begun), AtOnce: t.atOnce, Blocked: t.blocked, Horizon: horizon.String()}
	checks, err := t.explanations(ctx, func(explain.Ref) bool { return true })
	if err != nil {
		return s, err
	}
	for i := range checks {
		for j := range checks[i].Targets {
			is := Unhealthy{checks[i].Targets[j].Ref, checks[i].Targets[j].Verdict}
			if target := &checks[i].Targets[j]; target.Left == "" && target.State != health.Healthy && !slices.Contains(s.Unhealthy, is) {
				s.Unhealthy = append(s.Unhealthy, is)
			}
		}
	}
	slices.SortFunc(s.Unhealthy, func(a, b Unhealthy) int { return cmp.Compare(a.String(), b.String()) })
	return s, nil
}
