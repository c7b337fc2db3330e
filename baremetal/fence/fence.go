// Package fence sees, fences and frees the node of a host, in the workload cluster of its machine.
//
// It reads and writes what the caller asks. Whether a node may be fenced, and when it has to be free again, is decided elsewhere:
// nothing here knows of the host, of its power or of a deadline.
package fence

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// FencedByAnnotation on a node says whose the out-of-service taint is: its value is the UID of a remediation. It comes and goes in the same
// patch as the taint. A taint without it was put there by somebody else, and is never taken away, but for the one that CAPM3 put there for
// a remediation that was taken over from it.
const FencedByAnnotation = mendv1.FencedByAnnotation

// Clusters are the connections to workload clusters; Cluster API's ClusterCache has them.
type Clusters interface {
	// GetUncachedClient returns a client that reads past all caches.
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Owner is a remediation as it signs a node: by its UID. clusterctl move gives it a new one, and what it signed before is still its own.
type Owner struct {
	UID types.UID
	// Former are other marks that count as its own: the UID that it had before it was moved, and that of a remediation of the same machine
	// that does not exist any more.
	Former []types.UID
	// Unsigned says that a taint without a mark counts as its own as well: CAPM3 signs nothing.
	Unsigned bool
	// Fences says that it is about to fence the node, so that it has to know the pods that are there; Found are those that it knows
	// of, nil if it knows of none, and Long says that the fence has stood for as long as volumes take to be detached.
	Fences bool
	Found  []types.UID
	Long   bool
	// On says that the host of the node is on, so that nothing waits for what is left on it.
	On bool
	// BootID is the boot of the node before its host was powered off; empty if it is not known. Under another one nothing of before runs,
	// and whether its kubelet lives needs no more signs.
	BootID string
}

func (o Owner) owns(mark types.UID) bool {
	return mark != "" && (mark == o.UID || slices.Contains(o.Former, mark))
}

// inherits reports whether the taint on node is o's without bearing its present UID.
func (o Owner) inherits(node *corev1.Node) bool {
	taint, mark := outOfService(node), types.UID(node.Annotations[FencedByAnnotation])
	return taint != nil && taint.Value == infrav1.OutOfServiceTaintValue && (mark == "" && o.Unsigned || slices.Contains(o.Former, mark))
}

// RBAC in the workload clusters, besides that of package workload. The taint comes and goes by a patch. No pod and no
// volume is touched: Kubernetes does that, once the node is fenced.
// +kubebuilder:rbac:groups=core,resources=nodes,roleName=kubemend-workload-fencer,verbs=patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=core,resources=pods,roleName=kubemend-workload-fencer,verbs=list
// +kubebuilder:rbac:groups=core,resources=persistentvolumes,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,roleName=kubemend-workload-fencer,verbs=list

// Nodes sees and fences the nodes of these clusters. It is safe for concurrent use.
type Nodes struct{ Clusters Clusters }

// Fence puts the out-of-service taint on node, signed as by: Kubernetes then deletes its pods for good and detaches their volumes. node is
// as it was last seen. It is a conflict if the node has changed since: it may have come back, and what decides is to look again. To repeat
// it does no harm, and a node that is gone needs no fence. A taint of somebody else does as well, and is left as it is; one that by
// inherits is signed.
func (n Nodes) Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "fence node", node, func(live client.Client) error {
		return changeSeen(ctx, live, node, func(fresh *corev1.Node) { putOutOfService(fresh, by) })
	})
}

// Unfence takes by's taint and mark off node, which is as Look has returned it, or has a name alone. To repeat it does no harm, and a node
// that is gone has none.
func (n Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "unfence node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) { putBackInService(fresh, by) })
	})
}

// Disown takes by's mark off a node and leaves the taint, which is somebody else's from then on.
func (n Nodes) Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "take the mark off node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) {
			if by.owns(types.UID(fresh.Annotations[FencedByAnnotation])) {
				delete(fresh.Annotations, FencedByAnnotation)
			}
		})
	})
}

// write writes to a node past all caches. A node that is gone is no error.
func (n Nodes) write(ctx context.Context, cluster client.ObjectKey, what string, node *corev1.Node, change func(client.Client) error) error {
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		err = change(live)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s %q of cluster %s: %w", what, node.Name, cluster, err)
	}
	return nil
}

// changeSeen patches what edit changes in a copy of node, if it changes anything. The list of taints has no key by which those of two
// writers could be merged, so that the patch applies to no other version of the node.
func changeSeen(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node)) error {
	changed := node.DeepCopy()
	edit(changed)
	if equality.Semantic.DeepEqual(node, changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	return live.Patch(ctx, changed, patch, client.FieldOwner(mendv1.FieldOwner))
}

// change is changeSeen of a node as Look has returned it, or as the API server has it if that has changed since, or if it has no version.
func change(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node)) error {
	seen := node
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if seen == nil || seen.ResourceVersion == "" {
			seen = &corev1.Node{}
			if err := live.Get(ctx, client.ObjectKeyFromObject(node), seen); err != nil {
				return err
			}
		}
		err := changeSeen(ctx, live, seen, edit)
		seen = nil
		return err
	})
}

// putOutOfService adds the taint and signs it, unless there is one. One that by inherits is signed anew, so that the next reader sees that
// it has an owner. The mark of somebody whose taint is gone is written over.
//
// It has no timeAdded, which is optional, and which nothing here or in Kubernetes reads of this taint: Rancher up to v2.12.1 copies the
// taints of a node into the tolerations of its agent, which have no such field, and loses the cluster over it (rancher/rancher#51795).
func putOutOfService(node *corev1.Node, by Owner) {
	if by.inherits(node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, FencedByAnnotation, string(by.UID))
	}
	if outOfService(node) != nil {
		return
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
		Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
	})
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, FencedByAnnotation, string(by.UID))
}

// putBackInService takes the taint and the mark away, if they are by's. Only the taint as we write it is taken: one of another value has
// been put in its place by somebody else.
func putBackInService(node *corev1.Node, by Owner) {
	if !SeenOf(node, by).Ours {
		return
	}
	delete(node.Annotations, FencedByAnnotation)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == infrav1.OutOfServiceTaintKey && t.Value == infrav1.OutOfServiceTaintValue && t.Effect == infrav1.OutOfServiceTaintEffect
	})
}
