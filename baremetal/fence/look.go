package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// Presence is what there is of a node.
type Presence int

const (
	// Unseen may be there: the workload cluster could not be asked. It is the zero value, so that nothing is ever concluded from a read
	// that failed.
	Unseen Presence = iota
	// Absent is not there: the workload cluster itself said so, or the machine never had a node.
	Absent
	// Present is there.
	Present
)

// Seen is a node as it was read.
type Seen struct {
	Presence Presence
	// Cause is why a node is Unseen. It is for the log: its text is another one each time.
	Cause error

	// Node is what the API server returned; nil unless Present. All below is read from it, and zero if there is none, but for Drained.
	Node *corev1.Node
	// Deleting says that the node is being deleted and is kept by a finalizer.
	Deleting bool
	// Sign is the last sign of life of its kubelet, by the clock of the node: when it has renewed its lease, posted its condition Ready, or
	// become Ready. Zero if there is none.
	Sign time.Time

	// Fenced says that the node has the out-of-service taint, whosesoever it is.
	Fenced bool
	// Ours says that the node bears our mark: there is something to remove.
	Ours bool
	// Inherited says that it is Ours, and bears no mark or another one than that of the UID that the remediation has now: Fence signs it
	// anew.
	Inherited bool
	// Mark is the mark that the node bears, whosesoever it is.
	Mark types.UID

	// Drained says that the node is Fenced, or Absent, and nothing is left of it that would have to move: what ran on a node that was
	// deleted is collected some time after it. A node that is not fenced is not asked for what is there: that pods are gone means nothing
	// while others may come.
	Drained bool
	// Left are the names of the first few that are left, sorted, and Count is how many there are in all.
	Left  []string
	Count int
	// Idle are attachments that are left, and that nothing waits for: no pod has their volume, or wants it.
	Idle []string
	// Pods are the pods that have to move of a node that is about to be fenced; nil if that is not asked for, or they are too many.
	Pods []types.UID
}

// Waits reports whether something has to leave the node before it is Drained.
func (s Seen) Waits() bool { return (s.Fenced || s.Presence == Absent) && !s.Drained }

// Look looks at a node, past all caches. by is who asks: what it has signed is Ours. No name stands for a node that never was.
//
// A cluster that cannot be asked is no error: the node is Unseen. An error means that the cluster gave an answer that is of no use, such
// as a refusal; the look that comes with it is of a node Unseen as well, so that a caller can carry on, and tell of the error.
func (n *Nodes) Look(ctx context.Context, cluster client.ObjectKey, node string, by Owner) (Seen, error) {
	if node == "" {
		return Seen{Presence: Absent, Drained: true}, nil
	}
	var seen Seen
	live, err := n.clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		// Else each read of a fenced node would list the attachments of all nodes. Watch returns why it cannot be.
		_ = n.clusters.Watch(ctx, cluster, attachmentStore{n, cluster})
		seen, err = lookAt(ctx, live, node, by, func(ask bool) ([]*storagev1.VolumeAttachment, error) {
			return n.attachmentsLeft(ctx, live, cluster, node, ask)
		})
	}
	switch {
	case err == nil:
		return seen, nil
	case !errors.Is(ctx.Err(), context.Canceled) && outOfReach(err): // a deadline that has passed is the cluster's silence
		return Seen{Cause: err}, nil
	default:
		return Seen{}, fmt.Errorf("look at node %q of cluster %s: %w", node, cluster, err)
	}
}

// volumes are the attachments of volumes to a node. Where that means to list those of all nodes it is done only if the caller asks for it.
type volumes func(ask bool) ([]*storagev1.VolumeAttachment, error)

func lookAt(ctx context.Context, live client.Reader, name string, by Owner, attached volumes) (Seen, error) {
	node := &corev1.Node{}
	err := live.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return Seen{}, err
	}
	seen := Seen{Presence: Absent}
	if err == nil {
		seen = SeenOf(node, by)
	}
	if seen.Fenced || seen.Presence == Absent {
		if err := seen.whatIsLeft(ctx, live, name, outOfService(node), by, attached); err != nil {
			return Seen{}, err
		}
	} else if by.Fences { // it can be fenced without that as well
		if pods, err := podsLeft(ctx, live, name, nil, nil); err == nil && len(pods.uids) <= mostNoted {
			seen.Pods = append([]types.UID{}, pods.uids...)
		}
	}
	if seen.Presence == Absent {
		return seen, nil
	}
	seen.Sign, err = lastSign(ctx, live, seen)
	return seen, err
}

// lastSign is the last sign of life of a node's kubelet. It renews its lease every ten seconds (Kubernetes, "Node heartbeats"), and posts
// its conditions every five minutes if they do not change. A lease that must not be read, or is not there, says nothing.
func lastSign(ctx context.Context, live client.Reader, seen Seen) (time.Time, error) {
	sign := seen.Sign
	lease := &coordinationv1.Lease{}
	err := live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: seen.Node.Name}, lease)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return time.Time{}, fmt.Errorf("read its lease: %w", err)
	}
	if at := lease.Spec.RenewTime; err == nil && at != nil && at.After(sign) {
		sign = at.Time
	}
	return sign, nil
}

// SeenOf is all that a node itself shows to by.
func SeenOf(node *corev1.Node, by Owner) Seen {
	mark := types.UID(node.Annotations[FencedByAnnotation])
	seen := Seen{
		Presence: Present, Node: node, Deleting: !node.DeletionTimestamp.IsZero(),
		// A node that is being deleted, and that a finalizer keeps, is there for Kubernetes: without the taint no pod of it is deleted.
		Fenced: outOfService(node) != nil,
		Ours:   by.owns(mark) || by.inherits(node), Inherited: by.inherits(node), Mark: mark,
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			seen.Sign = c.LastHeartbeatTime.Time
			if c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(seen.Sign) {
				seen.Sign = c.LastTransitionTime.Time
			}
		}
	}
	return seen
}

// OutOfService reports whether node has the taint by which its workload is made to move, whosesoever it is.
func OutOfService(node *corev1.Node) bool { return outOfService(node) != nil }

// outOfService returns the taint by which node is out of service; nil if there is none. Its value does not matter: Kubernetes goes
// by the key, and pods are evicted by NoExecute alone.
func outOfService(node *corev1.Node) *corev1.Taint {
	for i, t := range node.Spec.Taints {
		if t.Key == infrav1.OutOfServiceTaintKey && t.Effect == infrav1.OutOfServiceTaintEffect {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// outOfReach tells a cluster that cannot be asked from one that gave an answer. An API server that fails, is overrun or has lost its
// etcd has not answered.
func outOfReach(err error) bool {
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	code := answer.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}
