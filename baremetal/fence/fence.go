// Package fence reads, fences and unfences a host's node in the workload cluster.
//
// The caller decides whether a node may be fenced, and when it has to be unfenced. This package knows nothing of the host, its power or
// deadlines.
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

// FencedByAnnotation on a node is the UID of the remediation that put the out-of-service taint there. Taint and annotation come and go in
// the same patch. A taint without the annotation was put there by somebody else and is never removed, unless CAPM3 put it there for a
// remediation that kubemend took over.
const FencedByAnnotation = mendv1.FencedByAnnotation

// Clusters returns clients for workload clusters; Cluster API's ClusterCache implements it.
type Clusters interface {
	// GetUncachedClient returns a client that reads past all caches.
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Owner is a remediation as the owner of a fence.
type Owner struct {
	UID types.UID
	// Former are other UIDs whose fences the owner takes over: its own UID from before `clusterctl move`, and that of a remediation of the
	// same machine that does not exist any more.
	Former []types.UID
	// Unsigned says that a taint without FencedByAnnotation is the owner's too, because CAPM3 writes no annotation.
	Unsigned bool
	// Fences says that the owner is about to fence the node, so that Look lists the pods that have to move.
	Fences bool
	// Found are the pods that Look listed before the node was fenced; nil if they are not known.
	Found []types.UID
	// Long says that the fence has stood for as long as Kubernetes takes to detach volumes.
	Long bool
	// On says that the host of the node is on, so that the workload is not waited for.
	On bool
	// BootID is the node's boot ID before the power cycle; empty if it is not known. If the node has another one, nothing from before runs
	// on it.
	BootID string
}

func (o Owner) owns(mark types.UID) bool {
	return mark != "" && (mark == o.UID || slices.Contains(o.Former, mark))
}

// inherits reports whether node has a fence that o takes over, and that does not have o's UID.
func (o Owner) inherits(node *corev1.Node) bool {
	taint, mark := outOfService(node), types.UID(node.Annotations[FencedByAnnotation])
	return taint != nil && taint.Value == infrav1.OutOfServiceTaintValue && (mark == "" && o.Unsigned || slices.Contains(o.Former, mark))
}

// RBAC in the workload clusters, besides that of package workload. kubemend touches no pods and no volumes: Kubernetes removes them from a
// fenced node.
// +kubebuilder:rbac:groups=core,resources=nodes,roleName=kubemend-workload-fencer,verbs=patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=core,resources=pods,roleName=kubemend-workload-fencer,verbs=list
// +kubebuilder:rbac:groups=core,resources=persistentvolumes,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,roleName=kubemend-workload-fencer,verbs=list

// Nodes reads and fences nodes of workload clusters. It is safe for concurrent use.
type Nodes struct{ Clusters Clusters }

// Fence puts the out-of-service taint and by's UID on node, as it was last read. Kubernetes then deletes its pods for good and detaches
// their volumes. If the node has changed since, the error is a conflict: the node may have come back, and has to be read again. A taint of
// somebody else stays as it is; one that by takes over gets by's UID. A node that is gone needs no fence.
func (n Nodes) Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "fence node", node, func(live client.Client) error {
		return changeSeen(ctx, live, node, func(fresh *corev1.Node) { putOutOfService(fresh, by) })
	})
}

// Unfence removes by's taint and annotation from node, which is as Look has returned it, or has a name alone. It is no error if there is
// nothing to remove.
func (n Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "unfence node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) { putBackInService(fresh, by) })
	})
}

// Disown removes by's annotation from a node and leaves the taint, which kubemend never removes after that.
func (n Nodes) Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "take the mark off node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) {
			if by.owns(types.UID(fresh.Annotations[FencedByAnnotation])) {
				delete(fresh.Annotations, FencedByAnnotation)
			}
		})
	})
}

// write changes a node with an uncached client. It is no error if the node is gone.
func (n Nodes) write(
	ctx context.Context, cluster client.ObjectKey, what string, node *corev1.Node, change func(client.Client) error,
) error {
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		err = change(live)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s %q of cluster %s: %w", what, node.Name, cluster, err)
	}
	return nil
}

// changeSeen patches what edit changes in node. The patch fails if the node has changed since it was read, because the list of taints has
// no merge key, so that a patch would overwrite the taints of other writers.
func changeSeen(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node)) error {
	changed := node.DeepCopy()
	edit(changed)
	if equality.Semantic.DeepEqual(node, changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	return live.Patch(ctx, changed, patch, client.FieldOwner(mendv1.FieldOwner))
}

// change is like changeSeen, but reads the node again if it has changed, or if node has only a name.
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

// putOutOfService adds the taint with by's UID, unless there is a taint. A taint that by takes over gets by's UID. An annotation without a
// taint is overwritten.
//
// The taint has no timeAdded. The field is optional, and nobody reads it for this taint, but Rancher up to v2.12.1 loses the cluster over
// it: it copies the taints of a node into the tolerations of its agent, which have no such field (rancher/rancher#51795).
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

// putBackInService removes the taint and the annotation if they are by's. A taint with another value is somebody else's, and stays.
func putBackInService(node *corev1.Node, by Owner) {
	if !SeenOf(node, by).Ours {
		return
	}
	delete(node.Annotations, FencedByAnnotation)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == infrav1.OutOfServiceTaintKey && t.Value == infrav1.OutOfServiceTaintValue &&
			t.Effect == infrav1.OutOfServiceTaintEffect
	})
}
