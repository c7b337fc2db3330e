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

// whatIsLeft finds out what is left on a fenced node, or of one that is gone, and would have to move: pods, and attachments of volumes. taint is the one
// by which the node is fenced, if it is.
func (s *Seen) whatIsLeft(ctx context.Context, live client.Reader, node string, taint *corev1.Taint, attached volumes) error {
	pods, version, err := podsLeft(ctx, live, node, taint)
	if err != nil {
		return err
	}
	// Attachments that are not cached are listed for all of the cluster. That can wait until the pods are gone, for the volumes go after
	// them.
	volumes, err := attached(len(pods) == 0)
	if err != nil {
		return err
	}
	left := slices.Concat(pods, volumes)
	s.pods, s.volumes = version, len(volumes)
	s.Drained, s.Left, s.Count = len(left) == 0, firstFew(left), len(left)
	return nil
}

// podsLeft names the pods that are left on a node, as the API server has them, not as a cache does, and returns the version of the list. Of a list
// that does not end it returns what it found; if that is nothing, an error, for pods may follow.
func podsLeft(ctx context.Context, live client.Reader, node string, taint *corev1.Taint) (left []string, version string, err error) {
	page := ""
	for range mostPages {
		pods := &corev1.PodList{}
		err = live.List(ctx, pods, client.MatchingFields{nodeNameField: node}, client.Limit(podsPerPage), client.Continue(page))
		if err != nil {
			return nil, "", fmt.Errorf("list its pods: %w", err)
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; hasToMove(pod, taint) {
				left = append(left, fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name))
			}
		}
		if page = pods.Continue; page == "" {
			slices.Sort(left)
			return left, pods.ResourceVersion, nil
		}
		version = pods.ResourceVersion
	}
	if len(left) == 0 {
		return nil, "", fmt.Errorf("list its pods: there are more than %d", mostPages*podsPerPage)
	}
	slices.Sort(left)
	return left, version, nil
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
	switch {
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return false
	case taint != nil && slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return toleratesForGood(t, taint) }):
		return false
	case ofDaemonSet(pod):
		return false
	}
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirrors
}

func toleratesForGood(t corev1.Toleration, taint *corev1.Taint) bool {
	return t.TolerationSeconds == nil && t.ToleratesTaint(logr.Discard(), taint, false)
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == appsv1.GroupName && owner.Kind == "DaemonSet"
}

// firstFew are the names to tell.
func firstFew(names []string) []string { return slices.Clip(names[:min(len(names), few)]) }
