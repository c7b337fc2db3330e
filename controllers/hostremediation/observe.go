package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/explain"
)

// observed is everything that one reconcile decides on, read once.
type observed struct {
	now  time.Time
	rem  Object
	kind Kind
	// looks says that nobody acts on what is seen: so nothing is watched.
	looks bool

	cluster *clusterv1.Cluster // nil if it does not exist
	machine *clusterv1.Machine // nil if it is gone
	found   host.Found
	power   host.Power

	// rem has what is remembered since it was read; stored is what of that the API server has, saved
	// says that it has all of it, or that the remediation is gone. taken are the steps that were taken.
	stored metadata
	saved  bool
	taken  []taken
	// answersUntil is when the workload cluster has to have answered all that it is asked; zero before it is.
	answersUntil time.Time
	// mode is how the node is to be fenced.
	mode fence.Mode
	// queue is what may go first, rivals the remediations of its namespace, and members the machines of its control plane; nil before they are read.
	queue   *powercycle.Queue
	rivals  []someRemediation
	members []*clusterv1.Machine
	// queueErr is why the queue could not be read, connected when it is known whether the API of the control plane answers; zero if it is.
	queueErr  error
	connected time.Time
	// claimed is the remediation that has claimed the queue although the caches do not show that; empty if none has.
	claimed string

	record record
	facts  powercycle.Facts
	policy powercycle.Policy

	// ownerless says that no machine owns the remediation, and that nothing was done for it.
	ownerless bool
	sight
}

// sight is what was found out of the node and of the queue, by what is remembered.
type sight struct {
	node *corev1.Node // as the cache has it; nil if it cannot be seen
	seen fence.Seen   // as the workload cluster itself says, where that is needed

	// predecessor is the remediation that is gone and whose fence is on the node; empty if there is none.
	predecessor types.UID
	// ahead is what goes first; empty if the remediation does.
	ahead []powercycle.Ahead
	// unhealthy is what the NodeHealthCheck that asked finds wrong with the node still; empty if that is nothing.
	unhealthy string
	// unseenBecause is why the node cannot be seen.
	unseenBecause string
	// recheck is a moment at which to look again although nothing was seen to change.
	recheck time.Time
	// unasked is what could not be asked, of the node and of the queue, and may be known to who acts.
	unasked []error
}

// taken is a step, with the observed state as it was: the facts that the step was decided on, and the record after it.
type taken struct {
	observed
	step powercycle.Step
}

// observe reads what is observed of the remediation called key, for a reconcile; claimed is the one that has claimed its queue, if it is known.
// It returns nil if there is nothing to do.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey, now time.Time, claimed string) (*observed, error) {
	w := &observed{now: now, rem: r.Kind.New(), claimed: claimed}
	if found, err := r.read(ctx, key, w); err != nil {
		return nil, err
	} else if !found {
		r.forget(key)
		return nil, nil
	}
	if r.written.Stale(w.rem) {
		return nil, consistency.ErrStale
	}
	ours, err := r.survey(ctx, w)
	switch {
	case err != nil:
		return nil, err
	case !ours:
		return nil, r.unclaim(ctx, w)
	}
	return w, nil
}

// forget forgets a remediation that is gone.
func (r *Reconciler) forget(key client.ObjectKey) {
	r.Claims.End(r.Kind.Kind, key)
	r.UnderWay.forget(r.Kind.Kind, key)
	r.written.Forget(key)
}

// read reads the remediation called key, and reports whether there is one.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, w *observed) (bool, error) {
	err := r.Client.Get(ctx, key, w.rem.Unwrapped())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s %s: %w", r.Kind.Kind, key, err)
	}
	w.stored = metadataOf(w.rem)
	return err == nil, nil
}

// survey finds out all that a step for the remediation of w is decided on. It reports false if there is nothing to decide.
func (r *Reconciler) survey(ctx context.Context, w *observed) (bool, error) {
	w.policy, w.kind = policyOf(w.rem.Strategy()), r.Kind
	w.record, _ = recordOf(w.rem) // what cannot be read has failed, and says so
	if err := r.observeMachine(ctx, w); err != nil {
		return false, err
	}
	if err := r.doubt(ctx, w); err != nil {
		return false, err
	}
	if r.standsBack(w) {
		return false, nil
	}
	if ownerOf(w.rem) == nil && r.untouched(w) {
		w.ownerless = true
		return true, nil
	}
	if err := r.observeHost(ctx, w); err != nil {
		return false, err
	}
	if err := r.observeDeletion(ctx, w); err != nil {
		return false, err
	}
	return true, r.stateFacts(ctx, w)
}

