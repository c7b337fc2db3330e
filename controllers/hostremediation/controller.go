// Package hostremediation power-cycles the bare-metal hosts of unhealthy machines. It reconciles CAPM3's Metal3Remediations and kubemend's
// HostRemediations with the same code.
//
// A reconcile observes, decides on a step, carries it out and reports it. Only package powercycle decides which step comes next.
package hostremediation

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/flags"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

// RBAC of this controller in the management cluster, besides that of package host.
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations/status,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=get;list;watch

// RBAC to store the objects of these kinds in the current version (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=hostremediations.kubemend.io;hostremediationtemplates.kubemend.io;metal3remediations.infrastructure.cluster.x-k8s.io;metal3remediationtemplates.infrastructure.cluster.x-k8s.io,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations;hostremediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates/status,verbs=patch

const (
	// fenceWithin is how long the fence may take after the host was seen off. A client whose rate limiter would wait longer gives up at
	// once.
	fenceWithin = 3 * time.Second
	// retry is the delay after something that could not be done yet.
	retry = time.Second
)

// Reconciler reconciles the remediations of one kind.
type Reconciler struct {
	Kind remediation.Kind
	// Installed returns also kinds that kubemend does not act on, because their remediations count in the queue: only one control-plane
	// host of a cluster may be power-cycled at a time.
	Installed remediation.Installed

	// Client reads from caches and writes to the management cluster. Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Hosts    Hosts
	Clusters Clusters
	Nodes    Nodes
	Gate     *begin.Gate      // shared by all kinds
	Ledger   *policy.Ledger   // of the places under RemediationPolicies; nil in a process that writes nothing
	Records  *records.Records // nil if no RemediationRecords are written
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// WatchFilterValue is the value of cluster.x-k8s.io/watch-filter that a remediation, or its Cluster, must have. (package shard)
	WatchFilterValue string
	// Verify asks the workload cluster whether it is still the one of that Cluster; nil in a process that writes nothing.
	Verify func(ctx context.Context, cluster client.ObjectKey) error
	// Finds returns whether that MachineHealthCheck finds the Machine healthy, and whether this is known. It may be nil.
	Finds func(check client.ObjectKey, machine types.UID) (healthy, known bool)
	// Reader returns an uncached reader of a workload cluster. If nil, the leases of API servers are not read.
	Reader func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// Self says where the manager runs.
	Self Self
	// Teardown says that kubemend is being removed: no remediation begins, and those under way release their hosts and lose their records.
	Teardown bool
	// Off says that only this kind is switched off, so that another controller may act on it. Only remediations that kubemend began are
	// ended. Off is set together with Teardown.
	Off bool
	// Unwatched says that no manager runs the reconciles, so that the caller has to reconcile again after every change.
	Unwatched bool

	controller atomic.Pointer[controller.Controller] // nil until SetupWithManager has run
	written    consistency.Writes
	stale      consistency.Waits
	kept       sync.Map // what this process knows of a remediation and does not store, by its key
	idle       atomic.Bool
	switched   enqueue.Broadcast[struct{}] // tells that idle has changed
}

// Serve makes r act on its kind, or not: two controllers that act on a kind would undo each other's work. The other controller continues
// what is under way, from the same annotations.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle == does {
		r.switched.Send(struct{}{})
		r.kept.Clear() // the other controller may remove the stored records
	}
}

