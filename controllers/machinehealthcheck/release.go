package machinehealthcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// Releaser releases machines that no check judges any more: because the check was deleted, because it selects other
// machines now, or because the machine was relabelled, or annotated to be left alone. It deletes the requests that were made for them and
// removes the conditions that checks had set. From machines of a check on which kubemend does not act any more, since its claim was taken
// away or it was paused, it removes the conditions that only kubemend sets.
//
// A finalizer on the check would do the same as long as a manager runs, and would keep the check from being deleted
// when none does. Instead each request and condition says whose it is: a request carries its maker, and a condition
// its field owner. So it also works for a check that was deleted while no manager ran.
type Releaser struct {
	Client   client.Client // reads from caches
	Live     client.Reader // reads past them
	Requests *remediationrequest.Requests
	Kinds    *remediationrequest.Kinds[*remediationrequest.Metadata]
	Recorder events.EventRecorder
	// Discovery finds the kinds of requests that are left from before the start.
	Discovery discovery.ServerResourcesInterface
	// Unclaimed says what to do with checks that are not claimed for kubemend.
	Unclaimed Unclaimed
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a Cluster, or a check, must have; empty for all.
	WatchFilterValue string
}

// Reconcile releases the machine called req if no check judges it.
func (r *Releaser) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if Deleting(machine) {
		return ctrl.Result{}, nil // its requests are garbage-collected with it
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	checks, err := r.checksOf(ctx, machine)
	if err != nil || ClusterPaused(cluster) || !r.covers(checks, cluster) {
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

// covers reports whether this manager looks after a machine of cluster, which checks select: by the label of the Cluster, or of one of
// them. Machines are not asked for the label: that theirs was forgotten must not leave a request behind.
func (r *Releaser) covers(checks map[string]*clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	covered := capi.Covers(r.WatchFilterValue, cluster, nil)
	for _, check := range checks {
		covered = covered || capi.Covers(r.WatchFilterValue, check, nil)
	}
	return covered
}

func (r *Releaser) checksOf(ctx context.Context, machine *clusterv1.Machine) (map[string]*clusterv1.MachineHealthCheck, error) {
	listed, err := listChecks(ctx, r.Client, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err != nil {
		return nil, err
	}
	checks := map[string]*clusterv1.MachineHealthCheck{}
	for i := range listed {
		selector, err := selectorOf(&listed[i]) // if it cannot be parsed, the check may have selected machine until a moment ago
		if listed[i].DeletionTimestamp.IsZero() && (err != nil || selector.Matches(labels.Set(machine.Labels))) {
			checks[listed[i].Name] = &listed[i]
		}
	}
	return checks, nil
}

// actedOn reports whether kubemend acts on the oldest of these checks that is not paused, which is the one that sets conditions.
func (r *Releaser) actedOn(checks map[string]*clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	var oldest *clusterv1.MachineHealthCheck
	for _, check := range checks {
		_, invalid := selectorOf(check) // a check with such a selector judges no machine
		if invalid == nil && modeFor(check, cluster, Act) != Paused && (oldest == nil || older(check, oldest)) {
			oldest = check
		}
	}
	return oldest != nil && modeFor(oldest, cluster, r.Unclaimed) == Active
}

// releaseRequests deletes the requests for machine that their maker does not need any more.
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

// needs reports whether check, which selects machine, needs its request of that kind: not if the machine is to be left alone, or if the
// check names another kind now. A check on which kubemend does not act keeps what it has made.
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

// removeConditions removes what was said of machine. Of one on whose check kubemend acts that is all that any check has set, also Cluster
// API core before the check was claimed. Else it is what kubemend has set, which stands in the managed fields, and caches do not hold
// these; of our own types only kubemend sets any. On a machine that is judged those are all that goes.
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

// writtenByUs reports whether it was kubemend that last wrote one of the conditions a check writes.
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
		Watches(&clusterv1.MachineHealthCheck{}, enqueue.Merged[client.Object](r.machinesToRelease), builder.WithPredicates(checkChanges())).
		Watches(&clusterv1.Cluster{}, enqueue.Merged[client.Object](r.machinesToRelease), builder.WithPredicates(clusterChanges())).
		WatchesRawSource(r.Kinds.Source(remediationrequest.Changed(enqueue.Merged[*remediationrequest.Metadata](self)))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller that releases machines: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(r.discover))
}

// discover looks, once after the start, for orphaned requests, and tries again until it could look everywhere. A group that cannot be
// discovered is that of an aggregated API whose server is broken, which may be so for months; requests are objects of CRDs.
func (r *Releaser) discover(ctx context.Context) error {
	// It ends with success or with the manager; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, time.Minute, true, func(ctx context.Context) (bool, error) {
		lists, err := r.Discovery.ServerPreferredResources() // some are listed even if others cannot be
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

// machinesToRelease returns the machines of a Cluster, or of that of a check, of which a check has said something that is not good, and
// those for which there is a request of a check. The latter may be unmarked: their conditions may have been removed, or never set, before
// the Cluster was paused.
func (r *Releaser) machinesToRelease(ctx context.Context, changed client.Object) []reconcile.Request {
	cluster, requested := client.ObjectKeyFromObject(changed), map[string]bool{}
	if check, is := changed.(*clusterv1.MachineHealthCheck); is {
		cluster.Name = check.Spec.ClusterName
	}
	for _, kind := range r.Kinds.InUse() {
		requests, err := r.Requests.List(ctx, kind, cluster.Namespace)
		if err != nil {
			continue // a kind that cannot be read now is found again by the event of its request
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