// stateFacts states what a step is decided on, by what w remembers.
func (r *Reconciler) stateFacts(ctx context.Context, w *observed) error {
	w.sight = sight{}
	w.facts = r.factsOf(w)
	r.observeNode(ctx, w)
	r.placeInQueue(ctx, w)
	for _, err := range w.unasked {
		if errors.Is(err, consistency.ErrStale) {
			return err // what the cache of hosts has of another member is known in a moment
		}
	}
	return nil
}

// standsBack reports whether the remediation is none of ours, or asks for nothing.
//
// Without a strategy nothing is done, as CAPM3 has it. If it was taken away in the middle, what was begun is ended.
func (r *Reconciler) standsBack(w *observed) bool {
	filtered := r.WatchFilterValue != "" && w.rem.GetLabels()[clusterv1.WatchLabel] != r.WatchFilterValue &&
		(w.cluster == nil || w.cluster.Labels[clusterv1.WatchLabel] != r.WatchFilterValue)
	ours := !r.untouched(w) && w.record.Filter == r.WatchFilterValue // what was begun is ended, also if the label is gone
	return filtered && !ours || (!asked(w.rem) || r.Leaving) && r.untouched(w)
}

// untouched reports whether nothing was done for the remediation yet.
func (r *Reconciler) untouched(w *observed) bool {
	return w.record.State == "" && (r.Off && r.Kind.signsNothing() || !controllerutil.ContainsFinalizer(w.rem, r.Kind.Finalizer))
}

// pause is what pauses the remediation; empty if nothing does.
func (w *observed) pause() explain.Pause {
	switch {
	case w.moved():
		return explain.PausedByMove
	case annotations.HasPaused(w.rem):
		return explain.PausedByItself
	case w.cluster != nil && ptr.Deref(w.cluster.Spec.Paused, false):
		return explain.PausedWithCluster
	}
	return ""
}

// moved reports whether clusterctl has moved the remediation elsewhere, and left this one behind to be deleted.
func (w *observed) moved() bool {
	_, moved := w.rem.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}

// asked reports whether the remediation asks for anything that we know.
func asked(rem Object) bool {
	s := rem.Strategy()
	return s != nil && s.Reboots
}

// observeMachine reads the machine that owns the remediation, and its cluster. Of a machine that is gone the cluster is remembered: its
// node may still be there, and be fenced by us. (Nor need the machine be named any more: of a remediation with another owner, such as a
// NodeHealthCheck, the garbage collector takes the reference to it away.)
func (r *Reconciler) observeMachine(ctx context.Context, w *observed) error {
	cluster, namespace := w.record.Cluster, w.rem.GetNamespace()
	if owner := ownerOf(w.rem); owner != nil {
		m, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: namespace, Name: owner.Name}
		err := r.Client.Get(ctx, key, m, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			err = r.Live.Get(ctx, key, m)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read machine %s: %w", key, err)
		}
		if err == nil && m.UID == owner.UID {
			w.machine, cluster = m, m.Spec.ClusterName
		}
	}
	if cluster == "" {
		return nil
	}
	return r.observeCluster(ctx, w, client.ObjectKey{Namespace: namespace, Name: cluster})
}

// observeDeletion reads the machine past the cache if its host is switched off: who deletes a machine does that, and the cache of hosts may show
// it before that of machines shows why. The remediation would fail for the host, and warn of that, where it only ends.
func (r *Reconciler) observeDeletion(ctx context.Context, w *observed) error {
	if w.machine == nil || w.found.Is != powercycle.HostOurs || w.power.Wanted || w.record.State.Final() {
		return nil
	}
	m, key := &clusterv1.Machine{}, client.ObjectKeyFromObject(w.machine)
	err := r.Live.Get(ctx, key, m)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read machine %s: %w", key, err)
	case err != nil || m.UID != w.machine.UID:
		w.machine = nil
	default:
		w.machine = m
	}
	return nil
}

func (r *Reconciler) observeCluster(ctx context.Context, w *observed, key client.ObjectKey) error {
	cluster := &clusterv1.Cluster{}
	err := r.Client.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, cluster)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read cluster %s: %w", key, err)
	}
	if err == nil {
		w.cluster = cluster
	}
	return nil
}

// ownerOf returns the reference to the machine that owns rem, or nil.
func ownerOf(rem client.Object) *metav1.OwnerReference {
	for _, owner := range rem.GetOwnerReferences() {
		if gv := owner.APIVersion; owner.Kind == "Machine" && schema.FromAPIVersionAndKind(gv, owner.Kind).Group == clusterv1.GroupVersion.Group {
			return &owner
		}
	}
	return nil
}

