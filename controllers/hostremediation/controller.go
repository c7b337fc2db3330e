// Package hostremediation power-cycles the bare-metal hosts of machines that were found bad: Metal3Remediations, CAPM3's kind, and
// HostRemediations, our own. Both are reconciled by the same code, which sees them through Object.
//
// A reconcile of one remediation reads from top to bottom: observe, decide, apply what was decided, tell users. What the steps are, is
// decided by package powercycle alone.
package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
)

// RBAC of this controller in the management cluster, besides that of package host.
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations/status,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list;watch

// RBAC to store what is of these kinds anew (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=hostremediations.kubemend.io;hostremediationtemplates.kubemend.io;metal3remediations.infrastructure.cluster.x-k8s.io;metal3remediationtemplates.infrastructure.cluster.x-k8s.io,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations;hostremediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates/status,verbs=patch

const (
	// settle is how long a host that was off when it was asked has to stay off until that is believed. BMO looks at a host's power
	// once a minute, and a power-on that it has just asked for takes its time.
	settle = 90 * time.Second
	// move is the least that an attempt has to move the workload. Kubernetes deletes the pods of a node that is out of service in rounds of 20 s
	// (kube-controller-manager, podgc), and detaches its volumes after that.
	move = 2 * time.Minute
	// releasing is the most that a remediation that is over waits for a node that cannot be unfenced.
	releasing = time.Hour
	// doubt is how long a receipt is looked at before it is believed: BMO writes its conditions after it has given it.
	doubt = 5 * time.Second
	// watch is how long a node is watched that may live: four times as long as a kubelet takes to renew its lease, after which the
	// controller manager calls it silent.
	watch = 40 * time.Second
	// skew is by how much the clock of a node, or of BMO, may be ahead of ours.
	skew = 5 * time.Second
	// servicing is how long the firmware of a host may be written until a person is asked. Some take tens of minutes for each component.
	servicing = 2 * time.Hour
	// unreachable is how long a control-plane host is held off while the API of its cluster does not answer: it may be what it runs on.
	unreachable = time.Minute
	// queue is how long a control-plane host waits for others.
	queue = 2 * time.Hour
	// fenceWithin is how old what is known of the host's power may be when its node is fenced. A client that has to wait for its rate limit
	// gives up at once if that would take longer.
	fenceWithin = 3 * time.Second
	// impatience is when to look again after something that could not be done yet.
	impatience = time.Second
)

// Reconciler makes reconciles of the remediations of one kind.
type Reconciler struct {
	Kind Kind
	// Installed returns the kinds of remediations that exist, whoever serves them: two of one cluster must not be at work together.
	Installed func() ([]Kind, error)

	// Client reads from caches and writes to the management cluster, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Hosts    Hosts
	Clusters Clusters
	Nodes    Nodes
	Wakeups  *Wakeups
	Claims   *Claims   // of all kinds
	UnderWay *UnderWay // nil: remediations are not counted
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// Fencing is how the workload of nodes is made to move.
	Fencing fence.Mode
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a remediation, or its Cluster, must have.
	WatchFilterValue string
	// Reader returns a reader of a workload cluster that reads past all caches. It may be nil: then the leases of API servers say nothing.
	Reader func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// Self is where the manager runs.
	Self Self
	// Leaving says that kubemend is being removed: nothing is begun, what is under way lets go, and what has let go is forgotten.
	Leaving bool
	// Off says that the kind is switched off, and not all of kubemend: somebody else may act on it. Only of what remembers to have been begun here is
	// let go. It comes with Leaving.
	Off bool
	// Unwatched says that no manager runs the passes: whoever does calls Reconcile again whenever anything has changed.
	Unwatched bool

	controller atomic.Pointer[controller.Controller] // nil until it is set up
	written    consistency.Writes
	idle       atomic.Bool
	turned     audience[struct{}] // hears when idle has changed
}

