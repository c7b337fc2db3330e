// Package fence is the node of a host, in its workload cluster: it lets the workload of a node whose host is off start elsewhere, and
// takes that back.
//
// It decides nothing. That the host is off is for the caller to know: what is done here moves pods and volumes of a node without
// asking it, and corrupts data if the node still runs.
package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Clusters are the workload clusters; Cluster API's ClusterCache has them. Its clients are made once for each connection.
type Clusters interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
	GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error)
}

// Volumes are the attached volumes of a workload cluster, by the name of their node.
type Volumes interface {
	// On returns the names of the VolumeAttachments of a node.
	On(ctx context.Context, cluster client.ObjectKey, node string) ([]string, error)
}

// Nodes are the nodes of workload clusters.
type Nodes struct {
	Clusters Clusters
	Volumes  Volumes
	// Override is the mode for all clusters; empty if each has that which its version knows.
	Override Mode

	mu    sync.Mutex
	modes map[client.ObjectKey]knownMode
}

// By is the remediation for which a node is fenced.
type By struct {
	// UID is its UID; Before, the one that it had before it was moved by clusterctl.
	UID, Before types.UID
	// Backup is what was saved of a node before it was deleted; nil if nothing was.
	Backup *Backup
	// Save stores a backup where Backup is read. A node is deleted only after that has succeeded.
	Save func(context.Context, Backup) error
}

func (b By) is(uid string) bool {
	return uid != "" && (uid == string(b.UID) || uid == string(b.Before))
}

// Seen is what the workload cluster itself says of a node.
type Seen struct {
	// Absent says that there is no such node.
	Absent bool
	// Fenced says that the workload may start elsewhere, ByUs that we have something to take back.
	Fenced, ByUs bool
	// Left names what is left on the node that has to move, at most a few and how many more.
	Left []string
}

// fenceTaint lets pods and volumes of the node move. It is a value, so that nobody shares what another one writes.
func fenceTaint(now metav1.Time) corev1.Taint {
	return corev1.Taint{
		Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect, TimeAdded: &now,
	}
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}

// Look asks the workload cluster itself about a node.
func (n *Nodes) Look(ctx context.Context, cluster client.ObjectKey, name string, by By) (Seen, error) {
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return Seen{}, fmt.Errorf("look at node %q: %w", name, err)
	}
	node := &corev1.Node{}
	if err := live.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return Seen{Absent: true, ByUs: by.Backup != nil}, nil
	} else if err != nil {
		return Seen{}, fmt.Errorf("look at node %q: %w", name, err)
	}
	seen := Seen{Fenced: tainted(node), ByUs: by.is(node.Annotations[mendv1.FencedByAnnotation]) || by.Backup != nil}
	if !node.DeletionTimestamp.IsZero() {
		seen.Fenced = true
	}
	if !seen.Fenced {
		return seen, nil
	}
	seen.Left, err = n.left(ctx, live, cluster, name)
	return seen, err
}

// Fence lets the workload of the node start elsewhere.
func (n *Nodes) Fence(ctx context.Context, cluster client.ObjectKey, name string, by By) error {
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("fence node %q: %w", name, err)
	}
	mode, err := n.modeOf(ctx, cluster)
	if err != nil {
		return fmt.Errorf("fence node %q: %w", name, err)
	}
	node := &corev1.Node{}
	if err := live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("fence node %q: %w", name, client.IgnoreNotFound(err))
	}
	if mode == Delete {
		return remove(ctx, live, node, by)
	}
	if tainted(node) {
		return nil // somebody else's is as good, and is not ours to take back
	}
	err = patchTaints(ctx, live, node, append(slices.Clone(node.Spec.Taints), fenceTaint(metav1.NewTime(time.Now()))), string(by.UID))
	if err != nil {
		return fmt.Errorf("fence node %q: %w", name, err)
	}
	return nil
}

// Unfence takes back what we did to the node.
func (n *Nodes) Unfence(ctx context.Context, cluster client.ObjectKey, name string, by By) error {
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("unfence node %q: %w", name, err)
	}
	node := &corev1.Node{}
	if err := live.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("unfence node %q: %w", name, err)
	}
	if by.is(node.Annotations[mendv1.FencedByAnnotation]) {
		left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
			return t.Key == infrav1.OutOfServiceTaintKey && t.Value == infrav1.OutOfServiceTaintValue
		})
		if err := patchTaints(ctx, live, node, left, ""); err != nil {
			return fmt.Errorf("unfence node %q: %w", name, err)
		}
	}
	if by.Backup != nil {
		return by.Backup.restore(ctx, live, node)
	}
	return nil
}

// patchTaints writes taints and mark in one, if the node has not changed since it was read: taints are a list that the node lifecycle
// controller writes too. The error is a conflict if it has.
func patchTaints(ctx context.Context, c client.Client, node *corev1.Node, taints []corev1.Taint, mark string) error {
	var by any = mark
	if mark == "" {
		by = nil
	}
	if taints == nil {
		taints = []corev1.Taint{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]any{mendv1.FencedByAnnotation: by},
		},
		"spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encode taints: %w", err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	return client.IgnoreNotFound(c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)))
}

// remove deletes that very node, after what is worth keeping of it was saved.
func remove(ctx context.Context, c client.Client, node *corev1.Node, by By) error {
	if by.Backup == nil {
		backup, err := backupOf(node)
		if err != nil {
			return fmt.Errorf("fence node %q: %w", node.Name, err)
		}
		if err := by.Save(ctx, backup); err != nil {
			return fmt.Errorf("fence node %q: save its labels and annotations: %w", node.Name, err)
		}
	}
	if err := c.Delete(ctx, node, client.Preconditions{UID: ptr.To(node.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("fence node %q: delete it: %w", node.Name, err)
	}
	return nil
}
