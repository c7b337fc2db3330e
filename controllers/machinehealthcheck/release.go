package machinehealthcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Releaser releases machines that no check judges any more: the check was deleted or selects other machines, or the machine was relabelled
// or annotated to be left alone. It deletes the requests of checks for these machines, and removes the conditions that checks set. If
// kubemend stops acting on a check that still exists, it removes only the conditions that kubemend alone sets.
//
// A finalizer on the check would keep the check from being deleted while no manager runs. Instead each request has a label with its maker,
// and each condition has its field owner, so a check may be deleted while no manager runs.
type Releaser struct {
	Client   client.Client // reads from caches
	Live     client.Reader // reads past the caches
	Requests *remediationrequest.Requests
	Kinds    *remediationrequest.Kinds[*remediationrequest.Metadata]
	Recorder events.EventRecorder
	// Discovery finds kinds of requests that exist since before the start.
	Discovery discovery.ServerResourcesInterface
	// Unclaimed says what to do with checks that are not claimed for kubemend.
	Unclaimed Unclaimed
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a Cluster, or a check, must have; empty for all.
	WatchFilterValue string
}

// Reconcile releases the machine that req names if no check judges it.
func (r *Releaser) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if Deleting(machine) {
		return ctrl.Result{}, nil // the garbage collector deletes its requests
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	checks, err := r.checksOf(ctx, machine)
	covers := func(check *clusterv1.MachineHealthCheck) bool { return capi.Covers(r.WatchFilterValue, check, nil) }
	covered := capi.Covers(r.WatchFilterValue, cluster, nil) || // the label of the machine does not count: it may have none
		slices.ContainsFunc(slices.Collect(maps.Values(checks)), covers)
	if err != nil || ClusterPaused(cluster) || !covered {
		return ctrl.Result{}, err
	}
	err = r.releaseRequests(ctx, machine, cluster, checks)
	acts, skipped := r.actedOn(checks, cluster), len(LeftAloneBy(machine)) > 0
	judged := len(checks) > 0 && !(acts && skipped)
	if !Marked(machine) || judged && !capi.HasOwn(machine) || acts && !skipped {
		return ctrl.Result{}, err
	}
	result, conditionsErr := r.removeConditions(ctx, machine, judged, acts)
	return result, errors.Join(err, conditionsErr)
}

func (r *Releaser) checksOf(ctx context.Context, machine *clusterv1.Machine) (map[string]*clusterv1.MachineHealthCheck, error) {
	listed, err := listChecks(ctx, r.Client, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err != nil {
		return nil, err
	}
	checks := map[string]*clusterv1.MachineHealthCheck{}
	for i := range listed {
		selector, err := selectorOf(&listed[i]) // an invalid selector may have selected machine before
		if listed[i].DeletionTimestamp.IsZero() && (err != nil || selector.Matches(labels.Set(machine.Labels))) {
			checks[listed[i].Name] = &listed[i]
		}
	}
	return checks, nil
}

// actedOn reports whether kubemend acts on the oldest check that is not paused, which sets the conditions.
func (r *Releaser) actedOn(checks map[string]*clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	var oldest *clusterv1.MachineHealthCheck
	for _, check := range checks {
		_, invalid := selectorOf(check) // the check then judges no machine
		if invalid == nil && modeFor(check, cluster, Act) != Paused && (oldest == nil || older(check, oldest)) {
			oldest = check
		}
	}
	return oldest != nil && modeFor(oldest, cluster, r.Unclaimed) == Active
}

// releaseRequests deletes the requests for machine that the check that made them does not need any more.
func (r *Releaser) releaseRequests(
	ctx context.Context, machine *clusterv1.Machine, cluster *clusterv1.Cluster, checks map[string]*clusterv1.MachineHealthCheck,
) error {
	var errs []error
	for _, kind := range r.Kinds.InUse() {
		requests, err := r.Requests.List(ctx, kind, machine.Namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		req := requests[machine.Name]
		if req == nil || !req.DeletionTimestamp.IsZero() {
			continue
		}
		maker, ours := remediationrequest.MadeBy(req)
		check, why := checks[maker.Name], "does not judge the machine any more"
		if check != nil && len(LeftAloneBy(machine)) == 0 {
			why = "does not name " + kind.Kind + " any more"
		}
		if !ours || check != nil && r.needs(check, cluster, machine, kind) {
			continue
		}
		if err := r.Requests.Delete(ctx, req); err != nil {
			errs = append(errs, err)
			continue
		}
		r.tell(ctx, machine, fmt.Sprintf("Deleted %s %s: MachineHealthCheck %s, which made it, %s", kind.Kind, req.Name, maker.Name, why))
	}
	return errors.Join(errs...)
}

// needs reports whether check, which selects machine, needs its request of that kind. It does not if the machine is to be left alone, or if
// the check now names another kind. A check on which kubemend does not act keeps its requests.
func (r *Releaser) needs(
	check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, machine *clusterv1.Machine, kind schema.GroupVersionKind,
) bool {
	_, invalid := selectorOf(check)
	if invalid != nil || modeFor(check, cluster, r.Unclaimed) != Active || !capi.Covers(r.WatchFilterValue, check, cluster) {
		return true
	}
	named := remediationrequest.KindOf(remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef))
	return named.GroupKind() == kind.GroupKind() && len(LeftAloneBy(machine)) == 0
}

// removeConditions removes conditions from machine. From a judged machine it removes those that only kubemend sets. If kubemend acts on the
// check, or has written the conditions, it removes all that checks set, also those that Cluster API core set before the check was claimed.
// It reads live, because caches have no managed fields.
func (r *Releaser) removeConditions(ctx context.Context, machine *clusterv1.Machine, judged, acts bool) (ctrl.Result, error) {
	live := &clusterv1.Machine{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(machine), live); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	next := releasedCopy(live)
	if judged || !acts && !writtenByUs(live) {
		next = statusCopy(live)
		capi.DropOwn(next)
	}
	if sameConditions(next, live) {
		return ctrl.Result{}, nil
	}
	err := capi.PatchConditions(ctx, r.Client, next)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("remove the conditions of machine %s: %w", machine.Name, err)
	}
	if !judged {
		r.tell(ctx, machine, "No MachineHealthCheck judges the machine any more; the conditions that one had set were removed")
	}
	return ctrl.Result{}, nil
}

