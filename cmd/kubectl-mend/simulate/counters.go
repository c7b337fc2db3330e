package simulate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
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

// newCounters takes what is in progress for what has begun before the simulation.
func newCounters(s *engine, kinds []requestKind) *counters {
	t := &counters{engine: s, kinds: kinds, open: map[explain.Ref]int{}}
	t.count()
	t.begun, t.blocked, t.open = []Remediation{}, nil, map[explain.Ref]int{}
	return t
}

// count counts what is in progress now.
func (t *counters) count() {
	targets, requested := map[explain.Ref]bool{}, map[client.ObjectKey]bool{}
	before := t.known
	t.known = map[string]bool{}
	add := func(key string, r Remediation) {
		targets[r.Target], t.known[key] = true, true
		if !before[key] {
			r.At, r.After = t.clock.Now(), t.eventLog.after()
			t.begun = append(t.begun, r)
		}
	}
	for _, kind := range t.kinds {
		for _, req := range t.snapshot.Objects(kind.GroupVersionKind, "") {
			requested[client.ObjectKeyFromObject(req)] = true
			ref := refOf(kind.Kind, req)
			add(string(req.GetUID()), Remediation{Target: targetOf(req), Request: &ref})
		}
	}
	for _, m := range snapshot.All[clusterv1.Machine](t.snapshot, "") {
		if owners.Asked(m) && !requested[client.ObjectKeyFromObject(m)] { // a power cycle that asked the owner is one remediation with it
			add("owner of "+string(m.UID), Remediation{Target: refOf("Machine", m)})
		}
	}
	t.atOnce = max(t.atOnce, len(targets))
	t.countBlocked()
}

// targetOf is what a request is about.
func targetOf(req client.Object) explain.Ref {
	if node, is := req.GetAnnotations()[nhcv1.NodeNameAnnotation]; is {
		return explain.Ref{Kind: "Node", Name: node}
	}
	return refOf("Machine", req)
}

// countBlocked notes which checks allow no remediation.
func (t *counters) countBlocked() {
	for _, c := range snapshot.All[clusterv1.MachineHealthCheck](t.snapshot, "") {
		t.note(refOf("MachineHealthCheck", c), meta.FindStatusCondition(c.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition))
	}
	for _, c := range snapshot.All[nhcv1.NodeHealthCheck](t.snapshot, "") {
		t.note(refOf("NodeHealthCheck", c), meta.FindStatusCondition(c.Status.Conditions, nhcv1.RemediationAllowedCondition))
	}
}

// note notes whether a check allows remediation.
func (t *counters) note(check explain.Ref, allowed *metav1.Condition) {
	reason := ""
	if allowed != nil && allowed.Status == metav1.ConditionFalse {
		reason = allowed.Reason
	}
	at, open := t.open[check]
	if open && t.blocked[at].Reason != reason {
		t.blocked[at].Until = t.eventLog.after()
		delete(t.open, check)
		open = false
	}
	if reason != "" && !open {
		t.open[check] = len(t.blocked)
		t.blocked = append(t.blocked, Blocked{Check: check, Reason: reason, From: t.eventLog.after()})
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
			target := &checks[i].Targets[j]
			is := Unhealthy{target.Ref, target.Verdict}
			if target.Skipped == "" && target.State != health.Healthy && !slices.Contains(s.Unhealthy, is) {
				s.Unhealthy = append(s.Unhealthy, is)
			}
		}
	}
	slices.SortFunc(s.Unhealthy, func(a, b Unhealthy) int { return cmp.Compare(a.String(), b.String()) })
	return s, nil
}
