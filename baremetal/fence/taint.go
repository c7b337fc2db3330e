package fence

import (
	"context"
	"encoding/json"
	"errors"
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

var (
	errGone     = errors.New("it is gone, and its labels and annotations cannot be restored yet")
	errDeleting = errors.New("it is being deleted, and its labels and annotations cannot be restored yet")
)

// Fence makes the workload of a node move, by the given mode, and signs it as by. node is as it was last seen. It is a
// conflict if the node has changed since: it may have come back, and what decides is to look again. To repeat it does no
// harm, and a node that is gone needs no fence.
//
// With Taint, a taint of somebody else does as well, and is left as it is; one that by inherits is signed. With Delete, that very node is deleted,
// not another one of its name; its backup must have been stored before.
func (n *Nodes) Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner, mode Mode) error {
	live, err := n.clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		switch mode {
		case Taint:
			err = changeSeen(ctx, live, node, func(is *corev1.Node) error {
				putOutOfService(is, by)
				return nil
			})
		case Delete:
			err = live.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}},
				client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
		default:
			err = fmt.Errorf("%q is no way to do that", mode)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("fence node %q of cluster %s: %w", node.Name, cluster, err)
	}
	return nil
}

// Unfence reverts what Fence did, in either mode: our taint and our mark, and it gives a node that was created since the one of saved was deleted
// what it lacks of that. node is as it was last seen. To repeat it does no harm.
//
// A node that is gone needs to be rid of no taint, but it is an error if there is something to give back: the caller that keeps the backup
// must not drop it before this has returned nil.
func (n *Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner, saved Backup) error {
	err := n.unfence(ctx, cluster, node, by, saved)
	if err != nil {
		return fmt.Errorf("unfence node %q of cluster %s: %w", node.Name, cluster, err)
	}
	return nil
}

func (n *Nodes) unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner, saved Backup) error {
	kept, err := saved.parse()
	if err != nil {
		return err
	}
	if saved.Deleted.IsZero() {
		kept = keepsakes{}
	}
	live, err := n.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return err
	}
	err = change(ctx, live, node, func(is *corev1.Node) error {
		if !kept.empty() && !is.DeletionTimestamp.IsZero() {
			return errDeleting
		}
		putBackInService(is, by)
		if saved.since(is) {
			kept.giveBack(is)
		}
		return nil
	})
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case !kept.empty():
		return errGone
	}
	return nil
}

// Disown takes by's mark off a node and leaves the taint, which is somebody else's from then on. node is as it was last seen.
func (n *Nodes) Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by Owner) error {
	live, err := n.clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		err = change(ctx, live, node, func(is *corev1.Node) error {
			if by.owns(types.UID(is.Annotations[FencedByAnnotation])) {
				delete(is.Annotations, FencedByAnnotation)
			}
			return nil
		})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the mark off node %q of cluster %s: %w", node.Name, cluster, err)
	}
	return nil
}

// changeSeen patches what edit changes in a copy of was, if it changes anything.
//
// The patch holds what was changed alone, but the list of taints only as a whole, for there is no key by which the taints of two
// writers could be merged. So it applies to no other version than was.
func changeSeen(ctx context.Context, live client.Client, was *corev1.Node, edit func(*corev1.Node) error) error {
	is := was.DeepCopy()
	if err := edit(is); err != nil {
		return err
	}
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
func change(ctx context.Context, live client.Client, node *corev1.Node, edit func(*corev1.Node) error) error {
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
