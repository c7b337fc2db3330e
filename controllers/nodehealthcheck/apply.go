package nodehealthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// writers is for how many nodes of one check the controller writes at the same time.
const writers = 16

// outcome is what was done about one node.
type outcome struct {
	*Decision
	plan *Plan

	tried       bool                       // the controller has tried to create the request of the step
	asked       bool                       // the create call was sent to the API server
	made        *unstructured.Unstructured // the created request; nil if there is none
	gaveUp      bool                       // a step was given up
	notNotified error                      // why no step was given up although the plan says so: the remediator could not be notified
	again       bool                       // another client has written first, so the next reconcile decides again
	refused     error                      // why the step could not start
	err         error
}

// carryOut does what plan says about each node, and returns the outcomes of all nodes. An error for one node does not affect the others.
func (r *Reconciler) carryOut(ctx context.Context, state *observed, plan *Plan) []outcome {
	outcomes := make([]outcome, len(plan.Decisions))
	for i := range outcomes {
		outcomes[i] = outcome{Decision: plan.Decisions[i], plan: plan}
	}
	var work errgroup.Group
	work.SetLimit(writers)
	for _, i := range plan.Order {
		work.Go(func() error {
			r.carryOutOne(ctx, state, &outcomes[i])
			return nil
		})
	}
	_ = work.Wait() // errors are in the outcomes
	return outcomes
}

// carryOutOne carries out the decision about one node. The gate lets one control-plane node at a time get its first request, for all checks
// together.
func (r *Reconciler) carryOutOne(ctx context.Context, state *observed, o *outcome) {
	r.mark(ctx, state, o)
	if !o.starts() || o.begun() || !o.controlPlane() {
		r.step(ctx, state, o)
		return
	}
	err := r.Gate.Begin(ctx, o.Name, []string{"control plane"}, func(ctx context.Context) error {
		r.step(ctx, state, o)
		if o.asked {
			return o.refused
		}
		return nil
	})
	o.again = o.again || errors.Is(err, begin.ErrBusy)
}

// step takes the lease and creates the request of the next step, after the previous remediator was notified to stop. If the manager crashes
// in between, the next reconcile goes on, because the annotation says that the previous step was given up.
func (r *Reconciler) step(ctx context.Context, state *observed, o *outcome) {
	first := !o.begun()
	if o.starts() && first && !r.confirmed(ctx, state, o) {
		return
	}
	if o.Unconfirm {
		node := &unstructured.Unstructured{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		node.SetName(o.Name)
		o.try(r.annotate(ctx, node, map[string]any{nhcv1.ConfirmedHealthyAnnotation: nil}))
	}
	taken, leased := r.lease(ctx, state, o)
	o.try(leased)
	o.gaveUp = o.GaveUp.Do == escalation.GiveUp && o.notNotified == nil
	if o.notNotified != nil || !o.starts() {
		return
	}
	if leased != nil {
		if !o.again { // not only because another client has written first
			o.refused = leased
		}
		return
	}
	o.tried = true
	made, err := r.request(ctx, state, o)
	if errors.Is(err, remediationrequest.ErrAppeared) {
		o.again, err = true, nil
	}
	o.made = made
	o.refuse(err)
	if o.refused != nil && taken != nil && first && !begin.Lost(o.refused) { // no request exists, so others may remediate the node
		o.try(r.giveBack(ctx, taken))
	}
}

func (o *outcome) refuse(err error) {
	if err != nil {
		o.refused, o.err = err, errors.Join(o.err, err)
	}
}

// mark sets and removes annotations of a node's requests, and deletes requests that are over.
//
// ClusterRoles of remediators that are older than escalations do not let the manager patch requests. Without an escalation, mark ignores
// that: the manager remembers which requests it counted as old, and the check's status has since when the node is healthy. With one, it is
// an error, because remediators have to be notified.
func (r *Reconciler) mark(ctx context.Context, state *observed, o *outcome) {
	for j := range o.Requests {
		decided := &o.Requests[j]
		obj := decided.Object
		if len(decided.Note) > 0 {
			err := r.annotate(ctx, obj, decided.Note)
			_, notifies := decided.Note[nhcv1.TimedOutAnnotation]
			forbidden := apierrors.IsForbidden(err)
			if notifies && decided.GiveUp {
				o.notNotified = errors.Join(o.notNotified, err)
			} else {
				decided.unpatchable = notifies && forbidden
			}
			decided.noted = state.facts.single() && forbidden || o.try(err)
		}
		if decided.ended = decided.End && o.try(r.Requests.Delete(ctx, obj)); decided.ended {
			r.memory.written.Of(obj.GroupVersionKind().GroupKind()).Forget(client.ObjectKeyFromObject(obj))
		}
	}
}

// flagged reports whether this reconcile has flagged the request as old.
func (s *RequestState) flagged() bool { return s.noted && s.Note[nhcv1.OldRequestAnnotation] != nil }

// try notes err and reports whether it is nil. If another client has written first, the next reconcile decides again, and this is no error.
func (o *outcome) try(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		o.again = true
	case err != nil:
		o.err = errors.Join(o.err, err)
	}
	return err == nil
}

// +kubebuilder:rbac:groups=core,resources=nodes,verbs=patch

