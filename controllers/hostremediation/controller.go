// Package hostremediation power-cycles the bare-metal hosts of unhealthy machines: it reconciles Metal3Remediations, CAPM3's kind, and
// HostRemediations, kubemend's own, by the same code.
//
// A reconcile observes, decides, applies what was decided and reports it. Package powercycle alone decides which step comes next.
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

// RBAC to store what is of these kinds anew (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=hostremediations.kubemend.io;hostremediationtemplates.kubemend.io;metal3remediations.infrastructure.cluster.x-k8s.io;metal3remediationtemplates.infrastructure.cluster.x-k8s.io,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations;hostremediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=list;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates/status,verbs=patch

const (
	// fenceWithin is how old the facts about the host's power may be when its node is fenced. A client that has to wait for its rate limit
	// gives up at once if that would take longer.
	fenceWithin = 3 * time.Second
	// retry is when to reconcile again after something that could not be done yet.
	retry = time.Second
)

// Reconciler reconciles the remediations of one kind.
type Reconciler struct {
	Kind remediation.Kind
	// Installed has also kinds that kubemend does not act on: of two control-plane hosts of one cluster only one may be power-cycled at a
	// time.
	Installed remediation.Installed

	// Client reads from caches and writes to the management cluster, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Hosts    Hosts
	Clusters Clusters
	Nodes    Nodes
	Gate     *begin.Gate      // of all kinds
	Ledger   *policy.Ledger   // gives places by RemediationPolicies; nil for a reader that writes nothing
	Records  *records.Records // nil: none are written
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a remediation, or its Cluster, must have. (package
	// shard)
	WatchFilterValue string
	// Verify asks a workload cluster live whether it is still the one that the Cluster keeps; nil for a reader that writes nothing.
	Verify func(ctx context.Context, cluster client.ObjectKey) error
	// Finds is what a MachineHealthCheck finds of a Machine that other checks select too; false if that is not known. It may be nil.
	Finds func(check client.ObjectKey, machine types.UID) (healthy, known bool)
	// Reader returns a reader of a workload cluster that reads past all caches. If nil, the leases of API servers are not read.
	Reader func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// Self is where the manager runs.
	Self Self
	// Teardown says that kubemend is being removed: no remediation begins, those that are under way release their hosts, and their records
	// are removed.
	Teardown bool
	// Off says that the kind is switched off, and not all of kubemend: another controller may act on it. Only remediations that began here
	// end. It comes with Teardown.
	Off bool
	// Unwatched says that no manager runs the reconciles: the caller reconciles again after every change.
	Unwatched bool

	controller atomic.Pointer[controller.Controller] // nil until it is set up
	written    consistency.Writes
	stale      consistency.Waits
	kept       sync.Map // what this process knows of a remediation besides what is stored, by its key
	idle       atomic.Bool
	switched   enqueue.Broadcast[struct{}] // idle has changed
}

// Serve makes r act on its kind, or not: two controllers that act on it would undo what the other does. The other controller goes on with
// what is under way, by the same annotations.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle == does {
		r.switched.Send(struct{}{})
		r.kept.Clear() // the other controller may remove what kubemend remembers
	}
}

// Reconcile takes all steps of the remediation called req that are only remembered, and the one after them, which acts on host, node or
// machine, or waits.
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
		var unread error // nothing was written then: that is no lost answer
		err = r.Gate.Begin(ctx, string(obs.rem.GetUID()), obs.scopes(), func(ctx context.Context) error {
			if obs, step, unread = r.plan(ctx, req.NamespacedName, obs); unread != nil || obs == nil {
				return nil //nolint:nilerr // it is returned below
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
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil // another client wrote first; the cache is about to show what
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

// plan observes the remediation called key and decides on its next step. What may go first is read past the cache if this is to confirm
// that the remediation begins, as was decided on first; nil for the first time.
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

// mostRemembered is more than the steps that one reconcile ever takes without acting.
const mostRemembered = 10

// decide takes the steps that are only remembered, in memory, and returns the one after them. The facts are stated anew after each, since
// what has to be read depends on what is remembered.
func (r *Reconciler) decide(ctx context.Context, obs *observed) (powercycle.Step, error) {
	for n := 0; ; n++ {
		step, err := r.verified(ctx, obs, obs.next())
		if err == nil {
			err = r.observeUndoers(ctx, obs, step)
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

// verified is step, or what is decided in its place if it condemns the machine, or tries again, and another workload cluster answers by
// now.
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

// next is the step that follows from what is observed. For one that lacks something nothing is done: its creator may add that later.
func (obs *observed) next() powercycle.Step {
	if obs.idle != "" {
		return powercycle.Step{Do: powercycle.Wait, Next: powercycle.Pending, Reason: obs.idle}
	}
	return powercycle.Next(obs.facts, obs.policy, obs.now)
}

// next is when to reconcile again: when the step says so, at once after it was taken, and soon after it could not be, because the caches
// were stale.
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

// Hosts reads hosts, asks for changes of their power, and marks them as unhealthy, so that CAPM3 puts no machine on them; host.Hosts
// implements it for BareMetalHosts. Another provider of power has to keep its contract: every ask and mark is safe to repeat and changes
// nothing of others; what turns a host off or on fails with a conflict if the host has changed since it was read; and Power says no more
// than the provider has itself read from the hardware, with the moment at which it last did.
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

// Nodes reads and fences the nodes of hosts; fence.Nodes implements it.
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

// Self is where the manager runs, and what it does about it when that is to be switched off. The zero value runs nowhere.
type Self struct {
	// Node is the name of its node, BootID of what boot: together they tell it from a node of that name in another cluster.
	Node, BootID string
	// Elsewhere reports whether another replica is ready on another node, to take over. It may be nil, if there is none ever.
	Elsewhere func(context.Context) (bool, error)
	// StandDown ends this replica, so that another one acts.
	StandDown func()
}

// on reports whether the manager runs on the host of obs, as far as its node is known.
func (s Self) on(obs *observed) bool {
	if s.Node == "" || s.BootID == "" || obs.nodeName() != s.Node {
		return false
	}
	return obs.node != nil && obs.node.Status.NodeInfo.BootID == s.BootID || obs.node == nil && obs.record.BootID == s.BootID
}

// giveUpLeadership ends this replica if another one can take over, which may switch off the host that this one runs on. To stay is safe, so
// in doubt it stays.
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
		if mode == "auto" || mode == "taint" { // a manifest of an older release may say so, and means what is done
			return nil
		}
		return errors.New("nodes are fenced by the out-of-service taint alone, " +
			"which every Kubernetes that Cluster API supports has: remove the flag")
	})
	_ = fs.MarkHidden("fencing") // the flag is there
	fs.DurationVar(&o.OrphanGrace, "orphan-grace-period", 5*time.Minute,
		"How long an annotation that keeps a BareMetalHost powered off, or the fence of a node, stays when its remediation does not exist.")
	fs.IntVar(&o.Concurrency, "hostremediation-concurrency", 20, "Number of remediations of hosts, of each kind, to process at the same time.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(flags.Positive("hostremediation-concurrency", o.Concurrency), flags.NotNegative("orphan-grace-period", o.OrphanGrace))
}
