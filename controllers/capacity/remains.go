package capacity

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// readRemains reads the object that the deletion of the machine waits for.
func (r *reading) readRemains(ctx context.Context) error {
	if r.old == nil {
		return nil
	}
	d, err := &r.facts.Old.Deletion, error(nil)
	switch d.Condition.Reason {
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		d.Infra, err = r.remains(ctx, r.old.Spec.InfrastructureRef)
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		d.Bootstrap, err = r.remains(ctx, r.old.Spec.Bootstrap.ConfigRef)
	}
	return err
}

// remains is what is left of an object of a Machine. Only its metadata is read.
func (r *reading) remains(ctx context.Context, ref clusterv1.ContractVersionedObjectReference) (capacity.Remains, error) {
	untyped, err := r.untyped(schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return capacity.Remains{}, r.unread(ref.Kind+"s", err)
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(untyped.GroupVersionKind())
	exists, _, err := r.get(ctx, ref.Name, obj, ref.Kind+"s")
	if err != nil || !exists {
		return capacity.Remains{}, err
	}
	return capacity.Remains{Exists: true, Group: ref.APIGroup, Paused: paused(obj), Deleting: moment(obj.DeletionTimestamp), Finalizers: finalizersOf(obj)}, nil
}

// readWorkload reads what a drain or the detachment of volumes waits for from the workload cluster itself. Whatever goes wrong
// there, what Cluster API says of it remains.
func (r *reading) readWorkload(ctx context.Context) error {
	d := &r.facts.Old.Deletion
	drains := d.Condition.Reason == clusterv1.MachineDeletingDrainingNodeReason
	detaches := d.Condition.Reason == clusterv1.MachineDeletingWaitingForVolumeDetachReason
	if r.Workload == nil || r.facts.Old.Node == "" || !drains && !detaches {
		return nil
	}
	reader, err := r.Workload(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster})
	if err != nil {
		r.facts.Unread = append(r.facts.Unread, "Pods")
		return nil //nolint:nilerr // it is in Unread, and what Cluster API says remains
	}
	if drains {
		err = r.readPods(ctx, reader)
	} else {
		d.Volumes, err = r.volumes(ctx, reader)
	}
	if err != nil {
		r.facts.Unread = append(r.facts.Unread, "Pods")
	}
	return nil
}

// volumes are those that are attached to the node and waited for: those of VolumeAttachments, or those that the node names.
func (r *reading) volumes(ctx context.Context, reader client.Reader) ([]capacity.Volume, error) {
	attachments, is := &storagev1.VolumeAttachmentList{}, &corev1.Node{}
	if err := reader.List(ctx, attachments); err != nil {
		return nil, err
	}
	attachments.Items = slices.DeleteFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool {
		return a.Spec.NodeName != r.facts.Old.Node || !a.Status.Attached
	})
	if len(attachments.Items) > 0 {
		return r.waited(ctx, reader, attachments.Items), nil
	}
	if err := client.IgnoreNotFound(reader.Get(ctx, client.ObjectKey{Name: r.facts.Old.Node}, is)); err != nil {
		return nil, err
	}
	var all []capacity.Volume
	for _, attached := range is.Status.VolumesAttached {
		all = append(all, capacity.Volume{Name: string(attached.Name)})
	}
	slices.SortFunc(all, func(a, b capacity.Volume) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// waited are the volumes of attachments, but for those whose claims are of pods that the drain skips. (Cluster API, core/reconcilers/machine,
// getPersistentVolumeClaimsToIgnore.) What is not known is waited for.
func (r *reading) waited(ctx context.Context, reader client.Reader, attachments []storagev1.VolumeAttachment) []capacity.Volume {
	var skipped map[client.ObjectKey]bool
	if pods, d, err := r.draining(ctx, reader); err == nil {
		skipped = d.claimsOfSkipped(pods)
	}
	var all []capacity.Volume
	for i := range attachments {
		a := &attachments[i]
		v := capacity.Volume{Attachment: a.Name, Attacher: a.Spec.Attacher, Deleting: moment(a.DeletionTimestamp)}
		v.Name = ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
		if a.Status.DetachError != nil {
			v.Error = a.Status.DetachError.Message
		}
		volume := &corev1.PersistentVolume{}
		if len(skipped) > 0 && v.Name != "" && reader.Get(ctx, client.ObjectKey{Name: v.Name}, volume) == nil && volume.Spec.ClaimRef != nil &&
			skipped[client.ObjectKey{Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name}] {
			continue
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b capacity.Volume) int { return strings.Compare(a.Name+a.Attachment, b.Name+b.Attachment) })
	return all
}
