package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podWatch is an informer of the pods of one node.
type podWatch struct {
	config *rest.Config // that of its connection
	cancel context.CancelFunc
}

// Watch makes sure that it is reported when something leaves the node, until Unwatch, Forget or Close. It is to be asked for in every
// reconcile that waits for that (see Seen.Waits): the first report comes when the informer has all pods, since some may have left before.
//
// One that is of the same connection is left as it is. A cluster without a connection is not watched, and this is no error: that it is
// connected again ClusterCache's own source reports.
func (n *Nodes) Watch(ctx context.Context, cluster client.ObjectKey, node string) error {
	err := n.watch(ctx, Place{cluster, node})
	if err == nil || errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil
	}
	return fmt.Errorf("watch what leaves node %q of cluster %s: %w", node, cluster, err)
}

func (n *Nodes) watch(ctx context.Context, at Place) error {
	if err := n.clusters.Watch(ctx, at.Cluster, attachmentStore{n, at.Cluster}); err != nil {
		return err
	}
	config, err := n.clusters.GetRESTConfig(ctx, at.Cluster)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	former := n.watches[at]
	if n.closed || former != nil && former.config == config {
		return nil
	}
	pods, err := n.pods(config, at.Node)
	if err != nil {
		return fmt.Errorf("watch its pods: %w", err)
	}
	alone, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the reconcile that asks for it
	report := func() {
		if alone.Err() == nil {
			n.left(at)
		}
	}
	var count atomic.Int64
	handles, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			if count.Add(1) > mostPages*podsPerPage { // a server can invent some with every watch; the node is read again without it
				cancel()
			}
		},
		UpdateFunc: func(_, pod any) {
			if forced(pod) {
				report()
			}
		},
		DeleteFunc: func(any) { count.Add(-1); report() },
	})
	if err != nil {
		cancel()
		return fmt.Errorf("watch its pods: %w", err)
	}
	if former != nil {
		former.cancel()
	}
	n.watches[at] = &podWatch{config: config, cancel: cancel}
	n.running.Go(func() { pods.RunWithContext(alone) })
	n.running.Go(func() {
		if toolscache.WaitFor(alone, "", handles.HasSyncedChecker()) {
			report()
		}
	})
	return nil
}

// unawaited is the timeout of the requests of an informer: that of ClusterCache's own. Its 10 s for others would end every watch after as
// long, and with none a request to an API server that hangs would take a worker's place for ever. (workload, awaited.)
const unawaited = 11 * time.Minute

// newPods returns an informer of the metadata of the pods of a node. client-go shares the TCP connection with ClusterCache's clients,
// since the configuration is the same but for the timeout.
func newPods(config *rest.Config, node string) (toolscache.SharedIndexInformer, error) {
	patient := rest.CopyConfig(config)
	patient.Timeout = unawaited
	reader, err := metadata.NewForConfig(patient)
	if err != nil {
		return nil, fmt.Errorf("build a client for pods: %w", err)
	}
	kind := corev1.SchemeGroupVersion.WithResource("pods")
	pods := metadatainformer.NewFilteredMetadataInformer(reader, kind, metav1.NamespaceAll, 0, nil, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(nodeNameField, node).String()
	}).Informer()
	if err := pods.SetTransform(slimPod); err != nil {
		return nil, fmt.Errorf("keep little of pods: %w", err)
	}
	return pods, nil
}

// slimPod keeps of the metadata of a pod what tells that it leaves, and no more of its name than a name has.
func slimPod(obj any) (any, error) {
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	cut := func(name string) string {
		return strings.Clone(name[:min(len(name), validation.DNS1123SubdomainMaxLength)])
	}
	return &metav1.PartialObjectMetadata{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: cut(pod.Namespace), Name: cut(pod.Name), UID: types.UID(cut(string(pod.UID))), ResourceVersion: cut(pod.ResourceVersion),
		DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
	}}, nil
}

// Unwatch ends the watch on a node, if there is one.
func (n *Nodes) Unwatch(cluster client.ObjectKey, node string) {
	at := Place{cluster, node}
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watches[at]; w != nil {
		w.cancel()
		delete(n.watches, at)
	}
}

// Close ends all watches, and returns when nothing of any watch runs any more, also of those that ended before. Nothing is watched, and
// nothing is reported afterwards.
func (n *Nodes) Close() {
	n.mu.Lock()
	n.closed = true
	for at, w := range n.watches {
		w.cancel()
		delete(n.watches, at)
	}
	n.mu.Unlock()
	n.running.Wait()
}

func (n *Nodes) watched(at Place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.watches[at] != nil
}

// forced reports whether a pod was deleted by force and is kept by a finalizer alone: it need not move any more. The request to end, which
// comes before, changes nothing, and on a full node is a hundred events.
func forced(pod any) bool {
	meta, ok := pod.(metav1.Object)
	if !ok || meta.GetDeletionTimestamp().IsZero() {
		return false
	}
	grace := meta.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace == 0
}
