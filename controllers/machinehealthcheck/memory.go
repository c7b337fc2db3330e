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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// memory is what the reconciles of checks leave for the next ones: for metrics, for checks that are only observed, and until the caches
// show what was written. Nothing is decided on it that the API server does not know as well.
type memory struct{ sync.Map } // of remembered, by the keys of checks

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

func (m *memory) of(check types.NamespacedName) remembered {
	known, _ := m.Load(check)
	before, _ := known.(remembered)
	if before.lasts = true; before.did == nil {
		before.did = map[types.UID]undone.Did[string]{}
	}
	return before
}

// tell remembers the opinions of a check, which other checks read, before what they say is done.
func (m *memory) tell(check types.NamespacedName, opinions map[types.UID]Opinion) {
	next := m.of(check)
	next.decided.Opinions = opinions
	m.Store(check, next)
}

// Finds is what a check finds of a Machine that other checks select too; false if this process does not know. (Opinion)
func (r *Reconciler) Finds(check types.NamespacedName, machine types.UID) (healthy, known bool) {
	opinion := r.memory.of(check).decided.Opinions[machine]
	return opinion.State == health.Healthy, opinion.Heard && (opinion.Healthy || len(opinion.Due) > 0)
}

func sameOpinions(a, b map[types.UID]Opinion) bool {
	return maps.EqualFunc(a, b, Opinion.Equal)
}

// after is what is to be remembered of state, of the plan for it and of what became of that.
func after(state *observed, plan *Plan, done applied) remembered {
	next := state.before
	next.away, next.failed, next.stale, next.unanswered = false, 0, 0, map[string]bool{}
	next.cluster, next.generation, next.at = state.Check.Spec.ClusterName, state.Check.Generation, state.Now
	next.reach, next.contact, next.decided, next.verdicts = plan.Reach, state.contact, plan.Memory, state.Verdicts
	next.targets, next.skipped, next.answering, next.unread = state.Targets, state.Skipped, state.answering, state.unread
	next.statusDue = done.statusDue
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
	maps.DeleteFunc(next.did, func(_ types.UID, did undone.Did[string]) bool { return state.Now.Sub(did.At) > undoneFor })
	return next
}

// note notes the remediation that an outcome began, or could not begin, and the machine that it wrote.
func (next *remembered) note(state *observed, o outcome, kind string) {
	uid, asksOwner := o.Target.UID, o.Step == RequestOwnerRemediation
	begun := (o.requested || o.lost) && (o.Step == CreateRequest || asksOwner)
	if begun {
		delete(next.decided.Refused, uid)
	} else if o.err != nil && (o.Starts() || o.refused != nil) {
		next.decided.Refused[uid] = state.Now
	}
	if opinion, shared := next.decided.Opinions[uid]; shared {
		next.decided.Opinions[uid] = opinion.tried(o, begun)
	}
	if o.lost && asksOwner {
		next.unanswered[o.Target.Name] = true
	} else if o.lost {
		next.lost = state.Now
	}
	if o.saved != nil {
		state.before.did[uid] = state.before.did[uid].Again(o.wrote, state.Now)
	}
	if o.requested && next.inFlight != nil {
		next.inFlight[uid] = kind
	}
}

// tried is opinion after an outcome that has begun a remediation or not: othersWrites keeps from the other checks what it wrote.
func (opinion Opinion) tried(o outcome, begun bool) Opinion {
	withdrawn := o.saved != nil && ConditionOf(o.saved, OwnerRemediated) == nil
	opinion.AskedOwner = begun && o.Step == RequestOwnerRemediation || opinion.AskedOwner && !withdrawn
	opinion.InFlight = opinion.InFlight && (begun || !o.Starts())
	return opinion
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
