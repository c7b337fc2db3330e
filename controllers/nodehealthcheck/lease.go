package nodehealthcheck

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// A lease on a node is how checks, and the node maintenance of medik8s, keep out of each other's way: who holds it remediates.
const (
	// classicLease is for how long a node is leased where no step has a timeout.
	classicLease = 10 * time.Minute
	// leaseBuffer is by how much a lease outlasts what it is for.
	leaseBuffer = time.Minute
	// leaseTaken is how soon a node is looked at again whose lease somebody else holds.
	leaseTaken = time.Minute
	// idleLease is how long a node stays leased to a check that has nobody at work on it, and nobody to ask next. (medik8s times a single remediation
	// out after as long.)
	idleLease = 30 * time.Minute
	// skew is by how much the clock of another holder may be ahead of ours.
	skew = 30 * time.Second
)

// term is for how long a node is leased, and after how long a ladder that leads nowhere gives the lease up.
type term struct {
	length  time.Duration
	overdue time.Duration // zero: never
}

// seconds is how long a lease for the term lasts.
func (t term) seconds() int32 {
	return int32(min((t.length+leaseBuffer)/time.Second, math.MaxInt32))
}

// whileClimbing is t as long as there is a step left: the lease is kept for it, whatever holds it up.
func (t term) whileClimbing() term { return term{length: t.length} }

// termOf is the term while rung is in use. (medik8s looks a rung up by the kind of its template, and so takes that of another one.)
func termOf(rungs []escalation.Rung, rung int) term {
	if rung < 0 || rung >= len(rungs) || rungs[rung].Timeout == 0 {
		return term{length: classicLease}
	}
	length := rungs[rung].Timeout
	t := term{length: length, overdue: 3 * length}
	for _, before := range rungs[:rung] {
		t.overdue += before.Timeout
	}
	return t
}

// held reports whether lease is somebody else's and still counts at now. One that was renewed in the future counts for nothing (medik8s), but for what
// clocks differ by.
func held(lease *coordinationv1.Lease, holder string, now time.Time) bool {
	if lease == nil || heldBy(lease, "") || heldBy(lease, holder) || lease.Spec.RenewTime == nil {
		return false
	}
	renewed := lease.Spec.RenewTime.Time
	return now.Before(expiry(lease)) && !renewed.After(now.Add(skew))
}

// heldBy reports whether lease is holder's, whether it still counts or not.
func heldBy(lease *coordinationv1.Lease, holder string) bool {
	return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == holder
}

func expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}

// leasing is what to do about a lease.
type leasing int

const (
	keepLease leasing = iota
	takeLease         // it is there for nobody, or not any more
	renewLease
	dropLease
)

// leaseStep says what to do about the lease of a node that is being remediated since the given moment, and when to look again.
func leaseStep(lease *coordinationv1.Lease, holder string, t term, since, now time.Time) (leasing, time.Time) {
	ours := heldBy(lease, holder)
	acquired := since
	if ours && lease.Spec.AcquireTime != nil {
		acquired = lease.Spec.AcquireTime.Time
	}
	if overdue := acquired.Add(t.overdue); t.overdue > 0 && now.After(overdue) {
		if ours {
			return dropLease, time.Time{}
		}
		return keepLease, time.Time{}
	}
	switch {
	case held(lease, holder, now):
		return keepLease, expiry(lease)
	case !ours:
		return takeLease, now.Add(t.length)
	}
	// Renewed so early that a manager that is away for half the term loses nothing, and when the term is another step's.
	if renew := expiry(lease).Add(-leaseBuffer - t.length/2); now.Before(renew) && ptr.Deref(lease.Spec.LeaseDurationSeconds, 0) == t.seconds() {
		return keepLease, renew
	}
	return renewLease, now.Add(t.length / 2)
}

func holderOf(check *nhcv1.NodeHealthCheck) string { return nhcv1.LeaseHolderPrefix + check.Name }

