package fence

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Seen is a node as it was read.
type Seen struct {
	Presence powercycle.Node

	// Node is what the API server returned; nil unless it is present. All below is read from it, and zero if there is none, but for Drained.
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

	// Drained says that the node is Fenced, or absent, and nothing is left of it that would have to move: what ran on a node that was
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

// Look looks at a node, past all caches. by is who asks: what it has signed is Ours. No name stands for a node that never was.
//
// With an error, be it that the cluster cannot be asked or that it refuses to answer, the node is unseen, so that a caller can carry on.
func (n Nodes) Look(ctx context.Context, cluster client.ObjectKey, node string, by Owner) (Seen, error) {
	if node == "" {
		return Seen{Presence: powercycle.NodeAbsent, Drained: true}, nil
	}
	live, err := n.Clusters.GetUncachedClient(ctx, cluster)
	if err == nil {
		var seen Seen
		if seen, err = lookAt(ctx, live, node, by); err == nil {
			return seen, nil
		}
	}
	return Seen{}, fmt.Errorf("look at node %q of cluster %s: %w", node, cluster, err)
}

func lookAt(ctx context.Context, live client.Reader, name string, by Owner) (Seen, error) {
	node := &corev1.Node{}
	err := live.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return Seen{}, err
	}
	seen := Seen{Presence: powercycle.NodeAbsent}
	if err == nil {
		seen = SeenOf(node, by)
	}
	if boot := node.Status.NodeInfo.BootID; by.BootID != "" && boot != "" && boot != by.BootID {
		return seen, nil
	}
	if waits := seen.Fenced || seen.Presence == powercycle.NodeAbsent; waits && !by.On {
		if err := seen.whatIsLeft(ctx, live, name, outOfService(node), by); err != nil {
			return Seen{}, err
		}
	} else if by.Fences { // it can be fenced without that as well
		if pods, err := podsLeft(ctx, live, name, nil, nil); err == nil && len(pods.uids) <= mostNoted {
			seen.Pods = append([]types.UID{}, pods.uids...)
		}
	}
	if seen.Presence == powercycle.NodeAbsent {
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
		Presence: powercycle.NodePresent, Node: node, Deleting: !node.DeletionTimestamp.IsZero(),
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

// nodeNameField is the field by which the API server can select pods of a node.
const nodeNameField = "spec.nodeName"

const (
	// podsPerPage is how many pods are asked for at once. Most nodes have at most 110.
	podsPerPage = 250
	// mostPages is how many pages of them are asked for: 10,000 pods. A node has hundreds; who offers more may offer them without end.
	mostPages = 40
	// few is how many names are reported of what is left.
	few = 5
)

// mostNoted is how many pods are remembered of a node that is fenced. More do not fit where that is kept.
const mostNoted = 1000

// whatIsLeft finds out what is left on a fenced node, or of one that is gone, and would have to move: pods, and, once these are gone,
// attachments of volumes, which go after them and are listed for all of the cluster. taint is that of the fence; nil without one.
func (s *Seen) whatIsLeft(ctx context.Context, live client.Reader, node string, taint *corev1.Taint, by Owner) error {
	pods, err := podsLeft(ctx, live, node, taint, by.Found)
	if err != nil {
		return err
	}
	left := pods.left
	if len(left) == 0 {
		attachments, err := attachmentsTo(ctx, live, node)
		if err != nil {
			return err
		}
		for i := range attachments {
			has, idle, err := pods.hasToGo(ctx, live, &attachments[i], by.Long)
			if err != nil {
				return err
			}
			switch called := "VolumeAttachment " + attachments[i].Name; {
			case has:
				left = append(left, called)
			case idle:
				s.Idle = append(s.Idle, called)
			}
		}
	}
	s.Drained, s.Left, s.Count = len(left) == 0, slices.Clip(left[:min(len(left), few)]), len(left)
	return nil
}

// podsOf are the pods of a node.
type podsOf struct {
	// left are the names of those that have to move, uids theirs.
	left []string
	uids []types.UID
	// staying are those with volumes that need not, and run.
	staying []*corev1.Pod
}

// podsLeft are the pods of a node, as the API server has them, not as a cache does. found are those that were there when it was
// fenced, nil if that is not known: what has come since has never run there, and need not move. (A ReplicaSet whose pods name a
// node replaces each that is evicted by one on that node: kubernetes/kubernetes#75913.) Of a list that does not end it returns what
// it found; if that is nothing, an error, for pods may follow.
func podsLeft(ctx context.Context, live client.Reader, node string, taint *corev1.Taint, found []types.UID) (podsOf, error) {
	var pods podsOf
	whole, err := eachPod(ctx, live, func(pod *corev1.Pod) {
		switch {
		case hasToMove(pod, taint) && (found == nil || slices.Contains(found, pod.UID)):
			pods.left = append(pods.left, fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name))
			pods.uids = append(pods.uids, pod.UID)
		case !finished(pod) && len(pod.Spec.Volumes) > 0:
			pods.staying = append(pods.staying, pod)
		}
	}, client.MatchingFields{nodeNameField: node})
	if err == nil && !whole && len(pods.left) == 0 {
		err = fmt.Errorf("list its pods: there are more than %d", mostPages*podsPerPage)
	}
	slices.Sort(pods.left)
	return pods, err
}

// eachPod calls do for each pod of a list. It returns whether that was whole.
func eachPod(ctx context.Context, live client.Reader, do func(*corev1.Pod), of ...client.ListOption) (whole bool, err error) {
	pods := &corev1.PodList{}
	for range mostPages {
		page := append(slices.Clip(of), client.Limit(podsPerPage), client.Continue(pods.Continue))
		pods = &corev1.PodList{}
		if err := live.List(ctx, pods, page...); err != nil {
			return false, fmt.Errorf("list its pods: %w", err)
		}
		for i := range pods.Items {
			do(&pods.Items[i])
		}
		if pods.Continue == "" {
			return true, nil
		}
	}
	return false, nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hasToMove tells whether a pod of a fenced node has to go before its workload has moved. These need not:
//
// Pods that have finished. Taint eviction deletes them as it does all others, but nothing of them runs, so there is nothing to start
// elsewhere, and their volumes are detached as if they were gone. A finalizer, such as the one by which Jobs count, may keep them for
// as long as its owner likes, whatever becomes of the node. The collection of pods (podgc) makes a pod Failed before it deletes it.
//
// Pods that tolerate the taint for good: taint eviction leaves them alone. One that tolerates it for some time is evicted after that
// time, so it has to move.
//
// Pods of a DaemonSet and static pods: they belong to the node and start nowhere else.
func hasToMove(pod *corev1.Pod, taint *corev1.Taint) bool {
	toleratesForGood := func(t corev1.Toleration) bool {
		return t.TolerationSeconds == nil && t.ToleratesTaint(logr.Discard(), taint, false)
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" &&
		schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == appsv1.GroupName {
		return false
	}
	if finished(pod) || taint != nil && slices.ContainsFunc(pod.Spec.Tolerations, toleratesForGood) {
		return false
	}
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirrors
}