// Serve makes r make its reconciles, or none: when somebody else's controller has come to act on the kind, two of them would give each other
// orders. What is under way is theirs then, by the same annotations.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle == does {
		r.turned.tell(struct{}{})
	}
	if !does {
		r.UnderWay.forgetAll(r.Kind.Kind)
	}
}

// noOwner is the wait of a remediation that names no machine. Who made it may be about to add that.
var noOwner = (&explain.PowerCycle{Ownerless: true}).Decide()

// Reconcile makes one reconcile of the remediation called req. It takes all steps that are only remembered, and the one after them, which acts on the
// world or waits.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.idle.Load() {
		return r.yield(ctx, req.NamespacedName)
	}
	w, step, err := r.plan(ctx, req.NamespacedName)
	done := false
	if err == nil && w != nil {
		done, err = r.apply(ctx, w, step)
	}
	switch {
	case errors.Is(err, consistency.ErrStale):
		return ctrl.Result{RequeueAfter: consistency.Lag}, nil // nothing was written yet
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil // somebody else wrote first; the cache is about to show what
	case err != nil:
		return ctrl.Result{}, err
	case w == nil || w.ownerless:
		return ctrl.Result{}, nil
	}
	if step.Reason == powercycle.ManagerRunsHereReason {
		r.Self.makeWay(ctx)
	}
	return r.next(w, step, done), nil
}

// plan observes the remediation called key and decides on its next step. If that begins what only one remediation of a queue may begin at a time,
// the queue is claimed: from here on no other reconcile decides the same. Where another one has claimed it first, the remediation is observed
// and decided on once more with that, and waits.
func (r *Reconciler) plan(ctx context.Context, key client.ObjectKey) (*observed, powercycle.Step, error) {
	now, claimed := r.Clock.Now(), ""
	for {
		w, err := r.observe(ctx, key, now, claimed)
		if err != nil || w == nil || w.ownerless {
			return w, noOwner, err
		}
		step, err := r.decide(ctx, w)
		if err != nil {
			return nil, step, err
		}
		if claimed = r.claim(w, step); claimed == "" {
			return w, step, nil
		}
	}
}

// mostRemembered is more than the steps that are ever taken in one reconcile without doing anything.
const mostRemembered = 10

// decide takes the steps that are only remembered, in memory, and returns the one after them. The facts are stated anew after each, for what has to
// be known depends on what is remembered.
func (r *Reconciler) decide(ctx context.Context, w *observed) (powercycle.Step, error) {
	step := powercycle.Next(w.facts, w.policy, w.now)
	for n := 0; step.Do.Remembered() && n < mostRemembered; n++ {
		if err := r.took(w, step); err != nil {
			return step, err
		}
		if err := r.stateFacts(ctx, w); err != nil {
			return step, err
		}
		step = powercycle.Next(w.facts, w.policy, w.now)
	}
	return step, nil
}

// apply carries step out, stores all that was taken in one write, and tells of it. It reports whether it was done.
func (r *Reconciler) apply(ctx context.Context, w *observed, step powercycle.Step) (bool, error) {
	if !w.begins(step) {
		if err := r.unclaim(ctx, w); err != nil {
			return false, err
		}
	}
	if w.ownerless {
		return false, r.say(ctx, w, step, nil)
	}
	done, err := r.take(ctx, w, step)
	r.followNode(ctx, w)
	if err != nil && !errors.Is(err, consistency.ErrStale) && !apierrors.IsConflict(err) {
		err = fmt.Errorf("%s: %w", step.Do, err)
	}
	return done, err
}

// take carries step out, stores all that was taken, and tells of it.
func (r *Reconciler) take(ctx context.Context, w *observed, step powercycle.Step) (bool, error) {
	if w.showsFirst(step) {
		return true, r.show(ctx, w)
	}
	carryOut := r.actAndStore
	if step.Do.Intended() && step.Next == w.facts.State { // else the next look would not find the state in which it was intended
		carryOut = r.storeAndAct
	}
	done, err := carryOut(ctx, w, step)
	r.tell(ctx, w, done)
	if apierrors.IsConflict(err) {
		return done, err // the status could not be written either
	}
	if sayErr := r.say(ctx, w, w.settled(step, done), err); err == nil {
		err = sayErr
	}
	return done, err
}