func leaseName(node string) string { return nhcv1.LeasePrefix + strings.ToLower(node) }

// RBAC for the leases on nodes, in the one namespace that the packages bring (nhcv1.DefaultLeaseNamespace). A lease of any other namespace is a node's
// heartbeat, or says who leads.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=medik8s-leases,roleName=kubemend-node-leases,verbs=list;watch;create;update;delete

// listLeases returns the leases on nodes, shared with the cache: read only.
func (r *Reconciler) listLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.LeaseNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the leases in %s: %w", r.LeaseNamespace, err)
	}
	return list.Items, nil
}

// observeLeases reads the leases on nodes, in one list of those in their namespace.
func (r *Reconciler) observeLeases(ctx context.Context, w *observed) error {
	leases, err := r.listLeases(ctx)
	if err != nil {
		return err
	}
	w.leases = make(map[string]*coordinationv1.Lease, len(leases))
	for i := range leases {
		w.leases[leases[i].Name] = &leases[i]
	}
	return nil
}

// leaseOf is the lease of t. One that somebody holds on another node, which had the name before, is nobody's: it goes with that node.
func (w *observed) leaseOf(t *target) *coordinationv1.Lease {
	lease := w.leases[leaseName(t.name)]
	if lease == nil || t.node == nil || heldBy(lease, holderOf(w.check)) || !ownedByAnotherNode(lease, t.node) {
		return lease
	}
	free := lease.DeepCopy()
	free.Spec.HolderIdentity = nil
	return free
}

// ownedByAnotherNode reports whether lease belongs to a node, and to none that is node. Some belong to none.
func ownedByAnotherNode(lease *coordinationv1.Lease, node *corev1.Node) bool {
	return !ownedBy(lease, node.UID) && slices.ContainsFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
}

// leased are the nodes whose lease w's check holds.
func (w *observed) leased() []string {
	var nodes []string
	for name, lease := range w.leases {
		if node, of := strings.CutPrefix(name, nhcv1.LeasePrefix); of && heldBy(lease, holderOf(w.check)) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// take takes or renews the lease on a node, and returns it. It is refused by the API server if somebody else was faster.
func (r *Reconciler) take(ctx context.Context, w *observed, t *target, length term) (*coordinationv1.Lease, error) {
	now := metav1.NewMicroTime(r.Clock.Now())
	seconds := length.seconds()
	if t.lease == nil {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.LeaseNamespace, Name: leaseName(t.name)}}
		belongsTo(lease, t.node)
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(holderOf(w.check)), LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: ptr.To[int32](0),
		}
		return lease, r.createLease(ctx, lease)
	}
	lease := t.lease.DeepCopy()
	belongsTo(lease, t.node)
	ours := heldBy(lease, holderOf(w.check))
	if !ours {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	if !ours || !t.remediated() && len(t.gone) == 0 { // another remediation begins with it
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To(holderOf(w.check)), &seconds, &now
	if err := r.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("take lease %s: %w", client.ObjectKeyFromObject(lease), err)
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

// createLease creates lease. Its namespace comes with the packages, and not from here: a right to make namespaces is one to all of them.
func (r *Reconciler) createLease(ctx context.Context, lease *coordinationv1.Lease) error {
	err := r.Client.Create(ctx, lease)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("create lease %s: the namespace %s of the leases on nodes is missing: create it, or name another one by --node-lease-namespace: %w",
			client.ObjectKeyFromObject(lease), lease.Namespace, err)
	}
	if err != nil {
		return fmt.Errorf("create lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return nil
}

// giveBack deletes a lease of ours.
func (r *Reconciler) giveBack(ctx context.Context, lease *coordinationv1.Lease) error {
	err := r.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}},
		client.Preconditions{UID: ptr.To(lease.UID), ResourceVersion: ptr.To(lease.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete lease %s: %w", client.ObjectKeyFromObject(lease), err)
	}
	return nil
}
