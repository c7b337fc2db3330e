package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/workload"
)

// observed is everything that one reconcile decides on, read once.
type observed struct {
	now  time.Time
	rem  remediation.Object
	kind remediation.Kind

	cluster *clusterv1.Cluster // nil if it does not exist
	machine *clusterv1.Machine // nil if it is gone
	found   host.Found
	// unverified says that it could not be read which host is the machine's.
	unverified bool

	// rem has what the remediation remembers; stored is what of that the API server has, saved says that it has all of it, or that the remediation is gone.
	// taken are the steps that were taken.
	stored *metav1.PartialObjectMetadata
	saved  bool
	taken  []taken
	kept   kept
	// answersUntil is when the workload cluster has to have answered all that it is asked; zero before it is.
	answersUntil time.Time
	// queue is what may go first, existing are the remediations of its namespace, and members are those of its control plane; nil before
	// they are read.
	queue    *powercycle.Queue
	existing remediation.Existing
	members  []planeMember
	// connected is when it is known whether the API of the control plane answers; zero if it is.
	connected time.Time
	// confirms says that what may go first is read past the cache, as the remediation is about to begin, and member that its machine was
	// seen to be of a control plane when that was decided.
	confirms, member bool

	record remediation.Record
	facts  powercycle.Facts
	policy powercycle.Policy
	// loop is that of the power cycles of the host before this one, loopUntil until when this one waits for it, or for it to be known.
	loop      repeats.Loop
	loopUntil time.Time

	// idle is why nothing is done for the remediation and nothing was; empty if something is.
	idle powercycle.Reason
	observation
}

// observation is what was observed of the node and of the queue. It depends on what the remediation remembers, and is made anew after each step.
type observation struct {
	node *corev1.Node // from the cache; nil if it is not there
	seen fence.Seen   // from the workload cluster itself, where a step depends on that

	// predecessor is the remediation that is gone and whose fence is on the node; empty if there is none.
	predecessor types.UID
	// ahead is what goes first; empty if the remediation does.
	ahead []powercycle.Ahead
	// unhealthy is the unhealthy condition of the NodeHealthCheck that asked which the node still has; empty if there is none.
	unhealthy string
	// undoers are the clients that may have undone what was done to host or node.
	undoers string
	// unseenBecause is why the node cannot be read, twin what is known of another node of the machine's provider ID.
	unseenBecause, twin string
	// recheck is when to reconcile again although no event came.
	recheck time.Time
}

// taken is a step, with the observed state as it was: the facts that the step was decided on, and the record after it.
type taken struct {
	observed
	step powercycle.Step
}

// observe observes the remediation called key for a reconcile, which has observed first before; nil if it has not. It returns nil if there
// is nothing to do.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey, first *observed) (*observed, error) {
	w := &observed{now: r.Clock.Now(), rem: r.Kind.New()}
	if first != nil {
		w.confirms, w.member, w.answersUntil = true, first.facts.ControlPlane, first.answersUntil
	}
	if found, err := r.read(ctx, key, w); err != nil {
		return nil, err
	} else if !found {
		r.written.Forget(key)
		r.drop(key)
		return nil, nil
	}
	if r.written.Stale(w.rem) {
		return nil, consistency.ErrStale
	}
	if ours, err := r.survey(ctx, w); err != nil || !ours {
		return nil, err
	}
	return w, nil
}

// read reads the remediation called key, and reports whether there is one.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, w *observed) (bool, error) {
	err := r.Client.Get(ctx, key, w.rem.Unwrapped())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s %s: %w", r.Kind.Kind, key, err)
	}
	w.stored = metadataOf(w.rem, r.Kind)
	r.recall(w)
	return err == nil, nil
}

// survey reads all that a step for the remediation of w is decided on. It returns false if there is nothing to decide.
func (r *Reconciler) survey(ctx context.Context, w *observed) (bool, error) {
	w.kind = r.Kind
	w.record, _ = remediation.RecordOf(w.rem) // a record that cannot be read is that of a failed remediation
	w.policy = policyOf(w.rem.Strategy(), w.record.BootSeconds)
	if err := r.observeMachine(ctx, w); err != nil {
		return false, err
	}
	if err := r.checkRecord(ctx, w); err != nil {
		return false, err
	}
	if !r.actsOn(w) {
		return false, nil
	}
	if w.idle = r.idleFor(w); w.idle != "" {
		return true, nil
	}
	if err := r.observeHost(ctx, w); err != nil {
		return false, err
	}
	r.observeBoots(ctx, w)
	r.observeLoop(ctx, w)
	return true, r.stateFacts(ctx, w)
}

