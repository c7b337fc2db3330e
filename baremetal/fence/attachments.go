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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byNode is the index of attachments by the node they are of. The API server cannot select them by it.
const byNode = "kubemend.io/node"

// SlimAttachment is the transform of caches of VolumeAttachments: it keeps the name, the node, the volume's name, whether that is attached,
// and whether it is to be detached.
func SlimAttachment(obj any) (any, error) {
	a, ok := obj.(*storagev1.VolumeAttachment)
	if !ok {
		return obj, nil
	}
	source := storagev1.VolumeAttachmentSource{PersistentVolumeName: a.Spec.Source.PersistentVolumeName}
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion, DeletionTimestamp: a.DeletionTimestamp},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: a.Spec.NodeName, Source: source},
		Status:     storagev1.VolumeAttachmentStatus{Attached: a.Status.Attached},
	}, nil
}

// attachmentsLeft are the attachments of volumes to a node, attached or not: one that is not may be about to be. They come from
// the cache of the cluster; before that is filled, from a list of all, if the caller says that the answer is worth it.
//
// A cache may be stale. One that still has what is gone will see it go, and that is reported. One that does not have yet what is new does
// no harm here: nothing is attached anew to a node that is out of service.
func (n *Nodes) attachmentsLeft(
	ctx context.Context, live client.Reader, cluster client.ObjectKey, node string, ask bool,
) ([]*storagev1.VolumeAttachment, error) {
	switch cached := n.cachedAttachments(cluster); {
	case cached != nil:
		objs, err := cached.ByIndex(byNode, node)
		if err != nil {
			return nil, fmt.Errorf("look up its volume attachments: %w", err)
		}
		var attachments []*storagev1.VolumeAttachment
		for _, obj := range objs {
			attachments = append(attachments, obj.(*storagev1.VolumeAttachment))
		}
		return sorted(attachments), nil
	case ask:
		return listAttachments(ctx, live, node)
	}
	return nil, nil
}

// listAttachments are the attachments of volumes to a node, from a list of those to all nodes.
func listAttachments(ctx context.Context, live client.Reader, node string) ([]*storagev1.VolumeAttachment, error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list volume attachments: %w", err)
	}
	var attachments []*storagev1.VolumeAttachment
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.NodeName == node {
			attachments = append(attachments, a)
		}
	}
	return sorted(attachments), nil
}

func sorted(attachments []*storagev1.VolumeAttachment) []*storagev1.VolumeAttachment {
	slices.SortFunc(attachments, func(a, b *storagev1.VolumeAttachment) int { return strings.Compare(a.Name, b.Name) })
	return attachments
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

// cachedAttachments returns the cache of a cluster's attachments; nil if it is not filled, or is of a connection that is no more.
func (n *Nodes) cachedAttachments(cluster client.ObjectKey) toolscache.Indexer {
	n.mu.Lock()
	defer n.mu.Unlock()
	informer := n.attachments[cluster]
	switch {
	case informer == nil:
		return nil
	case informer.IsStopped():
		delete(n.attachments, cluster)
		return nil
	case !informer.HasSynced():
		return nil
	}
	return informer.GetIndexer()
}

// attachmentStore remembers where the attachments of a cluster are cached, and reports when one of them goes.
// ClusterCache calls it once for every connection it makes, so after a reconnect the new cache takes the place of the old one.
type attachmentStore struct {
	nodes   *Nodes
	cluster client.ObjectKey
}

var _ clustercache.Watcher = attachmentStore{}

// Name identifies the watch; ClusterCache adds one of a name only once to a connection.
func (attachmentStore) Name() string { return "kubemend-volume-attachments" }

// Object is the kind that is watched.
func (attachmentStore) Object() client.Object { return &storagev1.VolumeAttachment{} }

// Watch takes hold of the informer of attachments. It must not block: ClusterCache holds a lock meanwhile.
func (s attachmentStore) Watch(attachments cache.Cache) error {
	informer, err := attachments.GetInformer(context.Background(), &storagev1.VolumeAttachment{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache volume attachments of cluster %s: %w", s.cluster, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("cache volume attachments of cluster %s: the informer is a %T and cannot be read", s.cluster, informer)
	}
	if err := shared.AddIndexers(toolscache.Indexers{byNode: nodeOfAttachment}); err != nil {
		return fmt.Errorf("index volume attachments of cluster %s: %w", s.cluster, err)
	}
	if _, err := shared.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: s.gone}); err != nil {
		return fmt.Errorf("watch volume attachments of cluster %s: %w", s.cluster, err)
	}
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.nodes.attachments[s.cluster] = shared
	return nil
}

// gone reports the node of an attachment that is gone.
func (s attachmentStore) gone(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if a, ok := obj.(*storagev1.VolumeAttachment); ok && s.nodes.watched(Place{s.cluster, a.Spec.NodeName}) {
		s.nodes.left(Place{s.cluster, a.Spec.NodeName})
	}
}

func nodeOfAttachment(obj any) ([]string, error) {
	a, ok := obj.(*storagev1.VolumeAttachment)
	if !ok {
		return nil, fmt.Errorf("index volume attachments by node: %T is none", obj)
	}
	return []string{a.Spec.NodeName}, nil
}