// Reconcile takes all steps of a remediation that only change its memory, and then one step that acts on host, node or machine, or that
// waits.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.idle.Load() {
		r.Ledger.Forget(r.placeOf(req.NamespacedName))
		return r.yield(ctx, req.NamespacedName)
	}
	obs, step, err := r.plan(ctx, req.NamespacedName, nil)
	r.reportPlace(ctx, req.NamespacedName, obs, err)
	done := false
	switch {
	case err != nil || obs == nil:
	case obs.begins(step):
		var unread error // kept apart from err: nothing was written, so no answer was lost
		err = r.Gate.Begin(ctx, string(obs.rem.GetUID()), obs.scopes(), func(ctx context.Context) error {
			if obs, step, unread = r.plan(ctx, req.NamespacedName, obs); unread != nil || obs == nil {
				return nil //nolint:nilerr // unread is returned below
			}
			done, err = r.apply(ctx, obs, step)
			return err
		})
		r.settlePlace(req.NamespacedName, obs, err)
		err = cmp.Or(err, unread)
	default:
		done, err = r.apply(ctx, obs, step)
	}
	if errors.Is(err, begin.ErrBusy) {
		return ctrl.Result{RequeueAfter: retry}, r.reportBusy(ctx, obs)
	}
	if errors.Is(err, consistency.ErrStale) { // nothing was written yet
		return ctrl.Result{RequeueAfter: r.stale.Next(req.NamespacedName)}, nil
	}
	r.stale.Reset(req.NamespacedName)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil // another client wrote first, and the cache will show that soon
	case err != nil:
		return ctrl.Result{}, err
	case obs == nil || obs.idle != "":
		return ctrl.Result{}, nil
	}
	if step.Reason == powercycle.ManagerRunsHereReason {
		r.Self.giveUpLeadership(ctx)
	}
	return r.next(obs, step, done), nil
}

// plan observes the remediation and decides on its next step. first is nil, or what was observed when the remediation was about to begin;
// then the queue is read past the cache, to confirm that it may begin.
func (r *Reconciler) plan(ctx context.Context, key client.ObjectKey, first *observed) (*observed, powercycle.Step, error) {
	obs, err := r.observe(ctx, key, first)
	if err != nil || obs == nil {
		return obs, powercycle.Step{}, err
	}
	step, err := r.decide(ctx, obs)
	if err != nil {
		return nil, step, err
	}
	return obs, step, nil
}

// mostRemembered exceeds the number of steps that a reconcile can take without acting.
const mostRemembered = 10

// decide takes the steps that only change the memory, and returns the one after them. After each step it states the facts again, because
// the memory determines what has to be read.
func (r *Reconciler) decide(ctx context.Context, obs *observed) (powercycle.Step, error) {
	for n := 0; ; n++ {
		step, err := r.verified(ctx, obs, obs.next())
		if err == nil && step.Reason == powercycle.StepUndoneReason {
			err = r.observeUndoers(ctx, obs)
		}
		if err != nil || !step.Do.Remembered() || n == mostRemembered {
			return step, err
		}
		if err := r.took(obs, step); err != nil {
			return step, err
		}
		if err := r.stateFacts(ctx, obs); err != nil {
			return step, err
		}
	}
}

// verified returns step. If step condemns the machine, or retries, but another workload cluster answers now, it returns what is decided
// instead.
func (r *Reconciler) verified(ctx context.Context, obs *observed, step powercycle.Step) (powercycle.Step, error) {
	if r.Verify == nil || obs.cluster == nil || obs.facts.ClusterChanged || !step.Condemns() {
		return step, nil
	}
	asking, done := obs.answering(ctx)
	defer done()
	if r.Verify(asking, client.ObjectKeyFromObject(obs.cluster)) == nil {
		return step, nil
	}
	err := r.stateFacts(ctx, obs)
	return obs.next(), err
}

// next returns the step that follows from the facts. It waits if the remediation lacks something that its creator may still add.
func (obs *observed) next() powercycle.Step {
	if obs.idle != "" {
		return powercycle.Step{Do: powercycle.Wait, Next: powercycle.Pending, Reason: obs.idle}
	}
	return powercycle.Next(obs.facts, obs.policy, obs.now)
}

// next returns when to reconcile again: at the time that the step names, at once after a step was done, or soon after stale caches have
// prevented a step.
func (r *Reconciler) next(obs *observed, step powercycle.Step, done bool) ctrl.Result {
	at := step.Again
	switch {
	case step.Do != powercycle.Wait && done:
		at = obs.now.Add(consistency.Wait(1))
	case step.Do != powercycle.Wait:
		at = obs.now.Add(retry)
	}
	if !obs.recheck.IsZero() && (at.IsZero() || obs.recheck.Before(at)) {
		at = obs.recheck
	}
	if step.Do == powercycle.DropFinalizer {
		return ctrl.Result{}
	}
	return enqueue.At(at, r.Clock.Now())
}

