package fence

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attachmentsLeft are the attachments of volumes to a node with no pod that has to move, attached or not: one that is not may be about to
// be. The API server cannot select them by node. idle are those that nothing waits for.
func (p podsOf) attachmentsLeft(ctx context.Context, live client.Reader, node string, long bool) (left, idle []string, err error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := live.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("list volume attachments: %w", err)
	}
	for i := range list.Items {
		attachment := &list.Items[i]
		if attachment.Spec.NodeName != node {
			continue
		}
		name := "VolumeAttachment " + attachment.Name
		switch has, unused, err := p.hasToGo(ctx, live, attachment, long); {
		case err != nil:
			return nil, nil, err
		case has:
			left = append(left, name)
		case unused:
			idle = append(idle, name)
		}
	}
	slices.Sort(left)
	slices.Sort(idle)
	return left, idle, nil
}

// hasToGo reports whether a power cycle waits until an attachment to a node with no pod that has to move is gone. It does for one that
// is being deleted, and not for these:
//
// Those of volumes that a pod has which stays on the node.
//
// If the fence has stood for long, those of volumes that no pod has, and none elsewhere waits for: nothing detaches them, and
// nothing needs them. idle is true for these.
//
// A volume that must not be read says nothing: its attachment has to go.
func (p podsOf) hasToGo(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment, long bool) (has, idle bool, err error) {
	if !a.DeletionTimestamp.IsZero() || len(p.staying) == 0 && !long {
		return true, false, nil
	}
	volume, known, err := volumeOf(ctx, live, a)
	switch {
	case err != nil || !known:
		return true, false, err
	case slices.ContainsFunc(p.staying, volume.isOf):
		return false, false, nil
	case !long:
		return true, false, nil
	case volume == attachedVolume{}:
		return false, true, nil
	}
	awaited := false
	whole, err := eachPod(ctx, live, func(pod *corev1.Pod) {
		awaited = awaited || pod.Status.Phase == corev1.PodPending && volume.isOf(pod)
	}, client.InNamespace(volume.claim.Namespace))
	awaited = awaited || !whole // in doubt
	return awaited, !awaited, err
}

// attachedVolume is what tells which pods have a volume that is attached: the claim that it is bound to, or the handle of one that a pod
// names itself, in all namespaces. It is zero of a volume that is gone, or that no claim is bound to.
type attachedVolume struct {
	claim  client.ObjectKey
	inline string
}

// volumeOf returns the volume of an attachment; false if that is not known, or must not be read.
func volumeOf(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment) (volume attachedVolume, known bool, err error) {
	name, inline := a.Spec.Source.PersistentVolumeName, a.Spec.Source.InlineVolumeSpec
	switch {
	case name == nil && inline != nil && inline.CSI != nil:
		return attachedVolume{inline: inline.CSI.VolumeHandle}, inline.CSI.VolumeHandle != "", nil
	case name == nil:
		return attachedVolume{}, false, nil
	}
	found := &corev1.PersistentVolume{}
	switch err := live.Get(ctx, client.ObjectKey{Name: *name}, found); {
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return attachedVolume{}, false, nil
	case client.IgnoreNotFound(err) != nil:
		return attachedVolume{}, false, fmt.Errorf("read volume %s: %w", *name, err)
	}
	if ref := found.Spec.ClaimRef; ref != nil {
		volume.claim = client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	}
	return volume, true, nil
}

// isOf reports whether pod has v.
func (v attachedVolume) isOf(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		id := ""
		switch {
		case volume.PersistentVolumeClaim != nil:
			return v.claim == client.ObjectKey{Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName}
		case volume.Ephemeral != nil:
			return v.claim == client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name + "-" + volume.Name}
		case volume.AWSElasticBlockStore != nil:
			id = volume.AWSElasticBlockStore.VolumeID
		case volume.AzureDisk != nil:
			id = volume.AzureDisk.DataDiskURI
		case volume.Cinder != nil:
			id = volume.Cinder.VolumeID
		case volume.GCEPersistentDisk != nil:
			id = volume.GCEPersistentDisk.PDName
		case volume.PortworxVolume != nil:
			id = volume.PortworxVolume.VolumeID
		case volume.VsphereVolume != nil:
			id = volume.VsphereVolume.VolumePath
		}
		// A handle is the ID that the pod has, but for GCE, where it is a path that ends in it, and for AWS, where the ID may be a path
		// that ends in it. (csi-translation-lib, TranslateInTreeInlineVolumeToCSI.)
		return id != "" && v.inline != "" && (id == v.inline || strings.HasSuffix(v.inline, "/"+id) || strings.HasSuffix(id, "/"+v.inline))
	})
}
