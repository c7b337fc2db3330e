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
