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
// show what was written. A restart loses it, which makes no decision unsafe.
type memory struct{ sync.Map } // check key to remembered

// remembered is what a reconcile leaves for the next one of its check; zero for the first one, and for a reader.
type remembered struct {
	// lasts says that this process will reconcile the check again.
	lasts bool
	// away says that the check was not reconciled until now: it was paused, not claimed, or without a Cluster. Meanwhile kubemend does not
	// notice that the workload cluster becomes unreachable and reachable again, after which a cache may show old nodes for half a minute.
	away    bool
	cluster string
	reach   metav1.Condition // WorkloadClusterReachable
	// up says that the workload cluster was reached.
	up bool
	// unreachable is when this process lost contact to the workload cluster; zero while there is contact, or if there never was.
	unreachable time.Time
	decided     Memory
	// inFlight is who carries out the remediations in flight, by the UIDs of the machines; nil if that was never observed.
	inFlight map[types.UID]string
	// generation is the generation of the check in that reconcile.
	generation int64
	at         time.Time // of that reconcile
	// targets and skipped are reused for Machines and Nodes that have not changed.
	targets, skipped []*Target
	// answering are the kinds of owners that report what they do.
	answering map[string]bool
	// failed is how many reconciles in a row failed.
	failed int
	// stale is how many reconciles in a row found the cache stale.
	stale int
	// warned is the restriction that the last event reported; nil if there was none.
	warned *string
	// unanswered are the machines whose owner may have been asked, by name: the write failed or was not answered.
	unanswered map[string]bool
	// did is what was last written to Machines and the check, by UID: another client may have removed it.
	did map[types.UID]undone.Did[string]
	// lost is when the answer to the creation of a request was last lost: the API server may still create the request.
	lost time.Time
	// statusDue is when the postponed status of the check is written; zero if it was not postponed.
	statusDue time.Time
	// placed is what was last reported to the ledger of policies.
	placed placed
	// unread is since when a kind of power cycles, or hosts, could not be read.
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

// tell stores the opinions of a check for other checks, before the check acts on them.
func (m *memory) tell(check types.NamespacedName, opinions map[types.UID]Opinion) {
	next := m.of(check)
	next.decided.Opinions = opinions
	m.Store(check, next)
}

// Finds returns whether a check finds a Machine healthy that other checks select too; known is false if this process does not know.
func (r *Reconciler) Finds(check types.NamespacedName, machine types.UID) (healthy, known bool) {
	opinion := r.memory.of(check).decided.Opinions[machine]
	return opinion.State == health.Healthy, opinion.Heard && (opinion.Healthy || len(opinion.Due) > 0)
}

func sameOpinions(a, b map[types.UID]Opinion) bool {
	return maps.EqualFunc(a, b, Opinion.Equal)
}

// after returns what to remember of a reconcile.
func after(state *observed, plan *Plan, done applied) remembered {
	next := state.before
	next.away, next.failed, next.stale, next.unanswered = false, 0, 0, map[string]bool{}
	next.cluster, next.generation, next.at = state.Check.Spec.ClusterName, state.Check.Generation, state.Now
	next.reach, next.decided = plan.Reach, plan.Memory
	next.up, next.unreachable = state.Link == health.Up, state.unreachable
	next.targets, next.skipped, next.answering, next.unread = state.Targets, state.Skipped, state.answering, state.unread
	next.statusDue = done.statusDue
	next.decided.Opinions = maps.Clone(plan.Memory.Opinions) // a copy: other checks read plan.Memory.Opinions
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

// note notes the Machine that an outcome wrote, and the remediation that it began or could not begin.
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

// tried returns opinion after an outcome. Other checks need it because othersWrites drops the event of the write.
func (opinion Opinion) tried(o outcome, begun bool) Opinion {
	withdrawn := o.saved != nil && ConditionOf(o.saved, OwnerRemediated) == nil
	opinion.AskedOwner = begun && o.Step == RequestOwnerRemediation || opinion.AskedOwner && !withdrawn
	opinion.InFlight = opinion.InFlight && (begun || !o.Starts())
	return opinion
}

// undoneFor is how long the last write to an object is remembered: longer than the longest pause between writes.
const undoneFor = 10 * time.Minute

// remediator returns who remediates: the kind of the requests, or Owner.
func (state *observed) remediator() string {
	if state.Template.External {
		return state.Template.Kind
	}
	return "Owner"
}

// standsStill is how many reconciles in a row find the cache stale before one asks the API server: 2.5 s by consistency.Wait.
const standsStill = 7

// stale reports whether the cache does not yet show what any check of this process has written to the targets. A decision on such a cache
// would not count a remediation that was begun. The check is reconciled again in a moment.
func (r *Reconciler) stale(ctx context.Context, state *observed) bool {
	for _, name := range append(r.written.Noted(state.Check.Namespace), slices.Collect(maps.Keys(state.before.unanswered))...) {
		target := find(name, state.Targets, state.Skipped)
		if target != nil && r.awaited(ctx, state, target.Machine, state.before.unanswered[name]) {
			return true
		}
	}
	return state.lagging
}

// awaited reports whether the cache has machine in an older version than was written. It asks the API server if the answer to the write was
// lost, and if the wait is long, since a Machine restored from a backup never shows the write. If the API server cannot say whether a lost
// write was stored, awaited gives up after some seconds, so that one machine does not hold up the others of its check.
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
