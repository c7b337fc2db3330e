package nodehealthcheck

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/policy"
)

// placeless returns the rule for a blocker by RemediationPolicies: no remediation begins without a place, and no next step starts while the
// policies let nothing begin.
func placeless(reason, example string, ends ...string) Rule {
	words := func(c *Case) rule.Blocker { return place.Of(reason, c.f.Placeless[place.NodeID(c.Name)]) }
	return Rule{
		Reason: Reason(reason), Event: skipped, asked: ofStep, Message: skippedOn + "{" + example + "}",
		EndsWhen: cmp.Or(append(ends, "the policies allow it")...),
		When:     func(c *Case) bool { return words(c).Reason != "" },
		Object:   func(c *Case) rule.Ref { return words(c).Object },
		Why:      func(c *Case) string { return words(c).Text },
		Until:    func(c *Case) time.Time { return words(c).Until },
	}
}

func placesOf(check string) policy.Check {
	return policy.Check{Kind: policy.NodeHealthCheck, NamespacedName: types.NamespacedName{Name: check}}
}

// decide makes the plan, reports the nodes to the ledger of RemediationPolicies, and takes a place for each remediation that begins. If a
// node gets no place it decides again, because another control-plane node may go first then.
func (r *Reconciler) decide(ctx context.Context, state *observed) Plan {
	plan, active := Decide(state.facts), r.Ledger.Active(ctx)
	if active {
		r.reportPlaces(ctx, state, &plan)
	}
	check, asked := placesOf(state.check.Name), map[types.UID]bool{}
	state.facts.Placeless = map[types.UID][]rule.Blocker{}
	for {
		var starts []types.UID
		blocked := map[types.UID][]rule.Blocker{}
		for _, decision := range plan.Decisions {
			id := place.NodeID(decision.Name)
			if !decision.starts() || asked[id] {
				continue
			}
			starts, asked[id] = append(starts, id), true
			if signals := place.WithoutLedger(decision.Object, state.facts.Now); !active && len(signals) > 0 {
				blocked[id] = signals
			}
		}
		if active {
			blocked = r.Ledger.Ask(check, starts)
		}
		if len(blocked) == 0 {
			return plan
		}
		maps.Copy(state.facts.Placeless, blocked)
		plan = Decide(state.facts)
	}
}

// reportPlaces reports the nodes that are selected or being remediated to the ledger.
func (r *Reconciler) reportPlaces(ctx context.Context, state *observed, plan *Plan) {
	last, places := r.memory.of(state.check.Name), make(map[string]*place.Target, len(plan.Decisions))
	for _, d := range plan.Decisions {
		if d.Selected || d.InFlight {
			places[d.Name] = r.placeOf(ctx, state, d, last.places[d.Name])
		}
	}
	last.places = places
	r.Ledger.Report(placesOf(state.check.Name), slices.Collect(maps.Values(places)))
}

// placeOf returns what policies need to know about a node, where last was reported before. A node that is gone stays in its groups.
func (r *Reconciler) placeOf(ctx context.Context, state *observed, d *Decision, last *place.Target) *place.Target {
	seen, cluster := &place.Target{}, (*clusterv1.Cluster)(nil)
	switch {
	case d.exists():
		seen, cluster = r.placeOfMachine(ctx, d.Object)
	case last != nil:
		*seen = *last
	}
	seen.UID, seen.Name = place.NodeID(d.Name), d.Name
	seen.Kind, seen.Check, seen.CheckLabels = policy.NodeHealthCheck, state.check.Name, state.check.Labels
	seen.Unknown, seen.InFlight = d.exists() && d.Verdict.State == health.Unknown, d.InFlight
	seen.Unavailable = d.InFlight || d.Verdict.State == health.Unhealthy || d.Verdict.State == health.Pending
	seen.Due, seen.Refused = d.Verdict.OverdueSince(state.facts.Now), state.facts.Memory.Refusals[d.Name].Last
	seen.On(d.Object, cluster, "", nil)
	if last != nil && !seen.Unavailable && reflect.DeepEqual(last, seen) {
		return last // the same pointer shows the ledger that nothing has changed
	}
	return seen
}

// placeOfMachine returns a target made from the node's Machine in the manager's cache, and the Cluster; without a Machine from the node.
func (r *Reconciler) placeOfMachine(ctx context.Context, node *corev1.Node) (*place.Target, *clusterv1.Cluster) {
	seen, machine, cluster := &place.Target{Labels: node.Labels}, &clusterv1.Machine{}, &clusterv1.Cluster{}
	key := client.ObjectKey{
		Namespace: node.Annotations[clusterv1.ClusterNamespaceAnnotation], Name: node.Annotations[clusterv1.MachineAnnotation],
	}
	if key.Name == "" || r.Cached == nil || r.Cached.Get(ctx, key, machine, client.UnsafeDisableDeepCopy) != nil ||
		machine.Status.NodeRef.Name != node.Name || !health.IsNodeOf(machine, node) {
		return seen, nil
	}
	seen, key.Name = place.OfMachine(machine), machine.Spec.ClusterName
	if r.Cached.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy) == nil {
		seen.ClusterLabels = cluster.Labels
	}
	return seen, cluster
}

// settlePlaces releases the places of remediations that did not begin.
func (r *Reconciler) settlePlaces(state *observed, outcomes []outcome) {
	begun, lost := map[types.UID]bool{}, map[types.UID]bool{}
	for i := range outcomes {
		o, id := &outcomes[i], place.NodeID(outcomes[i].Name)
		begun[id], lost[id] = o.made != nil || o.again, o.asked && begin.Lost(o.refused)
	}
	r.Ledger.Settle(placesOf(state.check.Name), begun, lost)
}
