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

// observed is what one reconcile has read and decides on.
type observed struct {
	now time.Time
	rem remediation.Object

	cluster *clusterv1.Cluster // nil if it does not exist
	machine *clusterv1.Machine // nil if it is gone
	found   host.Found
	// unverified says that kubemend could not read which host is the machine's.
	unverified bool

	// stored is the metadata of rem that the API server has.
	stored *metav1.PartialObjectMetadata
	// saved says that the API server has all of rem's metadata, or that rem is gone.
	saved bool
	// taken are the steps that this reconcile has taken.
	taken []taken
	kept  *kept
	// answersUntil is the deadline for all answers of the workload cluster; zero before the first question.
	answersUntil time.Time
	// queue is what may have to go first; nil until it is read.
	queue *powercycle.Queue
	// existing are the remediations of the namespace, read with the queue.
	existing remediation.Existing
	// confirms says that the queue is read past the cache, because the remediation is about to begin.
	confirms bool
	// member says that the machine was a member of a control plane when that was decided.
	member bool

	record remediation.Record
	facts  powercycle.Facts
	policy powercycle.Policy
	// loop is the earlier power cycles of the host that did not last.
	loop repeats.Loop
	// loopUntil is until when the remediation waits because of loop, or for the records.
	loopUntil time.Time

	// lastNode is the node when it was last seen in this reconcile; nil if it was not. Steps can be taken without the workload cluster.
	lastNode *corev1.Node
	// unfenced is the node as this reconcile has left it after unfencing; nil if it did not unfence.
	unfenced *fence.Seen
	// idle is why nothing is or was done for the remediation; empty otherwise.
	idle powercycle.Reason
	observation
}

// observation is what was observed of the node and the queue. It depends on the memory, and is renewed after each step.
type observation struct {
	node *corev1.Node // from the cache; nil if the cache does not have it
	seen fence.Seen   // from the workload cluster, if a step depends on it

	// predecessor is the UID of a remediation that is gone and whose fence is on the node; empty if there is none.
	predecessor types.UID
	// recheck is when to reconcile again even if no event comes.
	recheck time.Time
}

// taken is a step, with the facts on which it was decided and the record after it.
type taken struct {
	observed
	step powercycle.Step
}

// observe observes the remediation called key. first is what this reconcile has observed before; nil at first. The result is nil if there
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

// read reads the remediation called key. It returns false if the remediation does not exist.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, obs *observed) (bool, error) {
	err := r.Client.Get(ctx, key, obs.rem.Unwrapped())
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s %s: %w", r.Kind.Kind, key, err)
	}
	obs.stored = metadataOf(obs.rem, r.Kind)
	r.recall(obs)
	return err == nil, nil
}

