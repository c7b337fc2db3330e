package machinehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// observed is everything that one reconcile decides on, read once, and what it needs to read and write it.
type observed struct {
	Facts
	view workload.View
	// identified are the nodes of the view if each has a provider ID of its own; otherwise empty. (workload.View)
	identified sets.Set[any]
	selector   labels.Selector // of the check
	// answering are the kinds of owners that report what they do: those of Cluster API, and others that have answered for a Machine of the
	// Cluster since this process started.
	answering map[string]bool

	requestKind schema.GroupVersionKind
	// template is the template if it was read, because a request is to be created or the cache does not have it.
	template *unstructured.Unstructured
	// templateErr is why the template could not be read.
	templateErr error
	given       int     // places that the ledger of policies had given when the hosts were read
	placed      *placed // reported to the ledger; nil before
	// lagging says that the cache does not show all requests yet.
	lagging bool
	// requests are those of requestKind in the check's namespace, by name; nil if they were not listed.
	requests map[string]*remediationrequest.Metadata
	// before is what the reconcile before left.
	before      remembered
	unreachable time.Time     // as in remembered
	outage      health.Outage // the last time without contact
	// unread is since when a kind of power cycles, or hosts, could not be read.
	unread map[schema.GroupKind]time.Time
	// recheck is when the check is reconciled again although nothing has changed; zero if there is no such moment.
	recheck time.Time
}

// find reads a check and its Cluster, and decides on the mode of the check. It returns nil if there is no such check.
func (r *Reconciler) find(ctx context.Context, key client.ObjectKey, now time.Time) (*observed, error) {
	state := &observed{Facts: Facts{
		Now: now, ActsUnclaimed: r.Unclaimed == Act, Check: &clusterv1.MachineHealthCheck{}, Cluster: &clusterv1.Cluster{},
	}}
	if err := r.Client.Get(ctx, key, state.Check, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read MachineHealthCheck %s: %w", key, err)
	}
	state.Check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck")) // objects from a cache have none
	clusterKey := client.ObjectKey{Namespace: state.Check.Namespace, Name: state.Check.Spec.ClusterName}
	cluster := &clusterv1.Cluster{}
	err := r.Client.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Cluster %s of MachineHealthCheck %s: %w", clusterKey, key, err)
	}
	if !capi.Covers(r.WatchFilterValue, state.Check, cluster) {
		state.WatchFilter = r.WatchFilterValue
	}
	if state.WatchFilter != "" || !state.Check.DeletionTimestamp.IsZero() {
		return state, nil // the check is ignored
	}
	state.Cluster = cluster
	state.Mode = modeFor(state.Check, state.Cluster, r.Unclaimed)
	state.selector, state.SelectorErr = selectorOf(state.Check)
	switch {
	case state.Mode < Observed:
	case err != nil:
		state.Mode = NoCluster
	case state.SelectorErr != nil:
		state.Mode = BadSelector
	}
	return state, nil
}

// modeFor returns how kubemend treats check.
//
// Any value of the annotation cluster.x-k8s.io/paused makes Cluster API core leave a check alone. The value kubemend claims the check; any
// other value pauses it for kubemend too. A paused Cluster pauses everything. Nothing is remediated in a Cluster being deleted.
func modeFor(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, unclaimed Unclaimed) Mode {
	_, annotated := check.Annotations[clusterv1.PausedAnnotation]
	switch {
	case !annotated && unclaimed == Ignore, !cluster.DeletionTimestamp.IsZero():
		return Ignored
	case annotated && !Claimed(check), ClusterPaused(cluster):
		return Paused
	case annotated, unclaimed == Act:
		return Active
	default:
		return Observed
	}
}

// decide returns the plan for state. It judges the machines only once.
func (state *observed) decide() *Plan {
	state.stateLink()
	state.Settings = SettingsOf(state.Check, len(state.Targets))
	state.Limited = state.Limited && state.before.lasts
	if allowed := state.Allowed; allowed != nil {
		if most, err := budget.ParseAmount(allowed.MaxUnhealthy.String()); err == nil {
			state.Limits.AtMost = max(state.Limits.AtMost, most.Of(len(state.Targets)))
		}
	}
	state.Memory = state.before.decided
	if state.Verdicts == nil {
		state.Verdicts = judge(&state.Facts)
	}
	plan := Decide(state.Facts)
	return &plan
}

// stateLink sets the rules of the check, and what is known of the connection to the workload cluster.
func (state *observed) stateLink() {
	state.Policy, state.Reach = policyOf(state.Check.Spec.Checks), state.before.reach
	if cond := ConditionOf(state.Check, mendv1.WorkloadClusterReachable); state.Reach.Type == "" && cond != nil {
		state.Reach = *cond
	}
	state.Link, state.Outage = state.view.Link, Outage{Silent: state.view.Silent}
	state.ClockAhead = state.view.ClockAhead
	if state.view.Refused != nil {
		state.Outage.Refused = state.view.Refused.Error()
	}
	if state.view.Changed != nil {
		state.Outage.Changed = state.view.Changed.Error()
	}
	switch state.unreachable = state.before.unreachable; {
	case state.Link == health.Up:
		state.unreachable = time.Time{}
	case state.before.up: // reach may be True from before this process started
		state.unreachable = state.Now
	}
	state.outage = health.Outage{
		Began: state.before.unreachable, Ended: state.ReachedAgain(),
		Now: state.Link == health.Up && state.Reach.Status == metav1.ConditionFalse,
	}
}

