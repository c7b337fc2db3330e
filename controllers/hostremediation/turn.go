package hostremediation

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Turns lets the control-plane hosts of a cluster be remediated one after another, and the remediations of one machine too. Whose turn
// it is can be read from what is observed: it is that of the one that has begun. Turns adds what the caches do not show yet, and knows who waits.
type Turns struct {
	mu    sync.Mutex
	taken map[string]turn
	// waiting are those that wait for their turn, by kind.
	waiting map[string]map[client.ObjectKey]bool
	heard   audience[string]
}

type turn struct {
	by   types.UID
	name string
	at   time.Time
}

const (
	// cachesLag is how long caches may take to show that a remediation has begun.
	cachesLag = 30 * time.Second
	// turnRecheck is how soon to look again who goes first, should nobody have said that it is over.
	turnRecheck = 5 * time.Minute
)

// turnMatters are the states in which something may be begun that has to wait for others.
var turnMatters = map[powercycle.State]bool{
	"": true, powercycle.Pending: true, powercycle.Preparing: true, powercycle.PoweringOff: true, powercycle.Rebooting: true,
}

// Take takes the turn of a queue for the remediation by, at now, unless another one has just taken it, whose name is returned then.
func (t *Turns) Take(queue string, by types.UID, name string, now time.Time) (ahead string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, taken := t.taken[queue]; taken && last.by != by && now.Before(last.at.Add(cachesLag)) {
		return last.name
	}
	if t.taken == nil {
		t.taken = map[string]turn{}
	}
	t.taken[queue] = turn{by: by, name: name, at: now}
	return ""
}

// shown notes that the caches show that the remediation by has begun: from here on they say how long its turn lasts, which may be shorter
// than they could have lagged.
func (t *Turns) shown(queue string, by types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[queue].by == by {
		delete(t.taken, queue)
	}
}

// free ends the turn that the remediation by has taken.
func (t *Turns) free(by types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for queue, last := range t.taken {
		if last.by == by {
			delete(t.taken, queue)
		}
	}
}

// await notes that a remediation waits for its turn.
func (t *Turns) await(kind string, key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[string]map[client.ObjectKey]bool{}
	}
	if t.waiting[kind] == nil {
		t.waiting[kind] = map[client.ObjectKey]bool{}
	}
	t.waiting[kind][key] = true
}

// leave notes that a remediation does not wait any more.
func (t *Turns) leave(kind string, key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting[kind], key)
}

