package fence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Seen is what Look has read of a node.
type Seen struct {
	Presence powercycle.Node

	// Node is the node; nil unless it is present. Without it, all fields below are zero, except those of what is left of the node.
	Node *corev1.Node
	// Deleting says that the node is being deleted, and that a finalizer keeps it.
	Deleting bool
	// Sign is the last sign of life of the kubelet, by the node's clock: when it last renewed its lease, posted the condition Ready, or
	// became Ready. Zero if there is none.
	Sign time.Time

	// Fenced says that the node has the out-of-service taint, from anybody.
	Fenced bool
	// Ours says that the node has our annotation, or a taint that we take over, so that there is something to remove.
	Ours bool
	// Inherited says that the node has a taint that we take over, so that Fence has to write our UID on the node.
	Inherited bool
	// Mark is the value of FencedByAnnotation, whoever wrote it.
	Mark types.UID

	// Drained says that the node is fenced or gone, and that nothing that has to move is left of it. Kubernetes deletes the pods of a
	// deleted node some time later. It is false for a node that is not fenced: even if no pods are there, new ones may come.
	Drained bool
	// Left are the names of the first few objects that are left, sorted. Count is the number of all of them.
	Left  []string
	Count int
	// Idle are attachments whose volume no pod has or waits for.
	Idle []string
	// Pods are the pods that have to move off a node that is about to be fenced; nil if Owner.Fences is false, or if there are too many.
	Pods []types.UID
}

