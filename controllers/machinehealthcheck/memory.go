package machinehealthcheck

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// memory is what the reconciles of checks leave for the next ones: for metrics, for checks that are only observed, and until the caches
// show what was written. Nothing is decided on it that the API server does not know as well.
type memory struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]remembered
}

// contact is that of this process to a workload cluster: up says that there was any, lost since when there is none, or zero.
type contact struct {
	up   bool
	lost time.Time
}

// remembered is what a reconcile leaves for the next one of its check. It is zero for the first one, and for a reader that reconciles
// nothing.
type remembered struct {
	// lasts says that this process will see what comes next.
	lasts bool
	// away says that the check was not reconciled until now, as it was paused, not claimed, or without a Cluster. kubemend does not notice
	// then that the workload cluster becomes unreachable and reachable again, after which a cache may show nodes for half a minute as they
	// were before.
	away    bool
	cluster string
	reach   metav1.Condition // WorkloadClusterReachable
	contact contact
	decided Memory
	// inFlight is who carries out the remediations in flight, by the UIDs of the machines; nil if that was never observed.
	inFlight map[types.UID]string
	// generation is that of the check, at when it was reconciled. targets and skipped have when their conditions turned, and the facts about
	// those that do not change.
	generation       int64
	at               time.Time
	targets, skipped []*Target
	verdicts         []health.Verdict // whose memory the next ones take
	// answering are the kinds of owners that report what they do.
	answering map[string]bool
	// failed is how many reconciles in a row failed, stale how many since the last one found the cache to be stale.
	failed, stale int
	// warned is the restriction that the last event reported; nil if there was none.
	warned *string
	// unanswered are the names of the machines whose owner may have been asked to remediate them: the write failed, or was not answered.
	unanswered map[string]bool
	// did is what it wrote last that another client may remove: conditions, by the UIDs of the machines, and the owner of the check, by its
	// UID.
	did map[types.UID]undone.Did[string]
	// lost is when the answer to a request was last lost: it may be made after a live read that does not show it.
	lost time.Time
	// statusDue is when the status of the check is written that was put off; zero if it was not.
	statusDue time.Time
	// placed is what the ledger of policies was told of labels.
	placed placed
	// unread are the kinds of power cycles that could not be read, and since when that was tried in each reconcile.
	unread map[schema.GroupKind]time.Time
}

// of is what is remembered of a check.
func (m *memory) of(check types.NamespacedName) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.checks[check]
	if before.lasts = true; before.did == nil {
		before.did = map[types.UID]undone.Did[string]{}
	}
	return before
}

func (m *memory) keep(check types.NamespacedName, next remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checks == nil {
		m.checks = map[types.NamespacedName]remembered{}
	}
	m.checks[check] = next
}

// tell remembers the opinions of a check, which other checks read, before what they say is done.
func (m *memory) tell(check types.NamespacedName, opinions map[types.UID]Opinion) {
	next := m.of(check)
	next.decided.Opinions = opinions
	m.keep(check, next)
}

// Finds is what a check finds of a Machine that other checks select too; false if this process does not know. (Opinion)
func (r *Reconciler) Finds(check types.NamespacedName, machine types.UID) (healthy, known bool) {
	opinion := r.memory.of(check).decided.Opinions[machine]
	return opinion.State == health.Healthy, opinion.Heard && (opinion.Healthy || len(opinion.Due) > 0)
}

func sameOpinions(a, b map[types.UID]Opinion) bool {
	return maps.EqualFunc(a, b, Opinion.Equal)
}

// forget drops what is remembered of a check. It returns its cluster, whether the check was known at all, and
// whether it was the last one of that cluster.
func (m *memory) forget(key types.NamespacedName) (cluster string, known, last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.checks[key]
	delete(m.checks, key)
	last = true
	for other, remembered := range m.checks {
		last = last && (other.Namespace != key.Namespace || remembered.cluster != gone.cluster)
	}
	return gone.cluster, gone.cluster != "", last
}