// selectorOf returns the selector of check. As in Cluster API, an empty one selects nothing.
func selectorOf(check *clusterv1.MachineHealthCheck) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err == nil && selector.Empty() {
		selector = labels.Nothing()
	}
	return selector, err
}

// observe reads all other facts.
//
// All requests to the workload cluster share one deadline, so that an API server that does not answer holds up a worker only once.
func (r *Reconciler) observe(ctx context.Context, state *observed) error {
	asking, done := context.WithTimeout(ctx, workload.AnswerWithin)
	defer done()
	if state.Initialized() { // before that there is no API server
		key := client.ObjectKeyFromObject(state.Cluster)
		view, err := r.Clusters.View(asking, key, state.Now, r.nodeWatch(key))
		if state.view = view; err != nil {
			return err
		}
		state.lookAgainIn(view.Recheck)
		if state.Mode == Active && view.Keep != nil {
			view.Keep(asking)
		}
	}
	if err := r.observeOtherChecks(ctx, state); err != nil {
		return err
	}
	if err := r.observeMachines(ctx, state); err != nil {
		return err
	}
	r.observeRemediation(ctx, state)
	r.observeNodes(asking, state)
	state.attachRequests()
	r.observeCapacity(ctx, state)
	r.observeFormer(ctx, state)
	return nil
}

// observeFormer reads the records of owners that have a Machine without a Node.
func (r *Reconciler) observeFormer(ctx context.Context, state *observed) {
	state.Former = map[types.UID][]mendv1.RemediationRecord{}
	for _, target := range state.Targets {
		if target.Node != nil || target.Status.NodeRef.Name != "" || r.Records == nil && !state.Explains {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(target.Machine)
		if owner == nil {
			continue
		}
		if _, read := state.Former[owner.UID]; !read {
			state.FormerAwaited = r.Records.Awaited(ctx)
			state.Former[owner.UID] = r.Records.Repeated(ctx, r.Client, target.Namespace, owner.Kind, owner.Name)
		}
	}
}

// recordsAgain is how soon a check that waits for the cache of RemediationRecords after a start is reconciled again.
const recordsAgain = time.Second

// observeCapacity reads the open records of remediations of the check whose capacity is missing. While records cannot be read, or are not
// installed, it assumes one, since nothing would show that capacity is back. A reader without records goes by the condition CapacityBack.
func (r *Reconciler) observeCapacity(ctx context.Context, state *observed) {
	missing, known, err := r.Records.MissingOf(ctx, client.ObjectKeyFromObject(state.Check))
	if err != nil {
		state.Trouble = append(state.Trouble, err)
	}
	said := ConditionOf(state.Check, mendv1.CapacityBack)
	state.Capacity = Capacity{Known: known, Missing: len(missing)}
	if !known && (r.Records != nil || said != nil && said.Status == metav1.ConditionFalse) {
		state.Capacity.Missing = 1
		if state.Now.Before(r.Records.Awaited(ctx)) {
			state.lookAgainIn(recordsAgain)
		}
	}
	if len(missing) > 0 {
		oldest := &missing[0]
		state.Capacity.Target = oldest.Target.Kind + " " + oldest.Target.Name
		state.Capacity.Reason, state.Capacity.Message = oldest.Reason, oldest.Message
	}
}

// changed reports whether another workload cluster answers than the one that the Cluster keeps. It asks before plan acts.
func (r *Reconciler) changed(ctx context.Context, state *observed, plan *Plan) bool {
	return r.Verify != nil && state.Mode == Active && state.view.Link == health.Up && slices.ContainsFunc(plan.Open, (*Decision).Acts) &&
		r.Verify(ctx, client.ObjectKeyFromObject(state.Cluster)) != nil
}

// lookAgainIn has the check reconciled after d at the latest; zero asks for nothing.
func (state *observed) lookAgainIn(d time.Duration) {
	if d > 0 {
		state.recheck = health.Earliest(state.recheck, state.Now.Add(d))
	}
}

// observeOtherChecks reads the other checks of the cluster. A check whose selector cannot be parsed selects nothing.
func (r *Reconciler) observeOtherChecks(ctx context.Context, state *observed) error {
	checks, err := listChecks(ctx, r.Client, client.ObjectKey{Namespace: state.Check.Namespace, Name: state.Check.Spec.ClusterName})
	if err != nil {
		return err
	}
	for i := range checks {
		other := &checks[i]
		if other.Name == state.Check.Name || !other.DeletionTimestamp.IsZero() || modeFor(other, state.Cluster, Act) == Paused {
			continue
		}
		if selector, err := selectorOf(other); err == nil {
			overlap := Overlap{Name: other.Name, selector: selector, Older: older(other, state.Check)}
			overlap.Acting = modeFor(other, state.Cluster, r.Unclaimed) == Active &&
				capi.Covers(r.WatchFilterValue, other, state.Cluster)
			if ref := other.Spec.Remediation.TemplateRef; ref.Kind == state.Check.Spec.Remediation.TemplateRef.Kind {
				overlap.template = ref.Name
			}
			state.Overlaps = append(state.Overlaps, overlap)
		}
	}
	slices.SortFunc(state.Overlaps, func(a, b Overlap) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// listChecks returns the checks of a cluster. They are shared: read only.
func listChecks(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]clusterv1.MachineHealthCheck, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{clusterIndex: cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the checks of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}

// listMachines returns the machines of a cluster. They are shared: read only.
func listMachines(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{clusterIndex: cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	return pointers(list.Items), nil
}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// older reports whether a was created before b; of checks created in the same second, the first by name is older.
func older(a, b *clusterv1.MachineHealthCheck) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
