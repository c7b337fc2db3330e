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
// wait for a volume that a pod has which stays on the node, unless the attachment is being deleted.
func (p podsOf) hasToGo(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment) (bool, error) {
	if !a.DeletionTimestamp.IsZero() || len(p.staying) == 0 {
		return true, nil
	}
	claim, err := claimOf(ctx, live, a)
	return !slices.ContainsFunc(p.staying, func(pod *corev1.Pod) bool { return hasClaim(pod, claim) }), err
}

// claimOf returns the claim that is bound to the volume of an attachment; an empty key if there is none, if the volume is gone, if we may
// not read it, or if a pod names it inline: only volumes of clouds can be that, and none is attached to a bare-metal host.
func claimOf(ctx context.Context, live client.Reader, a *storagev1.VolumeAttachment) (client.ObjectKey, error) {
	name := a.Spec.Source.PersistentVolumeName
	if name == nil {
		return client.ObjectKey{}, nil
	}
	found := &corev1.PersistentVolume{}
	err := live.Get(ctx, client.ObjectKey{Name: *name}, found)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return client.ObjectKey{}, fmt.Errorf("read volume %s: %w", *name, err)
	}
	if ref := found.Spec.ClaimRef; ref != nil {
		return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, nil
	}
	return client.ObjectKey{}, nil
}

// hasClaim reports whether pod has the volume of a claim.
func hasClaim(pod *corev1.Pod, claim client.ObjectKey) bool {
	return pod.Namespace == claim.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim.Name ||
			volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim.Name
	})
}