// after is what is to be remembered of state, of the plan for it and of what became of that.
func after(state *observed, plan *Plan, done applied) remembered {
	next := remembered{
		cluster: state.Check.Spec.ClusterName, reach: plan.Reach, contact: state.contact, decided: plan.Memory,
		generation: state.Check.Generation, at: state.Now, targets: state.Targets, skipped: state.Skipped, verdicts: state.Verdicts,
		inFlight: state.before.inFlight, warned: state.before.warned, statusDue: done.statusDue,
		lost: state.before.lost, unread: state.unread, answering: state.answering, unanswered: map[string]bool{},
		placed: state.before.placed,
	}
	next.decided.Opinions = maps.Clone(plan.Memory.Opinions) // other checks read those that were told
	if state.placed != nil {
		next.placed = *state.placed
	}
	if errs, retry := done.failures(state); len(errs) > 0 || retry {
		next.failed = state.before.failed + 1
	}
	if state.Template.Known {
		next.inFlight = map[types.UID]string{}
		for _, decision := range plan.Open {
			if decision.InFlight {
				next.inFlight[decision.Target.UID] = state.remediator()
			}
		}
	}
	for _, o := range done.outcomes {
		next.note(state, o, state.remediator())
	}
	maps.DeleteFunc(state.before.did, func(_ types.UID, did undone.Did[string]) bool { return state.Now.Sub(did.At) > undoneFor })
	next.did = state.before.did
	if done.status != nil {
		next.warned = ptr.To(warnedAfter(state, plan, done.status))
	}
	return next
}

// note notes the remediation that an outcome began, or could not begin, and the machine that it wrote.
func (next *remembered) note(state *observed, o outcome, kind string) {
	if o.lost {
		next.lost = state.Now
	}
	uid := o.Target.UID
	if o.saved != nil && ConditionOf(o.saved, OwnerRemediated) == nil { // othersWrites keeps this from the other checks
		next.decided.revise(uid, func(opinion *Opinion) { opinion.AskedOwner = false })
	}
	next.noteBeginning(o, state.Now)
	if o.unsure {
		next.unanswered[o.Target.Name] = true
	}
	if o.saved != nil {
		state.before.did[uid] = state.before.did[uid].Again(o.wrote, state.Now)
	}
	if o.requested && next.inFlight != nil {
		next.inFlight[uid] = kind
	}
}

func (next *remembered) noteBeginning(o outcome, now time.Time) {
	uid, asksOwner := o.Target.UID, o.Step == RequestOwnerRemediation
	if o.err != nil && (o.Starts() || o.refused != nil) {
		next.decided.Failed(uid, now)
	}
	switch begun := o.requested || o.unsure || o.lost; {
	case begun && (o.Step == CreateRequest || asksOwner):
		next.decided.Began(uid, asksOwner)
	case o.Starts():
		next.decided.revise(uid, func(opinion *Opinion) { opinion.InFlight = false })
	}
}

// undoneFor is for how long it counts what was set last: longer than the longest pause.
const undoneFor = 10 * time.Minute

// remediator names who remediates: the kind of the requests, or the machine's owner.
func (state *observed) remediator() string {
	if state.Template.External {
		return state.Template.Kind
	}
	return "Owner"
}

// standsStill is how many reconciles in a row find the cache to be stale until the API server is asked. With nothing but their
// waits in between that is two and a half seconds.
const standsStill = 7

// stale reports whether the cache does not show yet what this process has written of the targets, by whichever check. Decided on that, a
// remediation that was begun would not count. It is no failure, and the check is reconciled again in a moment.
func (r *Reconciler) stale(ctx context.Context, state *observed) bool {
	for _, name := range append(r.written.Noted(state.Check.Namespace), slices.Collect(maps.Keys(state.before.unanswered))...) {
		target := find(name, state.Targets, state.Skipped)
		if target != nil && r.awaited(ctx, state, target.Machine, state.before.unanswered[name]) {
			return true
		}
	}
	return state.lagging
}

// awaited reports whether the cache has machine in an older version than was written. The API server is asked if the answer to that write
// was lost, and if the wait is long: one that was restored from a backup never shows the write. If it cannot be asked about a lost answer,
// it may be so for some seconds: one machine must not hold up the others of its check for ever.
func (r *Reconciler) awaited(ctx context.Context, state *observed, machine *clusterv1.Machine, lost bool) bool {
	switch {
	case lost:
	case !r.written.Stale(machine):
		return false
	case state.before.stale < standsStill:
		return true
	}
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(machine), stored)
	behind := stored.UID == machine.UID && consistency.Older(machine.ResourceVersion, stored.ResourceVersion)
	unread := client.IgnoreNotFound(err) != nil
	if lost && unread && state.before.stale >= standsStill {
		return false
	}
	if behind || unread {
		log.FromContext(ctx).Info("The check waits for the cache, which does not show yet what was written",
			"Machine", klog.KObj(machine), "stale", state.before.stale, "error", err)
		return true
	}
	r.written.Forget(client.ObjectKeyFromObject(machine))
	return false
}