// annotate sets and removes annotations of a node or a request, and patches nothing else, because other clients own the other fields.
func (r *Reconciler) annotate(ctx context.Context, req *unstructured.Unstructured, set map[string]any) error {
	keys := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return fmt.Errorf("encode annotations %s: %w", keys, err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(req.GroupVersionKind())
	obj.SetNamespace(req.GetNamespace())
	obj.SetName(req.GetName())
	err = r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("annotate %s %s with %s: %w", obj.GetKind(), client.ObjectKeyFromObject(req), keys, err)
	}
	if obj.GetUID() == req.GetUID() {
		r.memory.written.Of(obj.GroupVersionKind().GroupKind()).Note(obj)
	}
	return nil
}

// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get

// confirmed checks with live reads that the first request for a node may be created. If a watch breaks, it may take half a minute until it
// is established again, and until then the cache is stale. If the live objects forbid the request, the next reconcile decides again.
func (r *Reconciler) confirmed(ctx context.Context, state *observed, o *outcome) bool {
	node, doubt := &corev1.Node{}, ""
	err := r.Live.Get(ctx, client.ObjectKey{Name: o.Name}, node)
	if remediationrequest.Missing(err) {
		node, err = nil, nil
	}
	if err != nil {
		err = fmt.Errorf("read node %s: %w", o.Name, err)
	} else if node == nil || node.UID != o.Object.UID || node.ResourceVersion != o.Object.ResourceVersion {
		if live := state.facts.again(o.Node, node); !live.starts() {
			doubt = fmt.Sprintf("%s of node %s", live.Blockers[0].Reason, o.Name)
		}
	}
	if err == nil && doubt == "" && o.controlPlane() {
		doubt, err = r.confirmTurn(ctx, state)
	}
	if doubt != "" && r.memory.of(state.check.Name).failed >= doubtful {
		err = fmt.Errorf("the manager's cache does not show what the API server says: %s", doubt)
	}
	o.again = o.again || err == nil && doubt != ""
	o.refuse(err)
	return err == nil && doubt == ""
}

// doubtful is after how many failed reconciles in a row a stale cache is reported as an error. A broken watch is established again in 30 s.
const doubtful = 7

func leaseName(node string) string { return nhcv1.LeasePrefix + strings.ToLower(node) }

// RBAC for the leases on nodes, only in the namespace that comes with the packages (nhcv1.DefaultLeaseNamespace), because leases elsewhere
// are heartbeats of kubelets or elect leaders.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=medik8s-leases,roleName=kubemend-node-leases,verbs=list;watch;create;update;delete

func (r *Reconciler) listLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.LeaseNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the leases in %s: %w", r.LeaseNamespace, err)
	}
	return list.Items, nil
}

func (r *Reconciler) observeLeases(ctx context.Context, state *observed) error {
	leases, err := r.listLeases(ctx)
	if err != nil {
		return err
	}
	state.leases = make(map[string]*coordinationv1.Lease, len(leases))
	for i := range leases {
		state.leases[leases[i].Name] = &leases[i]
		if name, found := strings.CutPrefix(leases[i].Name, nhcv1.LeasePrefix); found && state.facts.leaseOn(nil, &leases[i]).Own {
			state.node(name)
		}
	}
	return nil
}

// take takes or renews the lease on a node, and returns it. The API server refuses the write if another client has written first.
func (r *Reconciler) take(ctx context.Context, state *observed, o *outcome) (*coordinationv1.Lease, error) {
	now, seconds := metav1.NewMicroTime(r.Clock.Now()), o.Term.Seconds()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.LeaseNamespace, Name: leaseName(o.Name)}}
	lease.Spec.LeaseTransitions = ptr.To[int32](-1)
	found := o.Lease
	if found != nil {
		lease = found.DeepCopy()
	}
	belongsTo(lease, o.Object)
	if !found.own() {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	if !found.own() || len(o.Requests)+len(o.Unseen)+len(o.Gone) == 0 { // a new remediation begins
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To(holderOf(state.check)), &seconds, &now
	if found != nil {
		if err := r.Client.Update(ctx, lease); err != nil {
			return nil, fmt.Errorf("take lease %s: %w", client.ObjectKeyFromObject(lease), err)
		}
		return lease, nil
	}
	err := r.Client.Create(ctx, lease) // the packages bring its namespace: RBAC cannot limit the creation of namespaces to one name
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("the namespace %s of the leases on nodes is missing: create it, or name another one by --node-lease-namespace: %w",
			lease.Namespace, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return lease, nil
}

// belongsTo makes node the owner of lease, so that the lease is deleted with node, and not with a former Node of the same name.
func belongsTo(lease *coordinationv1.Lease, node *corev1.Node) {
	if node == nil || slices.ContainsFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == node.UID }) {
		return
	}
	lease.OwnerReferences = slices.DeleteFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
	lease.OwnerReferences = append(lease.OwnerReferences,
		metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}

func (r *Reconciler) giveBack(ctx context.Context, lease *coordinationv1.Lease) error {
	err := r.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}},
		client.Preconditions{UID: ptr.To(lease.UID), ResourceVersion: ptr.To(lease.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return nil
}

// lease carries out the decision about the lease on the node, and returns the lease if it was taken or renewed.
func (r *Reconciler) lease(ctx context.Context, state *observed, o *outcome) (*coordinationv1.Lease, error) {
	switch o.Leasing {
	case TakeLease, RenewLease:
		return r.take(ctx, state, o)
	case DropLease:
		return nil, r.giveBack(ctx, o.Lease.Lease)
	}
	return nil, nil
}
