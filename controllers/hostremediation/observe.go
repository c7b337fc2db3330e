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
	now time.Time
	rem remediation.Object

	cluster *clusterv1.Cluster // nil if it does not exist
	machine *clusterv1.Machine // nil if it is gone
	found   host.Found
	// unverified says that it could not be read which host is the machine's.
	unverified bool

	// rem has what the remediation remembers; stored is what of that the API server has, saved says that it has all of it, or that the
	// remediation is gone. taken are the steps that were taken.
	stored *metav1.PartialObjectMetadata
	saved  bool
	taken  []taken
	kept   *kept
	// answersUntil is when the workload cluster has to have answered all that it is asked; zero before it is.
	answersUntil time.Time
	// queue is what may go first, existing are the remediations of its namespace, and members are those of its control plane; nil before
	// they are read.
	queue    *powercycle.Queue
	existing remediation.Existing
	members  []planeMember
	// confirms says that what may go first is read past the cache, as the remediation is about to begin, and member that its machine was
	// seen to be of a control plane when that was decided.
	confirms, member bool

	record remediation.Record
	facts  powercycle.Facts
	policy powercycle.Policy
	// loop is that of the power cycles of the host before this one, loopUntil until when this one waits for it, or for it to be known.
	loop      repeats.Loop
	loopUntil time.Time

	// lastNode is the node as it was last seen: steps are taken without it, while the workload cluster does not answer. nil if it was not.
	lastNode *corev1.Node
	// unfenced is the node as this reconcile has unfenced it; nil if it has not.
	unfenced *fence.Seen
	// idle is why nothing is done for the remediation and nothing was; empty if something is.
	idle powercycle.Reason
	observation
}

// observation is what was observed of the node and of the queue. It depends on what the remediation remembers, and is made anew after each
// step.
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
	obs := &observed{now: r.Clock.Now(), rem: r.Kind.New()}
	if first != nil {
		obs.confirms, obs.member, obs.answersUntil = true, first.facts.ControlPlane, first.answersUntil
	}
	switch found, err := r.read(ctx, key, obs); {
	case err != nil:
		return nil, err
	case !found:
		r.written.Forget(key)
		r.kept.Delete(key)
		return nil, nil
	case r.written.Stale(obs.rem):
		return nil, consistency.ErrStale
	}
	if ours, err := r.survey(ctx, obs); err != nil || !ours {
		return nil, err
	}
	return obs, nil
}

// read reads the remediation called key, and reports whether there is one.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, obs *observed) (bool, error) {
	err := r.Client.Get(ctx, key, obs.rem.Unwrapped())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s %s: %w", r.Kind.Kind, key, err)
	}
	obs.stored = metadataOf(obs.rem, r.Kind)
	r.recall(obs)
	return err == nil, nil
}

// survey reads all that a step for the remediation of obs is decided on. It returns false if there is nothing to decide.
func (r *Reconciler) survey(ctx context.Context, obs *observed) (bool, error) {
	obs.record, _ = remediation.RecordOf(obs.rem) // a record that cannot be read is that of a failed remediation
	obs.record.Held = obs.kept.held
	obs.policy = policyOf(obs.rem.Strategy(), obs.record.BootSeconds)
	if err := r.observeMachine(ctx, obs); err != nil {
		return false, err
	}
	if err := r.checkRecord(ctx, obs); err != nil {
		return false, err
	}
	if !r.actsOn(obs) {
		return false, nil
	}
	if obs.idle = r.idleFor(obs); obs.idle != "" {
		return true, nil
	}
	if err := r.observeHost(ctx, obs); err != nil {
		return false, err
	}
	r.observeBoots(ctx, obs)
	r.observeLoop(ctx, obs)
	return true, r.stateFacts(ctx, obs)
}

// checkRecord drops what the record cannot have: a UID that the remediation never had, and moments that have not come.
func (r *Reconciler) checkRecord(ctx context.Context, obs *observed) error {
	obs.record.Memory = obs.record.NotAfter(obs.now)
	if obs.record.UID == "" || obs.record.UID == obs.rem.GetUID() {
		return nil
	}
	existing, err := r.Installed.In(ctx, r.Client, obs.rem.GetNamespace())
	if err != nil {
		return err
	}
	obs.record.UID = existing.Former(obs.rem)
	return nil
}