// showsFirst reports whether a remediation of a control-plane host has to show that it has begun before it acts on the host: the queue is read once
// more then, so that of two that begin at the same moment, be it with two managers, both see each other. (docs/adr/0017)
func (w *observed) showsFirst(step powercycle.Step) bool {
	return w.facts.ControlPlane && (step.Do == powercycle.KeepOff || step.Do == powercycle.Reboot) && len(w.taken) > 0
}

// show stores what was taken, and tells of it.
func (r *Reconciler) show(ctx context.Context, w *observed) error {
	if err := client.IgnoreNotFound(r.store(ctx, w)); err != nil {
		return err
	}
	r.tell(ctx, w, false)
	return r.say(ctx, w, w.taken[len(w.taken)-1].step, nil)
}

// storeAndAct stores what is intended, and then does it. It reports whether it was done.
func (r *Reconciler) storeAndAct(ctx context.Context, w *observed, step powercycle.Step) (bool, error) {
	err := r.prepare(ctx, w, step)
	if err == nil {
		err = r.took(w, step)
	}
	storeErr := r.store(ctx, w)
	switch {
	case apierrors.IsNotFound(storeErr) && step.Do == powercycle.Release: // letting go is right in any case
	case apierrors.IsNotFound(storeErr):
		return false, nil // there is nobody any more for whom to do it
	case storeErr != nil:
		return false, storeErr
	}
	if err != nil {
		return false, err
	}
	return r.act(ctx, w, step)
}

// actAndStore carries step out, and stores it once that is done. It reports whether it was.
func (r *Reconciler) actAndStore(ctx context.Context, w *observed, step powercycle.Step) (bool, error) {
	done, err := r.act(ctx, w, step)
	if done {
		err = r.took(w, step)
	}
	if storeErr := client.IgnoreNotFound(r.store(ctx, w)); err == nil {
		err = storeErr
	}
	return done, err
}

// settled is the step of which the status tells: once something was done that is waited for, the wait. Else each step would cost one more write.
func (w *observed) settled(step powercycle.Step, done bool) powercycle.Step {
	if !done || step.Do == powercycle.Wait {
		return step
	}
	memory := w.record.Memory
	w.facts = powercycle.Expect(w.facts, step, w.now)
	w.facts.Memory = memory
	if next := powercycle.Next(w.facts, w.policy, w.now); next.Do == powercycle.Wait {
		return next
	}
	return step
}

// took makes w, and the remediation in it, remember that step was carried out, or is about to be. Nothing is written.
func (r *Reconciler) took(w *observed, step powercycle.Step) error {
	w.remember(step)
	err := r.mark(w, step)
	w.taken = append(w.taken, taken{*w, step})
	return err
}

// remember makes w remember that step was carried out.
func (w *observed) remember(step powercycle.Step) {
	w.record.Memory = powercycle.After(w.facts, step, w.now)
	if w.record.Cause != w.facts.Cause {
		w.record.Cause.Said = w.about().CauseSaid(step)
	}
}

// next says when to look again: when the step says so, at once after something was done, and soon after something was not, because the caches did not
// show yet what there is.
func (r *Reconciler) next(w *observed, step powercycle.Step, done bool) ctrl.Result {
	at := step.Again
	switch {
	case step.Do != powercycle.Wait && done:
		at = w.now.Add(consistency.Lag)
	case step.Do != powercycle.Wait:
		at = w.now.Add(impatience)
	}
	if !w.recheck.IsZero() && (at.IsZero() || w.recheck.Before(at)) {
		at = w.recheck
	}
	if step.Do == powercycle.DropFinalizer {
		return ctrl.Result{}
	}
	return enqueue.At(at, r.Clock.Now())
}
