package machinehealthcheck

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/baremetal/spare"
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
	if now.hosts && r.hostLabels.awaited(ctx, r.Hosts, plan) {
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
		target, labels := decision.Target, (*hostLabels)(nil)
		if state.placed.hosts && OnHost(target.Machine) {
			labels = r.hostLabels.of(target.Machine)
		}
		quiet := decision == target.quiet
		if !quiet || !same || target.place == nil || target.hostLabels != labels {
			target.place = placeOf(state, decision, state.placed, labels)
		}
		targets[i], target.hostLabels = target.place, labels
		if !quiet {
			target.place = nil
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
func placeOf(state *observed, decision *Decision, labels *placed, host *hostLabels) *place.Target {
	target := decision.Target
	reported := place.OfMachine(target.Machine)
	reported.Kind, reported.Check = policy.MachineHealthCheck, state.Check.Name
	reported.ClusterLabels, reported.CheckLabels = labels.cluster, labels.check
	reported.InFlight, reported.Observed = occupies(&state.Facts, decision), state.Mode != Active
	reported.Unknown = decision.Verdict.State == health.Unknown
	reported.Due, reported.ByHand = decision.Verdict.OverdueSince(state.Now), byHand(decision) != 0
	reported.Refused = refusedAt(&state.Facts, decision)
	if state.Mode == Active {
		sick := decision.Verdict.State == health.Unhealthy || decision.Verdict.State == health.Pending
		reported.Unavailable = sick || decision.InFlight
	}
	if host == nil {
		host = &hostLabels{}
	}
	reported.On(target.Node, state.Cluster, host.name, host.labels)
	return reported
}

// checksOf returns the checks of a namespace, or of all namespaces if it is empty.
func (r *Reconciler) checksOf(ctx context.Context, namespace string) []reconcile.Request {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	checks := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		checks[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return checks
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

type hostQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// hostLabels are the labels of a host. They are immutable: a change stores a new pointer.
type hostLabels struct {
	name   string
	labels map[string]string
}

// labelsOfHosts has the *hostLabels of hosts with a machine, by the namespace and name of the Metal3Machine.
type labelsOfHosts struct{ sync.Map }

// awaited starts to watch hosts, and reports whether labels of hosts of the plan may be missing. A host that cannot be read has no labels:
// the policy then reports that the target is in no group.
func (l *labelsOfHosts) awaited(ctx context.Context, hosts HostWatch, plan *Plan) bool {
	onHost := func(decision *Decision) bool { return OnHost(decision.Target.Machine) }
	if hosts == nil || !slices.ContainsFunc(plan.Decisions, onHost) {
		return false
	}
	ready, err := hosts.Ready(ctx, hostKind)
	return !ready && err == nil
}

// ReadHosts notes the labels of all hosts once, without a watch. Hosts that cannot be read have none.
func (r *Reconciler) ReadHosts(ctx context.Context) {
	list := &bmov1alpha1.BareMetalHostList{}
	_ = r.Client.List(ctx, list)
	for i := range list.Items {
		r.hostLabels.note(&list.Items[i], false)
	}
}

// FailureDomain returns the failure domain of a machine and its node; ReadHosts must have run.
func (r *Reconciler) FailureDomain(machine *clusterv1.Machine, node *corev1.Node) string {
	seen, host := place.OfMachine(machine), r.hostLabels.of(machine)
	if host == nil || !OnHost(machine) {
		host = &hostLabels{}
	}
	seen.On(node, nil, host.name, host.labels)
	return seen.FailureDomain
}

func (l *labelsOfHosts) of(machine *clusterv1.Machine) *hostLabels {
	known, _ := l.Load(types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name})
	labels, _ := known.(*hostLabels)
	return labels
}

// note notes the labels of a host, and reports whether they have changed.
func (l *labelsOfHosts) note(bmh *bmov1alpha1.BareMetalHost, gone bool) (changed bool) {
	key := types.NamespacedName{Namespace: bmh.Namespace, Name: spare.Consumer(bmh)}
	if gone {
		_, known := l.LoadAndDelete(key)
		return known
	}
	known, _ := l.Load(key)
	labels, _ := known.(*hostLabels)
	if key.Name == "" || labels != nil && labels.name == bmh.Name && maps.Equal(labels.labels, bmh.Labels) {
		return false
	}
	l.Store(key, &hostLabels{bmh.Name, bmh.Labels})
	return true
}

// heard enqueues the checks in the namespace of a host whose labels have changed.
func (l *labelsOfHosts) heard(r *Reconciler) handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request] {
	wake := func(ctx context.Context, bmh *bmov1alpha1.BareMetalHost, gone bool) {
		if !l.note(bmh, gone) || !r.Ledger.Active(ctx) {
			return
		}
		for _, check := range r.checksOf(ctx, bmh.Namespace) {
			r.wake(check.NamespacedName, time.Second)
		}
	}
	return handler.TypedFuncs[*bmov1alpha1.BareMetalHost, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*bmov1alpha1.BareMetalHost], _ hostQueue) {
			wake(ctx, e.Object, false)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost], _ hostQueue) {
			if spare.Consumer(e.ObjectOld) != spare.Consumer(e.ObjectNew) {
				wake(ctx, e.ObjectOld, true)
			}
			wake(ctx, e.ObjectNew, false)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*bmov1alpha1.BareMetalHost], _ hostQueue) {
			wake(ctx, e.Object, true)
		},
	}
}
