package nodehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// leaseFacts are what is known of the lease on a node. One that another holder has on another node, which had the name before, counts as
// without holder: it goes with that node.
func leaseFacts(lease *coordinationv1.Lease, node *corev1.Node, check *nhcv1.NodeHealthCheck) *nodes.Lease {
	if lease == nil {
		return nil
	}
	facts := &nodes.Lease{
		Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), Own: heldBy(lease, check),
		Duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		Acquired: ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time, Renewed: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
	ofNode := func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" }
	if node != nil && !facts.Own && !ownedBy(lease, node.UID) && slices.ContainsFunc(lease.OwnerReferences, ofNode) {
		facts.Holder = ""
	}
	return facts
}

func ownedBy(obj metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// heldBy reports whether the lease is the check's, whether it still counts or not.
func heldBy(lease *coordinationv1.Lease, check *nhcv1.NodeHealthCheck) bool {
	return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == holderOf(check)
}

func holderOf(check *nhcv1.NodeHealthCheck) string { return nhcv1.LeaseHolderPrefix + check.Name }

func leaseName(node string) string { return nhcv1.LeasePrefix + strings.ToLower(node) }

// RBAC for the leases on nodes, in the one namespace that the packages bring (nhcv1.DefaultLeaseNamespace). A lease of any other
// namespace is a node's heartbeat, or says who leads.
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
	}
	return nil
}

func (state *observed) leased() []string {
	var held []string
	for name, lease := range state.leases {
		if node, found := strings.CutPrefix(name, nhcv1.LeasePrefix); found && heldBy(lease, state.check) {
			held = append(held, node)
		}
	}
	return held
}

// take takes or renews the lease on a node, and returns it. The API server refuses it if somebody else was faster.
func (r *Reconciler) take(ctx context.Context, state *observed, o *outcome) (*coordinationv1.Lease, error) {
	now, seconds := metav1.NewMicroTime(r.Clock.Now()), o.Term.Seconds()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.LeaseNamespace, Name: leaseName(o.n.Name)}}
	lease.Spec.LeaseTransitions = ptr.To[int32](-1)
	found := state.leases[lease.Name]
	if found != nil {
		lease = found.DeepCopy()
	}
	belongsTo(lease, o.n.Object)
	ours := heldBy(lease, state.check)
	if !ours {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	if !ours || len(o.n.Requests)+len(o.n.Unseen)+len(o.n.Gone) == 0 { // another remediation begins with it
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To(holderOf(state.check)), &seconds, &now
	if found != nil {
		if err := r.Client.Update(ctx, lease); err != nil {
			return nil, fmt.Errorf("take lease %s: %w", client.ObjectKeyFromObject(lease), err)
		}
		return lease, nil
	}
	err := r.Client.Create(ctx, lease) // its namespace comes with the packages: a right to make namespaces is one to all of them
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("the namespace %s of the leases on nodes is missing: create it, or name another one by --node-lease-namespace: %w",
			lease.Namespace, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return lease, nil
}

// belongsTo makes lease go when node goes, and not when another one went that had its name before.
func belongsTo(lease *coordinationv1.Lease, node *corev1.Node) {
	if node == nil || ownedBy(lease, node.UID) {
		return
	}
	lease.OwnerReferences = slices.DeleteFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
	lease.OwnerReferences = append(lease.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}

func (r *Reconciler) giveBack(ctx context.Context, lease *coordinationv1.Lease) error {
	err := r.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}},
		client.Preconditions{UID: ptr.To(lease.UID), ResourceVersion: ptr.To(lease.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return nil
}

// lease does what is decided of the lease on the node, and returns that if it was taken or renewed.
func (r *Reconciler) lease(ctx context.Context, state *observed, o *outcome) (*coordinationv1.Lease, error) {
	switch o.Lease {
	case nodes.TakeLease, nodes.RenewLease:
		return r.take(ctx, state, o)
	case nodes.DropLease:
		return nil, r.giveBack(ctx, state.leases[leaseName(o.n.Name)])
	case nodes.KeepLease:
	}
	return nil, nil
}
