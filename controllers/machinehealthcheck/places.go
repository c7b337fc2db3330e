package machinehealthcheck

import (
	"context"
	"maps"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/policy"
)

// placed are the labels that all targets of a check share, as last reported to the ledger. hosts says that labels of hosts were reported.
type placed struct {
	cluster, check map[string]string
	hosts          bool
}

func placesOf(check types.NamespacedName) policy.Check {
	return policy.Check{Kind: policy.MachineHealthCheck, NamespacedName: check}
}

// takePlaces reports the targets of state to the ledger of RemediationPolicies, and asks for a place for each remediation that would begin.
// It returns false if it must be called again after the hosts are read again. Without policies only the signals on nodes block.
func (r *Reconciler) takePlaces(ctx context.Context, state *observed, plan *Plan) bool {
	if !r.Ledger.Active(ctx) {
		state.Placeless = signalled(plan, state.Now)
		return true
	}
	state.Placeless = map[types.UID][]rule.Blocker{}
	key := placesOf(client.ObjectKeyFromObject(state.Check))
	now, before := placed{state.Cluster.Labels, state.Check.Labels, r.Ledger.OfHosts()}, state.before.placed
	same := maps.Equal(now.cluster, before.cluster) && maps.Equal(now.check, before.check) && now.hosts == before.hosts
	if same {
		now = before // keep the ledger's maps
	}
	if now.hosts && r.hostsAwaited(ctx, plan) {
		for _, decision := range plan.Open {
			state.Placeless[decision.Target.UID] = []rule.Blocker{place.Unread(time.Time{})}
		}
		state.lookAgainIn(time.Second)
		return true
	}
	state.placed = &now
	r.Ledger.Report(key, r.reported(state, plan, same))
	return r.askPlaces(key, state, plan)
}

// hostsAwaited starts to watch hosts, and reports whether hosts of the plan may be missing. A host that cannot be read has no labels: the
// policy then reports that the target is in no group.
func (r *Reconciler) hostsAwaited(ctx context.Context, plan *Plan) bool {
	onHost := func(decision *Decision) bool { return OnHost(decision.Target.Machine) }
	if !slices.ContainsFunc(plan.Decisions, onHost) {
		return false
	}
	ready, err := r.Hosts.Ready(ctx, hostKind)
	return !ready && err == nil
}

// signalled returns what others signal on the nodes of open targets, for when there are no policies.
func signalled(plan *Plan, now time.Time) map[types.UID][]rule.Blocker {
	blocked := map[types.UID][]rule.Blocker{}
	for _, decision := range plan.Open {
		if signals := place.WithoutLedger(decision.Target.Node, now); len(signals) > 0 {
			blocked[decision.Target.UID] = signals
		}
	}
	return blocked
}

// reported returns the targets of plan as policies see them. If the labels are the same, unchanged targets keep their pointers, by which
// the ledger recognizes them.
func (r *Reconciler) reported(state *observed, plan *Plan, same bool) []*place.Target {
	targets := make([]*place.Target, len(plan.Decisions))
	for i, decision := range plan.Decisions {
		target, host := decision.Target, &noHost
		if state.placed.hosts {
			host = r.hosts.of(target.Machine)
		}
		last, quiet := target.place, decision == target.quiet
		if target.place = nil; quiet && same && last != nil && last.Host == host.Name && maps.Equal(last.HostLabels, host.Labels) {
			targets[i], target.place = last, last
			continue
		}
		if targets[i] = placeOf(state, decision, host); quiet {
			target.place = targets[i]
		}
	}
	return targets
}

// askPlaces asks for a place for each remediation that would begin. It returns false without asking if places were given since the hosts
// were read: two checks may want the same host, and one of them has to read the hosts again.
func (r *Reconciler) askPlaces(key policy.Check, state *observed, plan *Plan) bool {
	var waiting []types.UID
	for _, decision := range plan.Open {
		if decision.Starts() {
			waiting = append(waiting, decision.Target.UID)
		}
	}
	if len(waiting) == 0 {
		return true
	}
	r.placing.Lock() // no other check may take places meanwhile
	defer r.placing.Unlock()
	if places, _ := r.Ledger.Given(key); state.Read.Spares && places != state.given {
		state.placed, state.Placeless = nil, nil
		return false
	}
	state.Placeless = r.Ledger.Ask(key, waiting)
	return true
}

// placeOf returns the target of decision as policies see it. In a check that kubemend only observes, only remediations in flight count.
func placeOf(state *observed, decision *Decision, host *bmov1alpha1.BareMetalHost) *place.Target {
	target := decision.Target
	reported := place.OfMachine(target.Machine)
	reported.Kind, reported.Check = policy.MachineHealthCheck, state.Check.Name
	reported.ClusterLabels, reported.CheckLabels = state.placed.cluster, state.placed.check
	reported.InFlight, reported.Observed = occupies(&state.Facts, decision), state.Mode != Active
	reported.Unknown = decision.Verdict.State == health.Unknown
	reported.Due, reported.ByHand = decision.Verdict.OverdueSince(state.Now), byHand(decision) != 0
	reported.Refused = refusedAt(&state.Facts, decision)
	if state.Mode == Active {
		sick := decision.Verdict.State == health.Unhealthy || decision.Verdict.State == health.Pending
		reported.Unavailable = sick || decision.InFlight
	}
	reported.On(target.Node, state.Cluster, host.Name, host.Labels)
	return reported
}

// ReadHosts notes all hosts once, without a watch. Hosts that cannot be read are as if they did not exist.
func (r *Reconciler) ReadHosts(ctx context.Context) {
	list := &bmov1alpha1.BareMetalHostList{}
	_ = r.Client.List(ctx, list)
	for i := range list.Items {
		r.hosts.note(&list.Items[i])
	}
}

// FailureDomain returns the failure domain of a machine and its node; ReadHosts must have run.
func (r *Reconciler) FailureDomain(machine *clusterv1.Machine, node *corev1.Node) string {
	seen, host := place.OfMachine(machine), r.hosts.of(machine)
	seen.On(node, nil, host.Name, host.Labels)
	return seen.FailureDomain
}

// settlePlaces releases the places of remediations that did not begin.
func (r *Reconciler) settlePlaces(state *observed, outcomes []outcome) {
	if state.placed == nil { // nothing was reported: places stay
		return
	}
	begun, lost := map[types.UID]bool{}, map[types.UID]bool{}
	for _, o := range outcomes {
		begun[o.Target.UID] = o.requested || o.again
		lost[o.Target.UID] = o.lost
	}
	r.Ledger.Settle(placesOf(client.ObjectKeyFromObject(state.Check)), begun, lost)
}
