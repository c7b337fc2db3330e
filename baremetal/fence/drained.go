package fence

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is how many pods are asked for at once; a node has rarely more than 250.
const page = 500

// mirrorAnnotation is on the pods that a kubelet shows of its static ones.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// left names what is left on a fenced node that has to move. An error is an error: neither "drained" nor "not drained".
func (n *Nodes) left(ctx context.Context, live client.Client, cluster client.ObjectKey, node string) ([]string, error) {
	pods, err := podsLeft(ctx, live, node)
	if err != nil {
		return nil, err
	}
	volumes, err := n.Volumes.On(ctx, cluster, node)
	if err != nil {
		return nil, fmt.Errorf("find out which volumes are attached to node %q: %w", node, err)
	}
	left := pods
	for _, v := range volumes {
		left = append(left, "VolumeAttachment "+v)
	}
	return left, nil
}

// podsLeft names the pods of a node that have to go, whether they have been told to or not: for a moment after a node is fenced none has.
func podsLeft(ctx context.Context, live client.Client, node string) ([]string, error) {
	var left []string
	list := &corev1.PodList{}
	for {
		if err := live.List(ctx, list, client.MatchingFields{"spec.nodeName": node}, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return nil, fmt.Errorf("list the pods of node %q: %w", node, err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; hasToGo(p) {
				left = append(left, "Pod "+p.Namespace+"/"+p.Name)
			}
		}
		if list.Continue == "" {
			slices.Sort(left)
			return left, nil
		}
	}
}

// hasToGo reports whether a pod leaves a node that is out of service. A pod that tolerates the taint stays, and so do those that a
// kubelet or a DaemonSet would only make again on that very node; pods that are over hold nothing. (Kubernetes: the pod garbage
// collector deletes all pods of such a node that are being terminated; the taint eviction controller terminates those that do not
// tolerate it. DaemonSet pods are deleted as well, but their controller may put a new one there at once.)
func hasToGo(p *corev1.Pod) bool {
	if _, static := p.Annotations[mirrorAnnotation]; static {
		return false
	}
	if owner := metav1.GetControllerOf(p); owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") {
		return false
	}
	if p.DeletionTimestamp.IsZero() && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
		return false
	}
	taint := fenceTaint(metav1.Time{})
	for i := range p.Spec.Tolerations {
		if t := &p.Spec.Tolerations[i]; tolerates(t, &taint) && t.TolerationSeconds == nil {
			return false
		}
	}
	return true
}

// tolerates is Kubernetes' rule of tolerations for a taint that is compared by equality.
func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	default:
		return false
	}
}
