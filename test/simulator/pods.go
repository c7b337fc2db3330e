package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// csiVolumes is how node and controllers call the volumes of CSI drivers: this, the driver, a caret and the handle.
const csiVolumes = "kubernetes.io/csi/"

// tendPods brings the pods of the node on: one that is new runs as soon as its volumes are attached, and one that is to
// go is gone at once. A kubelet that does not run leaves every pod as it is.
func (b *boot) tendPods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": b.options.Node}); err != nil {
		return fmt.Errorf("list the pods of node %s: %w", b.options.Node, err)
	}
	var errs []error
	inUse := map[corev1.UniqueVolumeName]bool{}
	for i := range pods.Items {
		volumes, err := b.tend(ctx, &pods.Items[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("tend pod %s of node %s: %w", pods.Items[i].Name, b.options.Node, err))
		}
		for _, volume := range volumes {
			inUse[volume] = true
		}
	}
	b.inUse = b.inUse[:0:0]
	for volume := range inUse {
		b.inUse = append(b.inUse, volume)
	}
	slices.Sort(b.inUse)
	return errors.Join(errs...)
}

// tend brings one pod on, and returns the volumes that it uses from then on.
func (b *boot) tend(ctx context.Context, pod *corev1.Pod) ([]corev1.UniqueVolumeName, error) {
	if !pod.DeletionTimestamp.IsZero() {
		now := client.GracePeriodSeconds(0)
		return nil, client.IgnoreNotFound(b.client.Delete(ctx, pod, now, client.Preconditions{UID: &pod.UID}))
	}
	volumes, err := b.volumesOf(ctx, pod)
	if err != nil || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning || runs(pod) {
		return volumes, err
	}
	for _, volume := range volumes {
		if !b.attached[volume] {
			return volumes, nil
		}
	}
	before := pod.DeepCopy()
	run(pod)
	return volumes, client.IgnoreNotFound(b.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)))
}

// runs reports whether the pod is said to run; node-lifecycle takes Ready away from the pods of a silent node.
func runs(pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return pod.Status.Phase == corev1.PodRunning && ready
}

func run(pod *corev1.Pod) {
	now := metav1.Now()
	pod.Status.Phase = corev1.PodRunning
	if pod.Status.StartTime == nil {
		pod.Status.StartTime = &now
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}

// volumesOf are the volumes of CSI drivers that a pod uses; others need nothing from anybody. A claim that is not bound
// is an error, as it is for a real kubelet: it tries again.
func (b *boot) volumesOf(ctx context.Context, pod *corev1.Pod) ([]corev1.UniqueVolumeName, error) {
	var volumes []corev1.UniqueVolumeName
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name, err := b.volume(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName})
		if err != nil {
			return nil, err
		}
		if name != "" {
			volumes = append(volumes, name)
		}
	}
	return volumes, nil
}

func (b *boot) volume(ctx context.Context, key client.ObjectKey) (corev1.UniqueVolumeName, error) {
	if name, known := b.volumes[key]; known {
		return name, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := b.client.Get(ctx, key, claim); err != nil {
		return "", fmt.Errorf("read claim %s: %w", key, err)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("use claim %s: it is not bound", key)
	}
	volume := &corev1.PersistentVolume{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return "", fmt.Errorf("read the volume of claim %s: %w", key, err)
	}
	var name corev1.UniqueVolumeName
	if csi := volume.Spec.CSI; csi != nil {
		name = corev1.UniqueVolumeName(csiVolumes + csi.Driver + "^" + csi.VolumeHandle)
	}
	b.volumes[key] = name
	return name, nil
}
