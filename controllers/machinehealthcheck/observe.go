package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/shard"
	"github.com/kubemend/kubemend/controllers/workload"
)

// observed is everything that one reconcile decides on, read once.
type observed struct {
	now     time.Time
	check   *clusterv1.MachineHealthCheck // shared with the cache, as is cluster: read only
	cluster *clusterv1.Cluster
	mode    machines.Mode
	// actsUnclaimed says that kubemend acts on checks that are not claimed; explains says that a reader wants to know all blockers.
	actsUnclaimed, explains bool
	// filtered is the value of the label that the check would need to be one of this manager's; empty if it is.
	filtered string
	others   []otherCheck
	// selector is the check's, selectorErr why it cannot be parsed.
	selector    labels.Selector
	selectorErr error

	initialized         bool // the Cluster's ControlPlaneInitialized
	infrastructureReady bool // the Cluster's InfrastructureReady
	link                workload.View

	targets []*target // sorted by name
	skipped []*target // selected, but the user wants them left alone
	// verdicts are those on the targets; nil before they are judged, which is done once.
	verdicts []health.Verdict
	// overlaps are as others, with how many targets they select too.
	overlaps []machines.Overlap
	// counted are the numbers of all targets in the status, if not all were read; only an explanation does without.
	counted *machines.Counted

	remediation remediation
	// lagging says that the cache does not show yet which requests there are.
	lagging bool
	// spares are the hosts that replacements could take, if they were read.
	spares observedSpares
	// requests are those of the check's namespace, by kind and name, as far as they were listed.
	requests map[schema.GroupVersionKind]map[string]*remediationrequest.Metadata
	// orphans are requests that this check made and that none of its targets needs:
	// of a kind that it no longer names, or of a machine that it no longer watches.
	orphans []*remediationrequest.Metadata
	// before is what is remembered of the reconcile before.
	before remembered
	// unread are the kinds of power cycles that were looked for; nil for one that could be read.
	unread map[schema.GroupKind]*unread
	// capacity is what is not back of the remediations that the check has asked for.
	capacity machines.Capacity
	// trouble is what could not be observed, of what a reconcile can do without.
	trouble []error
	// recheck is the moment at which to look again although nothing was seen to change; zero if there is none.
	recheck time.Time
}

// find reads a check and its Cluster, and decides how kubemend stands to it. It returns nil if there is no such check.
func (r *Reconciler) find(ctx context.Context, key client.ObjectKey, now time.Time) (*observed, error) {
	w := &observed{now: now, actsUnclaimed: r.Unclaimed == Act, check: &clusterv1.MachineHealthCheck{}, cluster: &clusterv1.Cluster{}}
	if err := r.Client.Get(ctx, key, w.check, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read MachineHealthCheck %s: %w", key, err)
	}
	w.check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck")) // which an object from a cache does not carry
	clusterKey := client.ObjectKey{Namespace: w.check.Namespace, Name: w.check.Spec.ClusterName}
	cluster := &clusterv1.Cluster{}
	err := r.Client.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Cluster %s of MachineHealthCheck %s: %w", clusterKey, key, err)
	}
	if !shard.Covers(r.WatchFilterValue, w.check, cluster) {
		w.filtered = r.WatchFilterValue
	}
	if w.filtered != "" || !w.check.DeletionTimestamp.IsZero() {
		return w, nil // it is ignored
	}
	w.cluster = cluster
	w.mode = modeFor(w.check, w.cluster, r.Unclaimed)
	w.selector, w.selectorErr = selectorOf(w.check)
	switch {
	case w.mode < machines.Observed:
	case err != nil:
		w.mode = machines.NoCluster
	case w.selectorErr != nil:
		w.mode = machines.BadSelector
	}
	w.initialized = conditionTrue(w.cluster, clusterv1.ClusterControlPlaneInitializedCondition) != nil
	w.infrastructureReady = conditionTrue(w.cluster, clusterv1.ClusterInfrastructureReadyCondition) != nil
	return w, nil
}

// modeFor decides how kubemend treats check.
//
// The annotation cluster.x-k8s.io/paused makes Cluster API core leave a check alone, whatever its value. The value kubemend claims the check; any other
// one pauses it for kubemend too. A paused Cluster pauses everything. In a Cluster that is being deleted nothing is worth remediating.
func modeFor(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, unclaimed Unclaimed) machines.Mode {
	_, annotated := check.Annotations[clusterv1.PausedAnnotation]
	switch {
	case !annotated && unclaimed == Ignore, !cluster.DeletionTimestamp.IsZero():
		return machines.Ignored
	case annotated && !claimed(check), clusterPaused(cluster):
		return machines.Paused
	case annotated, unclaimed == Act:
		return machines.Active
	default:
		return machines.Observed
	}
}

// claimed reports whether check is claimed for kubemend. Its condition Paused is Cluster API core's then.
func claimed(check *clusterv1.MachineHealthCheck) bool {
	return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}