// checkRecord drops what the record cannot have: a UID that the remediation never had, and moments that have not come.
func (r *Reconciler) checkRecord(ctx context.Context, w *observed) error {
	w.record.Memory = w.record.NotAfter(w.now)
	if w.record.UID == "" || w.record.UID == w.rem.GetUID() {
		return nil
	}
	existing, err := r.Installed.In(ctx, r.Client, w.rem.GetNamespace())
	if err != nil {
		return err
	}
	w.record.UID = existing.Former(w.rem)
	return nil
}

// stateFacts states the facts that a step is decided on, which depend on what w remembers.
func (r *Reconciler) stateFacts(ctx context.Context, w *observed) error {
	w.observation = observation{}
	w.facts = r.factsOf(w)
	if w.unverified {
		w.recheckAfter(unreachableRecheck)
	}
	if w.now.Before(w.loopUntil) && w.loop.Times == 0 {
		w.recheckAfter(retry) // nothing tells that the records can be read
	}
	r.observeNode(ctx, w)
	w.facts.ControlPlane = w.facts.ControlPlane || w.machine != nil && (w.member || controlplane.IsMember(w.node))
	if err := r.observeMembership(ctx, w); err != nil {
		return err
	}
	return r.placeInQueue(ctx, w)
}

// idleFor is why nothing is done for the remediation; empty if something is or was. Without a strategy nothing is done, as in CAPM3. If the
// strategy is removed from a remediation under way, that ends.
func (r *Reconciler) idleFor(w *observed) powercycle.Reason {
	switch {
	case !r.untouched(w):
		return ""
	case !asked(w.rem):
		return powercycle.NoStrategyReason
	case remediation.OwnerOf(w.rem) == nil:
		return powercycle.NoOwnerReason
	}
	return ""
}

// actsOn reports whether kubemend acts on the remediation: it passes the watch filter.
func (r *Reconciler) actsOn(w *observed) bool {
	filtered := !capi.Covers(r.WatchFilterValue, w.rem, w.cluster)
	began := !r.untouched(w)
	ours := began && w.record.Filter == r.WatchFilterValue // a remediation that began ends, also without the label
	return (!filtered || ours) && (began || !r.Teardown)
}

// untouched reports whether the remediation has not begun.
func (r *Reconciler) untouched(w *observed) bool {
	return w.record.State == "" && (r.Off && r.Kind.SignsNothing() || !controllerutil.ContainsFinalizer(w.rem, r.Kind.Finalizer))
}

// pause is what pauses the remediation, as a clause; empty if nothing does.
func (w *observed) pause() string {
	if _, moved := w.rem.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]; moved { // clusterctl deletes it, and has removed its other annotations
		return "because clusterctl has moved it to another management cluster, and deletes it here"
	}
	switch {
	case annotations.HasPaused(w.rem):
		return "by its annotation " + clusterv1.PausedAnnotation
	case w.cluster != nil && ptr.Deref(w.cluster.Spec.Paused, false):
		return "with Cluster " + w.cluster.Name
	case w.machine != nil && annotations.HasPaused(w.machine):
		return "with its Machine, by the annotation " + clusterv1.PausedAnnotation
	case w.found.Paused:
		return "with its Metal3Machine, by the annotation " + clusterv1.PausedAnnotation
	}
	return ""
}

// asked reports whether the remediation asks for a power cycle.
func asked(rem remediation.Object) bool {
	s := rem.Strategy()
	return s != nil && s.Reboots
}

// observeMachine reads the machine that owns the remediation, and its cluster. The cluster of a machine that is gone is remembered: its node may still be
// fenced by this remediation. (Nor need the owner reference exist any more: the garbage collector removes it if there is another owner, such as a
// NodeHealthCheck.)
func (r *Reconciler) observeMachine(ctx context.Context, w *observed) error {
	cluster, namespace := w.record.Cluster, w.rem.GetNamespace()
	if owner := remediation.OwnerOf(w.rem); owner != nil {
		m, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: namespace, Name: owner.Name}
		found, err := consistency.Read(ctx, r.Client, r.Live, key, m, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("read machine %s: %w", key, err)
		}
		if found && m.UID == owner.UID {
			w.machine, cluster = m, m.Spec.ClusterName
		}
	}
	if cluster == "" {
		return nil
	}
	c, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: namespace, Name: cluster}
	found, err := consistency.Read(ctx, r.Client, r.Live, key, c)
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", key, err)
	}
	if found {
		w.cluster = c
	}
	return nil
}