// Hosts reads hosts, changes their power, and marks them unhealthy, so that CAPM3 puts no machine on them; host.Hosts implements it for
// BareMetalHosts. Every implementation must keep this contract. Each method is safe to repeat and changes nothing of others. A method that
// powers a host off or on fails with a conflict if the host has changed since it was read. Power reports only what the implementation
// itself has read from the hardware, and when.
type Hosts interface {
	Of(ctx context.Context, m *clusterv1.Machine) (host.Found, error)
	Named(ctx context.Context, key client.ObjectKey) (*host.Host, error)
	Refresh(ctx context.Context, found *host.Found) error

	KeepOff(ctx context.Context, h metav1.Object, by host.Remediation) error
	AskReceipt(ctx context.Context, h metav1.Object, by host.Remediation, asked time.Time) error
	Reboot(ctx context.Context, h metav1.Object, by host.Remediation, attempt int) error
	Release(ctx context.Context, h metav1.Object, by host.Remediation) error
	ReleaseUnstored(ctx context.Context, h metav1.Object, by host.Remediation, attempt int) error

	MarkUnhealthy(ctx context.Context, h metav1.Object, machine types.UID) error
	MarkHealthy(ctx context.Context, h metav1.Object, machine types.UID) error
	Disprove(ctx context.Context, h metav1.Object, now time.Time) error
}

// Nodes reads and fences nodes; fence.Nodes implements it.
type Nodes interface {
	Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
	Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
}

// Clusters are the workload clusters; workload.Clusters implements it.
type Clusters interface {
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
}

var (
	_ Hosts    = (*host.Hosts)(nil)
	_ Nodes    = fence.Nodes{}
	_ Clusters = (*workload.Clusters)(nil)
)

// Self says where the manager runs, and how it hands over before its own host is powered off. The zero value runs on no known node.
type Self struct {
	// Node is the name of the manager's node, and BootID its boot ID: another cluster may have a node with that name.
	Node, BootID string
	// Elsewhere reports whether another replica is ready on another node. It may be nil.
	Elsewhere func(context.Context) (bool, error)
	// StandDown ends this replica, so that another one becomes the leader.
	StandDown func()
}

// on reports whether the manager is known to run on the host of obs.
func (s Self) on(obs *observed) bool {
	if s.Node == "" || s.BootID == "" || obs.nodeName() != s.Node {
		return false
	}
	return obs.node != nil && obs.node.Status.NodeInfo.BootID == s.BootID || obs.node == nil && obs.record.BootID == s.BootID
}

// giveUpLeadership ends this replica if another one is ready, which may then power off the host of this one. In doubt this replica stays,
// because that is safe.
func (s Self) giveUpLeadership(ctx context.Context) {
	if s.Elsewhere == nil || s.StandDown == nil {
		return
	}
	switch ready, err := s.Elsewhere(ctx); {
	case err != nil:
		log.FromContext(ctx).Error(err, "Cannot tell whether another replica could take over")
	case ready:
		log.FromContext(ctx).Info("Giving up leadership: another replica has to power-cycle the host that this one runs on", "Node", s.Node)
		s.StandDown()
	}
}

// Options are the settings of the controllers that power-cycle hosts.
type Options struct {
	OrphanGrace time.Duration
	Concurrency int
}

// AddFlags adds the controllers' flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Func("fencing", "Removed.", func(mode string) error {
		if mode == "auto" || mode == "taint" { // older manifests may have the flag; these values mean what is done anyway
			return nil
		}
		return errors.New("nodes are fenced by the out-of-service taint alone, " +
			"which every Kubernetes that Cluster API supports has: remove the flag")
	})
	_ = fs.MarkHidden("fencing") // it cannot fail: the flag exists
	fs.DurationVar(&o.OrphanGrace, "orphan-grace-period", 5*time.Minute,
		"How long an annotation that keeps a BareMetalHost powered off, or the fence of a node, stays when its remediation does not exist.")
	fs.IntVar(&o.Concurrency, "hostremediation-concurrency", 20,
		"Number of remediations of hosts, of each kind, to process at the same time.")
}

// Validate returns every invalid value.
func (o *Options) Validate() error {
	return errors.Join(flags.Positive("hostremediation-concurrency", o.Concurrency),
		flags.NotNegative("orphan-grace-period", o.OrphanGrace))
}
