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
	// attachmentsPerPage is how many attachments are asked for at once: an answer of all of a large cluster is longer than one may be
	// (--clustercache-response-limit). attachmentPages is how many pages of them there may be.
	attachmentsPerPage = 500
	attachmentPages    = 200
)

// attachmentsTo are the attachments of volumes to a node, attached or not: one that is not may be about to be. The API server cannot select
// them by their node.
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
	awaited = awaited || !whole // in doubt
	return awaited, !awaited, err
}

// claimOf returns the claim that the volume of an attachment is bound to; none if the volume is gone, or no claim is bound to it. It
// returns false if that is not known, or must not be read. A volume that a pod names itself is not known: of these kinds only those of
// clouds are attached, and none of them to a bare-metal host.
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