// observeHost finds the machine's host.
func (r *Reconciler) observeHost(ctx context.Context, w *observed) error {
	w.found = host.Found{Is: powercycle.HostGone, Why: "the machine does not exist"}
	if w.machine == nil {
		return r.rememberHost(ctx, w)
	}
	found, err := r.Hosts.Of(ctx, w.machine)
	leaving := meta.IsNoMatchError(err) && !w.rem.GetDeletionTimestamp().IsZero()
	switch {
	case err == nil:
		w.found = found
	case errors.Is(err, consistency.ErrStale), !leaving && !w.record.Touched:
		return err
	default: // that it cannot be read whose the host is must not keep it off, nor the remediation
		w.found.Why, w.found.Named, w.unverified = workload.Plain(err), w.record.Touched, true
	}
	return r.rememberHost(ctx, w)
}

// rememberHost replaces the host that was found by the one in the record if that has annotations of this remediation: when the machine has another host now,
// or none, the former one must not stay off for ever. Without such an annotation the name alone is no proof.
func (r *Reconciler) rememberHost(ctx context.Context, w *observed) error {
	if w.record.Host == "" || w.found.Host != nil && w.found.Host.Name == w.record.Host {
		return nil
	}
	former, err := r.Hosts.Named(ctx, client.ObjectKey{Namespace: w.rem.GetNamespace(), Name: w.record.Host})
	if err != nil || former == nil {
		return err
	}
	marks := host.MarksOf(former, w.record.By(w.rem), w.record.Attempt, w.record.Asked)
	marked := w.machine != nil && host.MarkedFor(former) == w.machine.UID
	switch {
	case w.found.Host == nil && (marks.HasPowerAnnotations || marked):
		w.found.Host = former
	case marks.HasPowerAnnotations:
		w.found = host.Found{
			Host: former, Is: powercycle.HostForeign,
			Why: fmt.Sprintf("the machine's host was BareMetalHost %s, and is BareMetalHost %s now", former.Name, w.found.Host.Name),
		}
	}
	return nil
}

// marks are the annotations of the remediation on its host.
func (w *observed) marks() powercycle.Marks {
	if w.found.Host == nil {
		return powercycle.Marks{}
	}
	return host.MarksOf(w.found.Host, w.record.By(w.rem), w.record.Attempt, w.record.Asked)
}

// factsOf states the facts, but for the node and the queue.
func (r *Reconciler) factsOf(w *observed) powercycle.Facts {
	power, marks := powercycle.Power{Unmanaged: "there is no host"}, w.marks()
	if w.found.Host != nil {
		power = w.found.Host.Power
	}
	_, stop := w.rem.GetAnnotations()[nhcv1.TimedOutAnnotation]
	f := powercycle.Facts{
		Memory: w.record.Memory, Did: w.didBefore(),
		Deleting:  !w.rem.GetDeletionTimestamp().IsZero() || !asked(w.rem),
		Finalizer: controllerutil.ContainsFinalizer(w.rem, r.Kind.Finalizer),
		Stop:      stop,
		Paused:    w.pause() != "" && !r.Teardown, // nothing goes on later
		Teardown:  r.Teardown,
		Machine:   powercycle.MachineGone,
		Host:      w.found.Is, HostAnew: w.found.Host != nil && w.record.HostUID != "" && w.record.HostUID != w.found.Host.UID,
		HostUnnamed: w.found.Unnamed(w.record.Host), Power: power, Marks: marks,
		Disproved: w.found.Is == powercycle.HostOurs && host.Disproved(w.found.Host),
		Loop:      w.loop, LoopUntil: w.loopUntil,
	}
	if w.machine == nil {
		return f
	}
	f.Machine = powercycle.MachinePresent
	if !w.machine.DeletionTimestamp.IsZero() {
		f.Machine = powercycle.MachineDeleting
	}
	if w.found.Host != nil && host.MarkedFor(w.found.Host) == w.machine.UID {
		f.Marked = true
	}
	f.Unhealthy = remediation.MarkedUnhealthy(w.machine) // its node may not be seen at first, and be well when the host may be powered off
	f.Ownerless = metav1.GetControllerOf(w.machine) == nil
	f.OwnerAsked = collections.IsUnhealthyAndOwnerRemediated(w.machine)
	_, labelled := w.machine.Labels[clusterv1.MachineControlPlaneLabel]
	f.ControlPlane = labelled || w.record.ControlPlane
	return f
}

// policyOf is the policy of a remediation with the strategy s; nil stands for the defaults. bootSeconds are by the last boot of its host.
func policyOf(s *remediation.Strategy, bootSeconds int64) powercycle.Policy {
	if s == nil {
		s = &remediation.Strategy{Retries: infrav1.DefaultRetryLimit, Timeout: infrav1.DefaultTimeoutSeconds * time.Second}
	}
	boot := time.Duration(cmp.Or(bootSeconds, mendv1.DefaultBootTimeoutSeconds)) * time.Second
	return powercycle.PolicyOf(s.Retries, s.Timeout, cmp.Or(s.Boot, boot))
}