// Look reads a node with an uncached client, on behalf of by. An empty name stands for a node that never existed.
//
// If the workload cluster does not answer, or refuses to, Seen says NodeUnseen besides the error, so that a caller can go on.
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
	} else if by.Fences { // an error does not keep it from being fenced
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

// lastSign returns the kubelet's last sign of life. A kubelet renews its lease every ten seconds (Kubernetes, "Node heartbeats"), and posts
// unchanged conditions every five minutes. A lease that is missing, or that we may not read, says nothing.
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

// SeenOf returns what can be seen on the node object itself, on behalf of by.
func SeenOf(node *corev1.Node, by Owner) Seen {
	mark := types.UID(node.Annotations[FencedByAnnotation])
	seen := Seen{
		Presence: powercycle.NodePresent, Node: node, Deleting: !node.DeletionTimestamp.IsZero(),
		// A node that is being deleted and has a finalizer still exists for Kubernetes: without the taint, its pods are not deleted.
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

// outOfService returns the out-of-service taint of node; nil if there is none. The value does not matter: Kubernetes looks at the key only,
// and evicts pods only for the effect NoExecute.
func outOfService(node *corev1.Node) *corev1.Taint {
	for i, t := range node.Spec.Taints {
		if t.Key == infrav1.OutOfServiceTaintKey && t.Effect == infrav1.OutOfServiceTaintEffect {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// nodeNameField is the field selector for the pods of a node.
const nodeNameField = "spec.nodeName"

const (
	// podsPerPage is how many pods one request lists. Most nodes have at most 110.
	podsPerPage = 250
	// mostPages limits a list to 10,000 pods. A node has hundreds; a server that returns more may never stop.
	mostPages = 40
	// few is how many names Seen.Left has.
	few = 5
)

// mostNoted is how many pods of a fenced node are remembered. More do not fit into the annotation of the remediation.
const mostNoted = 1000

// whatIsLeft finds what has to move and is left on a fenced node, or of a node that is gone: pods, and when these are gone, volume
// attachments. Attachments go after the pods, and can only be listed for the whole cluster. taint is the fence; nil if there is none.
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
	// left are the names of the pods that have to move, and uids are their UIDs.
	left []string
	uids []types.UID
	// staying are the running pods with volumes that need not move.
	staying []*corev1.Pod
}

// podsLeft lists the pods of a node, uncached. found are the pods that were there when the node was fenced; nil if they are not known.
// Later pods have never run on the node and need not move. (If the pods of a ReplicaSet name a node, each evicted pod is replaced by one on
// that node: kubernetes/kubernetes#75913.) If the list does not end, the result is what was found; if nothing was found, an error, because
// pods may follow.
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

// eachPod calls do for each pod of a list. It returns false if the list did not end.
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

// hasToMove reports whether a pod has to leave a fenced node before its workload counts as moved. These pods need not:
//   - Pods that have finished: nothing of them runs, and Kubernetes detaches their volumes as if the pods were gone. A finalizer, such as
//     that of a Job, may keep them as long as its owner likes. The pod garbage collector marks a pod Failed before it deletes it.
//   - Pods that tolerate the taint without tolerationSeconds: taint eviction leaves them alone.
//   - Pods of a DaemonSet and static pods: they belong to the node and start nowhere else.
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

const (
	// attachmentsPerPage is how many attachments one request lists: in a large cluster, all of them in one answer would exceed
	// --clustercache-response-limit. attachmentPages is the most pages that are read.
	attachmentsPerPage = 500
	attachmentPages    = 200
)

// attachmentsTo lists the attachments of a node, even those that are not attached yet. The API server cannot select attachments by node.
func attachmentsTo(ctx context.Context, live client.Reader, node string) ([]storagev1.VolumeAttachment, error) {
	var attachments []storagev1.VolumeAttachment
	page := ""
	for range attachmentPages {
		list := &storagev1.VolumeAttachmentList{}
		if err := live.List(ctx, list, client.Limit(attachmentsPerPage), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("list volume attachments: %w", err)
		}
		attachments = append(attachments,
			slices.DeleteFunc(list.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != node })...)
		if page = list.Continue; page == "" {
			slices.SortFunc(attachments, func(a, b storagev1.VolumeAttachment) int { return strings.Compare(a.Name, b.Name) })
			return attachments, nil
		}
	}
	return nil, fmt.Errorf("list volume attachments: there are more than %d", attachmentPages*attachmentsPerPage)
}

// hasToGo reports whether the power cycle waits until an attachment is gone, once no pod that has to move is left on the node. It does not
// wait in these two cases, unless the attachment is being deleted:
//   - A pod that stays on the node has the volume.
//   - The fence has stood for long, and no pod has the volume or waits for it, so that nothing will detach the volume. Then idle is true.
//
// If kubemend may not read the volume, the power cycle waits.
func (p podsOf) hasToGo(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment, long bool) (has, idle bool, err error) {
	if !a.DeletionTimestamp.IsZero() || len(p.staying) == 0 && !long {
		return true, false, nil
	}
	claim, known, err := claimOf(ctx, live, a)
	ofClaim := func(pod *corev1.Pod) bool { return hasClaim(pod, claim) }
	switch {
	case err != nil || !known:
		return true, false, err
	case slices.ContainsFunc(p.staying, ofClaim):
		return false, false, nil
	case !long:
		return true, false, nil
	case claim == client.ObjectKey{}:
		return false, true, nil
	}
	awaited := false
	whole, err := eachPod(ctx, live, func(pod *corev1.Pod) {
		awaited = awaited || pod.Status.Phase == corev1.PodPending && ofClaim(pod)
	}, client.InNamespace(claim.Namespace))
	awaited = awaited || !whole // in doubt, wait
	return awaited, !awaited, err
}

// claimOf returns the claim that is bound to the volume of an attachment; an empty key if there is none, or if the volume is gone. known is
// false if we may not read the volume, or if a pod names it inline: only volumes of clouds can be that, and none is attached to a
// bare-metal host.
func claimOf(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment) (claim client.ObjectKey, known bool, err error) {
	name := a.Spec.Source.PersistentVolumeName
	if name == nil {
		return claim, false, nil
	}
	found := &corev1.PersistentVolume{}
	switch err := live.Get(ctx, client.ObjectKey{Name: *name}, found); {
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return claim, false, nil
	case client.IgnoreNotFound(err) != nil:
		return claim, false, fmt.Errorf("read volume %s: %w", *name, err)
	}
	if ref := found.Spec.ClaimRef; ref != nil {
		claim = client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	}
	return claim, true, nil
}

// hasClaim reports whether pod has the volume of a claim.
func hasClaim(pod *corev1.Pod, claim client.ObjectKey) bool {
	return pod.Namespace == claim.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim.Name ||
			volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim.Name
	})
}