// stateFacts states the facts that a step is decided on, which depend on what obs remembers.
func (r *Reconciler) stateFacts(ctx context.Context, obs *observed) error {
	obs.observation = observation{}
	obs.facts = r.factsOf(obs)
	if obs.unverified || obs.found.Host == nil && !obs.record.State.Final() { // nothing tells that one has come that was never seen
		obs.recheckAfter(unreachableRecheck)
	}
	if obs.now.Before(obs.loopUntil) && obs.loop.Times == 0 {
		obs.recheckAfter(retry) // nothing tells that the records can be read
	}
	r.observeNode(ctx, obs)
	if node := cmp.Or(obs.node, obs.seen.Node); node != nil && node.UID != "" {
		obs.lastNode = node
	}
	obs.facts.ControlPlane = obs.facts.ControlPlane || obs.machine != nil && (obs.member || controlplane.IsMember(obs.node))
	if err := r.observeMembership(ctx, obs); err != nil {
		return err
	}
	return r.placeInQueue(ctx, obs)
}

// idleFor is why nothing is done for the remediation; empty if something is or was. Without a strategy nothing is done, as in CAPM3. If the
// strategy is removed from a remediation under way, that ends.
func (r *Reconciler) idleFor(obs *observed) powercycle.Reason {
	switch {
	case !r.untouched(obs):
		return ""
	case !asked(obs.rem):
		return powercycle.NoStrategyReason
	case remediation.OwnerOf(obs.rem) == nil:
		return powercycle.NoOwnerReason
	}
	return ""
}

// actsOn reports whether kubemend acts on the remediation: it passes the watch filter.
func (r *Reconciler) actsOn(obs *observed) bool {
	filtered := !capi.Covers(r.WatchFilterValue, obs.rem, obs.cluster)
	began := !r.untouched(obs)
	ours := began && obs.record.Filter == r.WatchFilterValue // a remediation that began ends, also without the label
	return (!filtered || ours) && (began || !r.Teardown)
}

// untouched reports whether the remediation has not begun.
func (r *Reconciler) untouched(obs *observed) bool {
	return obs.record.State == "" && (r.Off && r.Kind.SignsNothing() || !controllerutil.ContainsFinalizer(obs.rem, r.Kind.Finalizer))
}

// pause is what pauses the remediation, as a clause; empty if nothing does.
func (obs *observed) pause() string {
	if _, moved := obs.rem.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]; moved { // clusterctl has removed its other annotations
		return "because clusterctl has moved it to another management cluster, and deletes it here"
	}
	switch {
	case annotations.HasPaused(obs.rem):
		return "by its annotation " + clusterv1.PausedAnnotation
	case obs.cluster != nil && ptr.Deref(obs.cluster.Spec.Paused, false):
		return "with Cluster " + obs.cluster.Name
	case obs.machine != nil && annotations.HasPaused(obs.machine):
		return "with its Machine, by the annotation " + clusterv1.PausedAnnotation
	case obs.found.Paused:
		return "with its Metal3Machine, by the annotation " + clusterv1.PausedAnnotation
	}
	return ""
}

// asked reports whether the remediation asks for a power cycle.
func asked(rem remediation.Object) bool {
	s := rem.Strategy()
	return s != nil && s.Type == infrav1.RebootRemediationStrategy
}

// observeMachine reads the machine that owns the remediation, and its cluster. The cluster of a machine that is gone is remembered: its
// node may still be fenced by this remediation. (Nor need the owner reference exist any more: the garbage collector removes it if there is
// another owner, such as a NodeHealthCheck.)
func (r *Reconciler) observeMachine(ctx context.Context, obs *observed) error {
	cluster, namespace := obs.record.Cluster, obs.rem.GetNamespace()
	if owner := remediation.OwnerOf(obs.rem); owner != nil {
		m, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: namespace, Name: owner.Name}
		found, err := consistency.Read(ctx, r.Client, r.Live, key, m, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("read machine %s: %w", key, err)
		}
		if found && m.UID == owner.UID {
			obs.machine, cluster = m, m.Spec.ClusterName
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
		obs.cluster = c
	}
	return nil
}

// observeHost finds the machine's host.
func (r *Reconciler) observeHost(ctx context.Context, obs *observed) error {
	obs.found = host.Found{Is: powercycle.HostGone, Why: "the machine does not exist"}
	if obs.machine == nil {
		return r.rememberHost(ctx, obs)
	}
	found, err := r.Hosts.Of(ctx, obs.machine)
	leaving := meta.IsNoMatchError(err) && !obs.rem.GetDeletionTimestamp().IsZero()
	switch {
	case err == nil:
		obs.found = found
	case errors.Is(err, consistency.ErrStale), !leaving && !obs.record.Touched:
		return err
	default: // that it cannot be read whose the host is must not keep it off, nor the remediation
		obs.found.Why, obs.found.Named, obs.unverified = workload.Plain(err), obs.record.Touched, true
	}
	return r.rememberHost(ctx, obs)
}