// observeHost finds the machine's host.
func (r *Reconciler) observeHost(ctx context.Context, w *observed) error {
	w.found = host.Found{Is: powercycle.HostGone, Why: "the machine does not exist"}
	if w.machine != nil {
		var err error
		w.found, err = r.Hosts.Of(ctx, w.machine)
		if leaving := !w.rem.GetDeletionTimestamp().IsZero(); meta.IsNoMatchError(err) && leaving {
			w.found = host.Found{Is: powercycle.HostGone, Why: err.Error()} // what is not known any more keeps nobody from letting go
		} else if err != nil {
			return err
		}
	}
	if err := r.rememberHost(ctx, w); err != nil {
		return err
	}
	w.power = host.PowerOf(w.found.Host)
	return nil
}

// rememberHost puts the host that is remembered in the place of the one that was found if it bears marks of ours: a machine that is said to have
// another host now, or none, must not leave the former one off for ever. Without such a mark a name alone is remembered, and it could be any host's.
func (r *Reconciler) rememberHost(ctx context.Context, w *observed) error {
	if w.record.Host == "" || w.found.Host != nil && w.found.Host.Name == w.record.Host {
		return nil
	}
	former, err := r.Hosts.Named(ctx, w.rem.GetNamespace(), w.record.Host)
	if err != nil || former == nil {
		return err
	}
	marks := host.MarksOf(former, w.record.by(w.rem), w.record.Attempt, w.record.Asked)
	marked := w.machine != nil && host.MarkedFor(former) == w.machine.UID
	switch {
	case w.found.Host == nil && (marks.Any || marked):
		w.found.Host = former
	case marks.Any:
		w.found = host.Found{
			Host: former, Is: powercycle.HostForeign,
			Why: fmt.Sprintf("the machine's host was BareMetalHost %s, and is said to be %s now", former.Name, w.found.Host.Name),
		}
	}
	return nil
}

// marks are those of the remediation on its host.
func (w *observed) marks() host.Marks {
	return host.MarksOf(w.found.Host, w.record.by(w.rem), w.record.Attempt, w.record.Asked)
}

// factsOf states what is known but of the node and of the turn.
func (r *Reconciler) factsOf(w *observed) powercycle.Facts {
	marks := w.marks()
	_, stop := w.rem.GetAnnotations()[nhcv1.TimedOutAnnotation]
	f := powercycle.Facts{
		Memory:    w.record.Memory,
		Deleting:  !w.rem.GetDeletionTimestamp().IsZero() || !asked(w.rem),
		Finalizer: controllerutil.ContainsFinalizer(w.rem, r.Kind.Finalizer),
		Stop:      stop,
		Paused:    w.pause() != "" && !r.Leaving, // who leaves has no later
		Leaving:   r.Leaving,
		Machine:   powercycle.MachineGone,
		Host:      w.found.Is, HostAnew: w.found.Host != nil && w.record.HostUID != "" && w.record.HostUID != w.found.Host.UID,
		Wanted: w.power.Wanted, PoweredOn: w.power.On, Acts: w.power.Unmanaged == "",
		Said: w.power.Said, Serviced: w.power.Serviced, Provable: w.power.Provable, Sound: w.power.Provable && w.power.Doubt == "",
		ReceiptAsked: marks.ReceiptAsked, ReceiptGiven: marks.ReceiptGiven,
		NoPowerOff: w.power.NoPowerOff, PowerFails: w.power.Fails, KeptOffByOthers: w.power.KeptOffBy != "",
		KeptOff: marks.KeptOff, HasPowerAnnotations: marks.Any, RebootAsked: marks.RebootAsked, RebootPending: marks.RebootPending, HostMarked: marks.Unhealthy,
	}
	if w.machine == nil {
		return f
	}
	f.Machine = powercycle.MachinePresent
	if !w.machine.DeletionTimestamp.IsZero() {
		f.Machine = powercycle.MachineLeaving
	}
	if w.found.Host != nil && host.MarkedFor(w.found.Host) == w.machine.UID {
		f.Marked = true
	}
	f.OwnerAsked = collections.IsUnhealthyAndOwnerRemediated(w.machine)
	_, f.ControlPlane = w.machine.Labels[clusterv1.MachineControlPlaneLabel]
	return f
}

// policyOf is what is tried for a remediation that asks for s, and how long it waits for what.
func policyOf(s *Strategy) powercycle.Policy {
	p := powercycle.Policy{
		Retries: infrav1.DefaultRetryLimit, Timeout: infrav1.DefaultTimeoutSeconds * time.Second, Move: move, Releasing: releasing,
		Settle: settle, Doubt: doubt, Watch: watch, Skew: skew, Servicing: servicing, Unreachable: unreachable, Queue: queue,
	}
	if s != nil {
		p.Retries, p.Timeout = s.Retries, s.Timeout
	}
	return p
}