// survey reads everything that the next step depends on. It returns false if kubemend does not act on the remediation.
func (r *Reconciler) survey(ctx context.Context, obs *observed) (bool, error) {
	obs.record, _ = remediation.RecordOf(obs.rem) // if it cannot be read, RecordOf returns that of a failed remediation
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

// checkRecord drops from the record what cannot be true: a former UID of another remediation, and moments in the future.
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

// stateFacts states the facts for the next step. They depend on the memory.
func (r *Reconciler) stateFacts(ctx context.Context, obs *observed) error {
	obs.observation = observation{}
	obs.facts = r.factsOf(obs)
	if obs.unverified || obs.found.Host == nil && !obs.record.State.Final() { // no event tells that a host has come
		obs.recheckAfter(unreachableRecheck)
	}
	if obs.now.Before(obs.loopUntil) && obs.loop.Times == 0 {
		obs.recheckAfter(retry) // no event tells that the records can be read
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

// idleFor returns why nothing is done for a remediation that has not begun; empty if it is to begin or has begun. Without a strategy
// nothing is done, as in CAPM3. A remediation that has begun ends if its strategy is removed.
func (r *Reconciler) idleFor(obs *observed) powercycle.Reason {
	switch {
	case !r.untouched(obs):
		return ""
	case !wantsReboot(obs.rem):
		return powercycle.NoStrategyReason
	case remediation.OwnerOf(obs.rem) == nil:
		return powercycle.NoOwnerReason
	}
	return ""
}

func (r *Reconciler) actsOn(obs *observed) bool {
	filtered := !capi.Covers(r.WatchFilterValue, obs.rem, obs.cluster)
	began := !r.untouched(obs)
	ours := began && obs.record.Filter == r.WatchFilterValue // it is finished even if its label was removed
	return (!filtered || ours) && (began || !r.Teardown)
}

func (r *Reconciler) untouched(obs *observed) bool {
	return obs.record.State == "" && (r.Off && r.Kind.SignsNothing() || !controllerutil.ContainsFinalizer(obs.rem, r.Kind.Finalizer))
}

// pause says what pauses the remediation, as a clause; empty if nothing does.
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

// wantsReboot reports whether the remediation asks for a power cycle (strategy Reboot).
func wantsReboot(rem remediation.Object) bool {
	s := rem.Strategy()
	return s != nil && s.Type == infrav1.RebootRemediationStrategy
}

// observeMachine reads the Machine that owns the remediation, and its Cluster. If the Machine is gone, the Cluster in the record is used,
// because the node may still be fenced. The owner reference may be gone too: the garbage collector removes it if there is another owner,
// such as a NodeHealthCheck.
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
	default: // a read error must not keep the host off, nor the remediation
		obs.found.Why, obs.found.Named, obs.unverified = workload.Plain(err), obs.record.Touched, true
	}
	return r.rememberHost(ctx, obs)
}

// rememberHost replaces the host that was found by the host in the record if that still has annotations of this remediation. If the machine
// has another host now, or none, the former host must not stay off for ever. The name in the record alone proves nothing.
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

func (obs *observed) marks() powercycle.Marks {
	if obs.found.Host == nil {
		return powercycle.Marks{}
	}
	return host.MarksOf(obs.found.Host, obs.record.By(obs.rem), obs.record.Attempt, obs.record.Asked)
}

// factsOf states the facts, except those of the node and the queue.
func (r *Reconciler) factsOf(obs *observed) powercycle.Facts {
	power, marks := powercycle.Power{Unmanaged: "there is no host"}, obs.marks()
	if obs.found.Host != nil {
		power = obs.found.Host.Power
	}
	_, stop := obs.rem.GetAnnotations()[nhcv1.TimedOutAnnotation]
	pause := obs.pause()
	f := powercycle.Facts{
		Memory: obs.record.Memory, Did: obs.didBefore(),
		Deleting:  !obs.rem.GetDeletionTimestamp().IsZero() || !wantsReboot(obs.rem),
		Finalizer: controllerutil.ContainsFinalizer(obs.rem, r.Kind.Finalizer),
		Stop:      stop,
		Paused:    pause != "" && !r.Teardown, // kubemend must end now, even in a pause
		Pause:     pause,
		Teardown:  r.Teardown,
		Machine:   powercycle.MachineGone,
		Host:      obs.found.Is, Mismatch: obs.found.Why,
		HostAnew:    obs.found.Host != nil && obs.record.HostUID != "" && obs.record.HostUID != obs.found.Host.UID,
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
	f.Unhealthy = remediation.MarkedUnhealthy(obs.machine) // the node may not be seen at first, and be healthy later
	f.Ownerless = metav1.GetControllerOf(obs.machine) == nil
	f.OwnerAsked = collections.IsUnhealthyAndOwnerRemediated(obs.machine)
	_, labelled := obs.machine.Labels[clusterv1.MachineControlPlaneLabel]
	f.ControlPlane = labelled || obs.record.ControlPlane
	return f
}

// policyOf returns the policy for the strategy s; nil stands for the defaults. bootSeconds comes from the last boot of the host. Values
// above the limits, which CAPM3's CRD allows, are lowered to the limits.
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