// rememberHost replaces the host that was found by the one in the record if that has annotations of this remediation: when the machine has
// another host now, or none, the former one must not stay off for ever. Without such an annotation the name alone is no proof.
func (r *Reconciler) rememberHost(ctx context.Context, obs *observed) error {
	if obs.record.Host == "" || obs.found.Host != nil && obs.found.Host.Name == obs.record.Host {
		return nil
	}
	former, err := r.Hosts.Named(ctx, client.ObjectKey{Namespace: obs.rem.GetNamespace(), Name: obs.record.Host})
	if err != nil || former == nil {
		return err
	}
	marks := host.MarksOf(former, obs.record.By(obs.rem), obs.record.Attempt, obs.record.Asked)
	marked := obs.machine != nil && host.MarkedFor(former) == obs.machine.UID
	switch {
	case obs.found.Host == nil && (marks.HasPowerAnnotations || marked):
		obs.found.Host = former
	case marks.HasPowerAnnotations:
		obs.found = host.Found{
			Host: former, Is: powercycle.HostForeign,
			Why: fmt.Sprintf("the machine's host was BareMetalHost %s, and is BareMetalHost %s now", former.Name, obs.found.Host.Name),
		}
	}
	return nil
}

// marks are the annotations of the remediation on its host.
func (obs *observed) marks() powercycle.Marks {
	if obs.found.Host == nil {
		return powercycle.Marks{}
	}
	return host.MarksOf(obs.found.Host, obs.record.By(obs.rem), obs.record.Attempt, obs.record.Asked)
}

// factsOf states the facts, but for the node and the queue.
func (r *Reconciler) factsOf(obs *observed) powercycle.Facts {
	power, marks := powercycle.Power{Unmanaged: "there is no host"}, obs.marks()
	if obs.found.Host != nil {
		power = obs.found.Host.Power
	}
	_, stop := obs.rem.GetAnnotations()[nhcv1.TimedOutAnnotation]
	f := powercycle.Facts{
		Memory: obs.record.Memory, Did: obs.didBefore(),
		Deleting:  !obs.rem.GetDeletionTimestamp().IsZero() || !asked(obs.rem),
		Finalizer: controllerutil.ContainsFinalizer(obs.rem, r.Kind.Finalizer),
		Stop:      stop,
		Paused:    obs.pause() != "" && !r.Teardown, // nothing goes on later
		Teardown:  r.Teardown,
		Machine:   powercycle.MachineGone,
		Host:      obs.found.Is, HostAnew: obs.found.Host != nil && obs.record.HostUID != "" && obs.record.HostUID != obs.found.Host.UID,
		HostUnnamed: obs.found.Unnamed(obs.record.Host), Power: power, Marks: marks,
		Disproved: obs.found.Is == powercycle.HostOurs && host.Disproved(obs.found.Host),
		Loop:      obs.loop, LoopUntil: obs.loopUntil,
	}
	if obs.machine == nil {
		return f
	}
	f.Machine = powercycle.MachinePresent
	if !obs.machine.DeletionTimestamp.IsZero() {
		f.Machine = powercycle.MachineDeleting
	}
	if obs.found.Host != nil && host.MarkedFor(obs.found.Host) == obs.machine.UID {
		f.Marked = true
	}
	f.Unhealthy = remediation.MarkedUnhealthy(obs.machine) // its node may not be seen at first, and be well when the host may be powered off
	f.Ownerless = metav1.GetControllerOf(obs.machine) == nil
	f.OwnerAsked = collections.IsUnhealthyAndOwnerRemediated(obs.machine)
	_, labelled := obs.machine.Labels[clusterv1.MachineControlPlaneLabel]
	f.ControlPlane = labelled || obs.record.ControlPlane
	return f
}

// policyOf is the policy of a remediation with the strategy s; nil stands for the defaults. bootSeconds are by the last boot of its host.
// Numbers beyond the limits, which the CRD of CAPM3 does not have, are brought down to them.
func policyOf(s *mendv1.HostRemediationStrategy, bootSeconds int64) powercycle.Policy {
	if s == nil {
		s = &mendv1.HostRemediationStrategy{}
	}
	seconds := func(n int64) time.Duration { return time.Duration(min(n, mendv1.MaxTimeoutSeconds)) * time.Second }
	return powercycle.PolicyOf(
		int(min(ptr.Deref(s.RetryLimit, infrav1.DefaultRetryLimit), mendv1.MaxRetryLimit)),
		seconds(cmp.Or(int64(s.TimeoutSeconds), infrav1.DefaultTimeoutSeconds)),
		seconds(cmp.Or(int64(s.BootTimeoutSeconds), bootSeconds, mendv1.DefaultBootTimeoutSeconds)),
	)
}