// waiters returns the remediations of a kind that wait in a namespace.
func (t *Turns) waiters(kind, namespace string) []client.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []client.ObjectKey
	for key := range t.waiting[kind] {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// sketch is a copy to try things out on.
func (t *Turns) sketch() *Turns {
	if t == nil {
		return &Turns{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Turns{taken: maps.Clone(t.taken)}
}

// Over tells those who wait in a namespace, whatever their kind, that something is over there.
func (t *Turns) Over(namespace string) { t.heard.tell(namespace) }

// observeTurn finds out whether the remediation has to wait for others. Whoever has to wait is woken when that may have changed; it says so
// before it looks, so that no change goes unheard in between.
func (r *Reconciler) observeTurn(ctx context.Context, w *observed) {
	w.facts.Turn = true
	key := client.ObjectKeyFromObject(w.rem)
	if over := w.facts.State.Final() || w.facts.Deleting || w.facts.Stop; over || !w.needsTurn() {
		w.turns.leave(r.Kind.Kind, key)
		if over {
			w.turns.free(w.rem.GetUID())
		}
		return
	}
	if w.turn {
		return
	}
	w.turns.await(r.Kind.Kind, key)
	w.ahead = r.firstAhead(ctx, w)
	w.turn = w.ahead == ""
	if w.facts.Turn = w.turn; w.facts.Turn {
		w.turns.leave(r.Kind.Kind, key)
		return
	}
	w.turns.free(w.rem.GetUID()) // whoever may go now need not wait for it
	w.lookAgain(turnRecheck)
}

// needsTurn reports whether the next step may depend on whose turn it is.
func (w *observed) needsTurn() bool {
	return turnMatters[w.facts.State] && !w.facts.Held && !w.facts.RebootAsked && w.machine != nil
}

// firstAhead is who, or what, goes before the remediation; empty if nobody does, and it has taken its turn.
func (r *Reconciler) firstAhead(ctx context.Context, w *observed) string {
	ahead, err := r.ahead(ctx, w)
	if err != nil { // what cannot be asked is nobody's turn, and holds up nothing that was begun
		ahead, w.unasked = plain(err), append(w.unasked, err)
		w.lookAgain(blindRecheck)
	}
	if here := r.Self.on(w); ahead == "" && here {
		w.facts.ManagerHere, ahead = true, "no other replica is ready elsewhere, or it is about to take over"
		w.lookAgain(cachesLag)
	}
	if ahead == "" && w.found.Is == powercycle.HostOurs && ready(w.power) && !w.facts.Paused {
		if ahead = w.turns.Take(queueOf(w), w.rem.GetUID(), w.rem.GetName(), w.now); ahead != "" {
			ahead += " goes first"
			w.lookAgain(cachesLag)
		}
	}
	return ahead
}

// queueOf names the queue in which the remediation of w has to wait: that of the control plane, or that of its machine.
func queueOf(w *observed) string {
	if w.facts.ControlPlane {
		return "control plane " + w.machine.Namespace + "/" + w.machine.Spec.ClusterName
	}
	return "machine " + string(w.machine.UID)
}

// ahead says why the remediation of w has to wait for others, if it has to: another one of the same machine has begun and is not over, or
// holds its host off, be it of CAPM3; or the control plane can not do without its host now. Of two of a machine that have begun, the one that
// began first goes first.
func (r *Reconciler) ahead(ctx context.Context, w *observed) (string, error) {
	if by := otherHold(w.found.Host, w.record.by(w.rem)); by != "" {
		return "the host is held off for remediation " + by, nil
	}
	all, err := r.inNamespace(ctx, w.rem.GetNamespace())
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if goesBefore(other.Object, w) && ownedBy(other, w.machine) {
			w.turns.shown(queueOf(w), other.GetUID())
			return other.String() + " is under way", nil
		}
	}
	if !w.facts.ControlPlane {
		return "", nil
	}
	return r.controlPlaneForbids(ctx, w, all)
}

// someRemediation is a remediation of any kind, with the name of that.
type someRemediation struct {
	client.Object
	kind string
}

// String names it as messages do.
func (s someRemediation) String() string { return s.kind + " " + s.GetName() }

// inNamespace returns the remediations of all kinds in a namespace. They may be shared: read only.
func (r *Reconciler) inNamespace(ctx context.Context, namespace string) ([]someRemediation, error) {
	kinds, err := r.Installed()
	if err != nil {
		return nil, err
	}
	var all []someRemediation
	for _, kind := range kinds {
		of, err := kind.all(ctx, r.Client, namespace)
		if err != nil {
			return nil, err
		}
		for _, rem := range of {
			all = append(all, someRemediation{rem, kind.Kind})
		}
	}
	return all, nil
}

// goesBefore reports whether other has begun, is not over, and began before the remediation of w, if that has begun too.
func goesBefore(other client.Object, w *observed) bool {
	rec, err := recordOf(other)
	if other.GetUID() == w.rem.GetUID() || err == nil && (rec.Attempt == 0 || rec.State.Final() || rec.resting()) {
		return false
	}
	if err != nil || w.record.Attempt == 0 {
		return true // of what cannot be read the worst is assumed
	}
	return cmp.Or(rec.beganAt(other).Compare(w.record.beganAt(w.rem)), cmp.Compare(other.GetUID(), w.rem.GetUID())) < 0
}

// otherHold is the UID of a remediation other than by that holds h off.
func otherHold(h *bmov1alpha1.BareMetalHost, by host.Remediation) string {
	if h == nil {
		return ""
	}
	return string(host.HeldByOthers(h, by))
}

// resting reports whether a remediation is paused before it has touched the host in its attempt. When the pause is over it asks for its
// turn once more, and its attempt counts as begun then.
func (rec record) resting() bool {
	return !rec.Memory.Paused.IsZero() && (rec.State == powercycle.Pending || rec.State == powercycle.Preparing)
}

func ownedBy(rem client.Object, m *clusterv1.Machine) bool {
	owner := ownerOf(rem)
	return owner != nil && owner.UID == m.UID
}
