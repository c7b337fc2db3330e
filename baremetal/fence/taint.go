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

// Fence puts the out-of-service taint on node, signed as by: Kubernetes then deletes its pods for good and detaches their volumes. node is
// as it was last seen. It is a conflict if the node has changed since: it may have come back, and what decides is to look again. To repeat
// it does no harm, and a node that is gone needs no fence. A taint of somebody else does as well, and is left as it is; one that by
// inherits is signed.
func (n *Nodes) Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "fence node", node, func(live client.Client) error {
		return changeSeen(ctx, live, node, func(fresh *corev1.Node) { putOutOfService(fresh, by) })
	})
}

// Unfence takes by's taint and mark off node, as the API server has it now. To repeat it does no harm, and a node that is gone has none.
func (n *Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "unfence node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) { putBackInService(fresh, by) })
	})
}

// Disown takes by's mark off a node and leaves the taint, which is somebody else's from then on.
func (n *Nodes) Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "take the mark off node", node, func(live client.Client) error {
		return change(ctx, live, node, func(fresh *corev1.Node) {
			if by.owns(types.UID(fresh.Annotations[FencedByAnnotation])) {
				delete(fresh.Annotations, FencedByAnnotation)
			}
		})
	})
}

// write writes to a node past all caches. A node that is gone is no error.
func (n *Nodes) write(ctx context.Context, cluster client.ObjectKey, what string, node *corev1.Node, change func(client.Client) error) error {
	live, err := n.clusters.GetUncachedClient(ctx, cluster)
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

// change is changeSeen of the node as the API server has it: one out of a cache has few of its labels.
func change(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		fresh := &corev1.Node{}
		if err := live.Get(ctx, client.ObjectKeyFromObject(node), fresh); err != nil {
			return err
		}
		return changeSeen(ctx, live, fresh, edit)
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
