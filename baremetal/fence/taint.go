package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		return changeSeen(ctx, live, node, func(is *corev1.Node) { putOutOfService(is, by) })
	})
}

// Unfence takes by's taint and mark off node, which is as it was last seen. To repeat it does no harm, and a node that is gone has no
// taint.
func (n *Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "unfence node", node, func(live client.Client) error {
		return change(ctx, live, node, func(is *corev1.Node) { putBackInService(is, by) })
	})
}

// Disown takes by's mark off a node and leaves the taint, which is somebody else's from then on. node is as it was last seen.
func (n *Nodes) Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	return n.write(ctx, cluster, "take the mark off node", node, func(live client.Client) error {
		return change(ctx, live, node, func(is *corev1.Node) {
			if by.owns(types.UID(is.Annotations[FencedByAnnotation])) {
				delete(is.Annotations, FencedByAnnotation)
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

// changeSeen patches what edit changes in a copy of was, if it changes anything.
//
// The patch holds what was changed alone, but the list of taints only as a whole, for there is no key by which the taints of two
// writers could be merged. So it applies to no other version than was.
func changeSeen(ctx context.Context, live client.Client, was *corev1.Node, edit func(*corev1.Node)) error {
	is := was.DeepCopy()
	edit(is)
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	patch, err := difference(was, is)
	if err != nil {
		return err
	}
	return live.Patch(ctx, is, patch, client.FieldOwner(mendv1.FieldOwner))
}

// change is changeSeen, which after a conflict edits what the API server has now.
func change(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node)) error {
	was := node
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := changeSeen(ctx, live, was, edit)
		if !apierrors.IsConflict(err) {
			return err
		}
		fresh := &corev1.Node{}
		if err := live.Get(ctx, client.ObjectKeyFromObject(node), fresh); err != nil {
			return err
		}
		was = fresh
		return err
	})
}

// difference is the patch that makes a node that is as it was what is says. It names each label and annotation that goes: of a node out of a cache, which
// keeps few of them, the last one that is known would else take all others with it.
func difference(was, is *corev1.Node) (client.Patch, error) {
	whole, err := client.MergeFrom(was).Data(is)
	if err != nil {
		return nil, err
	}
	var changes struct {
		Metadata map[string]any  `json:"metadata"`
		Spec     json.RawMessage `json:"spec,omitempty"`
	}
	if err := json.Unmarshal(whole, &changes); err != nil {
		return nil, fmt.Errorf("read the patch of a node: %w", err)
	}
	if changes.Metadata == nil {
		changes.Metadata = map[string]any{}
	}
	changes.Metadata["resourceVersion"] = was.ResourceVersion
	for field, had := range map[string]map[string]string{"annotations": was.Annotations, "labels": was.Labels} {
		if now, goes := changes.Metadata[field]; !goes || now != nil {
			continue
		}
		each := map[string]any{}
		for key := range had {
			each[key] = nil
		}
		changes.Metadata[field] = each
	}
	content, err := json.Marshal(changes)
	return client.RawPatch(types.MergePatchType, content), err
}

// putOutOfService adds the taint and signs it, unless there is one. One that by inherits is signed anew, so that the next reader sees that it has
// an owner. The mark of somebody whose taint is gone is written over.
//
// It has no timeAdded, which is optional, and which nothing here or in Kubernetes reads of this taint: Rancher up to v2.12.1 copies the taints of a node into
// the tolerations of its agent, which have no such field, and loses the cluster over it (rancher/rancher#51795).
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
