package fence

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// whatIsLeft finds out what is left on a fenced node, or of one that is gone, and would have to move: pods, and attachments of volumes.
// taint is the one by which the node is fenced, if it is.
func (s *Seen) whatIsLeft(ctx context.Context, live client.Reader, node string, taint *corev1.Taint, by Owner, attached volumes) error {
	pods, err := podsLeft(ctx, live, node, taint, by.Found)
	if err != nil {
		return err
	}
	// Attachments that are not cached are listed for all of the cluster. That can wait until the pods are gone, for the volumes go after
	// them.
	attachments, err := attached(len(pods.left) == 0)
	if err != nil {
		return err
	}
	left := pods.left
	for _, a := range attachments {
		has, idle, called := true, false, "VolumeAttachment "+a.Name
		if len(pods.left) == 0 {
			if has, idle, err = pods.hasToGo(ctx, live, a, by.Long); err != nil {
				return err
			}
		}
		switch {
		case has:
			left = append(left, called)
		case idle:
			s.Idle = append(s.Idle, called)
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
	if finished(pod) || ofDaemonSet(pod) || taint != nil && slices.ContainsFunc(pod.Spec.Tolerations, toleratesForGood) {
		return false
	}
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirrors
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == appsv1.GroupName && owner.Kind == "DaemonSet"
}