// selectorOf is the selector of check. An empty one selects nothing. (Cluster API)
func selectorOf(check *clusterv1.MachineHealthCheck) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err == nil && selector.Empty() {
		selector = labels.Nothing()
	}
	return selector, err
}

// observe reads everything else that is decided on.
//
// All that is asked of the workload cluster itself has one deadline: a server that does not answer costs a worker that, and no more.
func (r *Reconciler) observe(ctx context.Context, w *observed) error {
	asking, done := context.WithTimeout(ctx, workload.AnswerWithin)
	defer done()
	if err := r.observeLink(asking, w); err != nil {
		return err
	}
	if err := r.observeOtherChecks(ctx, w); err != nil {
		return err
	}
	if err := r.observeMachines(ctx, w); err != nil {
		return err
	}
	if r.CountByStatus {
		w.counted = Counted(w.check, w.cluster)
	}
	r.observeRemediation(ctx, w)
	r.observeNodes(asking, w)
	w.attachRequests()
	r.observeCapacity(ctx, w)
	return nil
}

// observeCapacity finds out what is not back of the remediations that the check has asked for, by the open records in the cache; before
// these are known, by what the check says.
func (r *Reconciler) observeCapacity(ctx context.Context, w *observed) {
	missing, known, err := r.Records.MissingOf(ctx, client.ObjectKeyFromObject(w.check))
	if err != nil {
		w.trouble = append(w.trouble, err)
	}
	said := conditionOf(w.check, mendv1.CapacityBack)
	w.capacity = machines.Capacity{Known: known, Reported: said != nil, Missing: len(missing)}
	if !known && said != nil && said.Status == metav1.ConditionFalse {
		w.capacity.Missing = 1
	}
	if len(missing) > 0 {
		oldest := &missing[0]
		w.capacity.Target, w.capacity.Reason, w.capacity.Message = oldest.Target.Kind+" "+oldest.Target.Name, oldest.Reason, oldest.Message
	}
}

// observeLink finds out whether the workload cluster can be read. Before the control plane is initialized there is no API server to ask.
func (r *Reconciler) observeLink(ctx context.Context, w *observed) error {
	if !w.initialized {
		return nil
	}
	key := client.ObjectKeyFromObject(w.cluster)
	link, err := r.Clusters.View(ctx, key, w.now, r.nodeWatch(key))
	w.link = link
	w.lookAgainIn(link.Recheck)
	return err
}

// changed reports whether another workload cluster answers than the one that is kept, which is asked before p acts because of nodes.
func (r *Reconciler) changed(ctx context.Context, w *observed, p plan) bool {
	acts := func(i int) bool { return p.Decisions[i].Acts() }
	return r.Verify != nil && w.mode == machines.Active && w.link.Link == workload.Up && slices.ContainsFunc(p.Open, acts) &&
		r.Verify(ctx, client.ObjectKeyFromObject(w.cluster)) != nil
}

// lookAgainIn makes the reconcile be repeated after d at the latest; zero asks for nothing.
func (w *observed) lookAgainIn(d time.Duration) {
	if d > 0 {
		w.recheck = health.Earliest(w.recheck, w.now.Add(d))
	}
}

// conditionTrue returns the condition of that type if its status is True, else nil.
func conditionTrue(obj conditions.Getter, kind string) *metav1.Condition {
	if cond := conditionOf(obj, kind); cond != nil && cond.Status == metav1.ConditionTrue {
		return cond
	}
	return nil
}

// conditionOf returns the condition of that type, or nil. It is shared with obj; conditions.Get would copy it.
func conditionOf(obj conditions.Getter, kind string) *metav1.Condition {
	list := obj.GetConditions()
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// otherCheck is another check of the same cluster that is not paused.
type otherCheck struct {
	name     string
	selector labels.Selector
	template string // the name of the one that its requests are made from; empty if they are not, or of another kind than ours
	older    bool   // older than the check whose reconcile this is
}

// observeOtherChecks reads the other checks of the cluster. One that cannot be parsed selects nothing, as everywhere.
func (r *Reconciler) observeOtherChecks(ctx context.Context, w *observed) error {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(w.check.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{clusterIndex: w.check.Spec.ClusterName}); err != nil {
		return fmt.Errorf("list the checks of cluster %s/%s: %w", w.check.Namespace, w.check.Spec.ClusterName, err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == w.check.Name || !other.DeletionTimestamp.IsZero() || modeFor(other, w.cluster, Act) == machines.Paused {
			continue
		}
		if selector, err := selectorOf(other); err == nil {
			another := otherCheck{name: other.Name, selector: selector, older: older(other, w.check)}
			if ref := other.Spec.Remediation.TemplateRef; ref.Kind == w.check.Spec.Remediation.TemplateRef.Kind {
				another.template = ref.Name
			}
			w.others = append(w.others, another)
		}
	}
	slices.SortFunc(w.others, func(a, b otherCheck) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// older orders checks: the one that was created first is the one that acts; of two made in the same second, the first by name.
func older(a, b *clusterv1.MachineHealthCheck) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