// writtenByUs reports whether kubemend owns a condition that checks set.
func writtenByUs(machine *clusterv1.Machine) bool {
	for _, entry := range machine.ManagedFields {
		if entry.Manager != mendv1.FieldOwner || entry.FieldsV1 == nil {
			continue
		}
		for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineExternallyRemediatedCondition} {
			if bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`k:{\"type\":\"`+kind+`\"}`)) {
				return true
			}
		}
	}
	return false
}

func (r *Releaser) tell(ctx context.Context, machine *clusterv1.Machine, text string) {
	recorder.Send(r.Recorder, recorder.Event{
		About: machineOf(machine), Kind: corev1.EventTypeNormal, Reason: mendv1.EventRequestReleased, Action: "Release", Text: text,
	})
	log.FromContext(ctx).Info("Released a machine", "reason", mendv1.EventRequestReleased, "note", text)
}

// SetupWithManager makes r a controller of mgr.
func (r *Releaser) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	markedMachines := predicate.NewPredicateFuncs(func(o client.Object) bool { return Marked(o.(*clusterv1.Machine)) })
	options.ReconciliationTimeout = reconcileTimeout
	options.RateLimiter = enqueue.Retries(enqueue.MergeWindow)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("machinehealthcheck-release").
		WithOptions(options).
		Watches(&clusterv1.Machine{}, enqueue.Merged[client.Object](self), builder.WithPredicates(markedMachines, machineChanges())).
		Watches(&clusterv1.MachineHealthCheck{}, enqueue.Merged[client.Object](r.machinesToRelease),
			builder.WithPredicates(checkChanges())).
		Watches(&clusterv1.Cluster{}, enqueue.Merged[client.Object](r.machinesToRelease), builder.WithPredicates(clusterChanges())).
		WatchesRawSource(r.Kinds.Source(remediationrequest.Changed(enqueue.Merged[*remediationrequest.Metadata](self)))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller that releases machines: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(r.discover))
}

// discover looks for orphaned requests once after the start, and retries until it has read everything. It ignores groups whose discovery
// fails: they belong to aggregated APIs, whose server may be broken for months, but requests are objects of CRDs.
func (r *Releaser) discover(ctx context.Context) error {
	// It ends with success or with the manager; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, time.Minute, true, func(ctx context.Context) (bool, error) {
		lists, err := r.Discovery.ServerPreferredResources() // returns the readable groups even with an error
		if discovery.IsGroupDiscoveryFailedError(err) {
			log.FromContext(ctx).Info("Looked for orphaned requests, but not in all groups of the API", "reason", err.Error())
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("discover kinds of remediation requests: %w", err)
		}
		err = errors.Join(err, r.Kinds.Discover(ctx, lists, client.HasLabels{mendv1.MadeByUIDLabel}))
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot look for orphaned requests")
		}
		return err == nil, nil
	})
	return nil
}

func self(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}}
}

// machinesToRelease returns the machines of a Cluster, or of a check's Cluster, that are Marked or have a request of a check. A machine
// with a request may be unmarked: its conditions may have been removed, or never set, before the Cluster was paused.
func (r *Releaser) machinesToRelease(ctx context.Context, changed client.Object) []reconcile.Request {
	cluster, requested := client.ObjectKeyFromObject(changed), map[string]bool{}
	if check, is := changed.(*clusterv1.MachineHealthCheck); is {
		cluster.Name = check.Spec.ClusterName
	}
	for _, kind := range r.Kinds.InUse() {
		requests, err := r.Requests.List(ctx, kind, cluster.Namespace)
		if err != nil {
			continue // an event of the request releases it later
		}
		for name, req := range requests {
			_, ours := remediationrequest.MadeBy(req)
			requested[name] = requested[name] || ours
		}
	}
	machines, err := listMachines(ctx, r.Client, cluster)
	if err != nil {
		return nil // the cache is shutting down
	}
	var found []reconcile.Request
	for _, machine := range machines {
		if Marked(machine) || requested[machine.Name] {
			found = append(found, self(ctx, machine)...)
		}
	}
	return found
}
