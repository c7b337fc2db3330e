package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// openPatience is how long to wait for the API server to begin a watch.
	openPatience = 10 * time.Second
	// pauseAfterEnd is how long after the end of a watch its node is woken. A server that ends every watch at once would else be asked
	// for the next as fast as it can refuse.
	pauseAfterEnd = time.Second
)

// podWatch is an open watch on the pods of one node.
type podWatch struct {
	config *rest.Config // that of its connection
	cancel context.CancelFunc
}

// Watch makes sure that it is reported when something leaves the node that was there when it was seen so, until Unwatch, Forget or Close. It is to be asked for
// in every reconcile that waits for that (see Seen.Waits): nothing goes unseen in between.
//
// One that is open and of the same connection is left as it is. When it ends for other reasons, because the API server or the network
// ended it, that is reported once, and the next reconcile asks again. A cluster without a connection is not watched, and this is no error:
// that it is connected again ClusterCache's own source reports.
func (n *Nodes) Watch(ctx context.Context, cluster client.ObjectKey, node string, seen Seen) error {
	err := n.watch(ctx, Place{cluster, node}, seen)
	if err == nil || errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil
	}
	return fmt.Errorf("watch what leaves node %q of cluster %s: %w", node, cluster, err)
}

func (n *Nodes) watch(ctx context.Context, at Place, seen Seen) error {
	if err := n.clusters.Watch(ctx, at.Cluster, attachmentStore{n, at.Cluster}); err != nil {
		return err
	}
	config, err := n.clusters.GetRESTConfig(ctx, at.Cluster)
	if err != nil {
		return err
	}
	alone, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the pass that asks for it
	w := &podWatch{config: config, cancel: cancel}
	if !n.claim(at, w) {
		cancel()
		return nil
	}
	opening, opened := context.WithTimeout(ctx, openPatience)
	defer opened()
	inTime := context.AfterFunc(opening, cancel)
	stream, err := n.open(alone, config, at.Node, seen.pods)
	if !inTime() && err == nil {
		stream.Stop()
		err = opening.Err()
	}
	if err != nil {
		n.drop(at, w)
		n.running.Done()
		return fmt.Errorf("watch its pods: %w", err)
	}
	go n.follow(alone, at, w, stream)
	// An attachment that went before the watch was claimed was not reported.
	if left, err := n.attachmentsLeft(ctx, nil, at.Cluster, at.Node, false); err == nil && len(left) < seen.volumes && n.cachedAttachments(at.Cluster) != nil {
		n.left(at)
	}
	return nil
}

// openPods opens a watch on the metadata of the pods of a node, from a version of their list on, which ends with ctx. client-go shares the
// TCP connection with ClusterCache's clients, since the configuration is the same but for the timeout.
func openPods(ctx context.Context, config *rest.Config, node, since string) (watch.Interface, error) {
	patient := rest.CopyConfig(config)
	patient.Timeout = 0 // ClusterCache's 10 s would end every watch after as long
	pods, err := metadata.NewForConfig(patient)
	if err != nil {
		return nil, fmt.Errorf("build a client for pods: %w", err)
	}
	return pods.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(nodeNameField, node).String(), ResourceVersion: since,
	})
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

// claim puts w in place, unless there is one of the same connection already. One of a former connection makes way. What is claimed
// counts as running.
func (n *Nodes) claim(at Place, w *podWatch) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.watches[at]
	if n.closed || was != nil && was.config == w.config {
		return false
	}
	if was != nil {
		was.cancel()
	}
	n.watches[at] = w
	n.running.Add(1)
	return true
}

// drop ends w, and makes room for the next one.
func (n *Nodes) drop(at Place, w *podWatch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.cancel()
	if n.watches[at] == w {
		delete(n.watches, at)
	}
}

func (n *Nodes) watched(at Place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.watches[at] != nil
}

// follow is the life of a watch: it listens, and when the stream has ended by itself, it makes room for the next one and has that asked
// for.
func (n *Nodes) follow(ctx context.Context, at Place, w *podWatch, stream watch.Interface) {
	defer n.running.Done()
	n.listen(ctx, at, stream)
	select {
	case <-ctx.Done():
	case <-time.After(n.pause):
		n.drop(at, w)
		n.left(at)
	}
}

// listen reports what leaves the node for as long as the watch is wanted and its stream lasts.
func (n *Nodes) listen(ctx context.Context, at Place, stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, more := <-stream.ResultChan():
			switch {
			case !more, e.Type == watch.Error:
				return
			case hasLeft(e):
				n.left(at)
			}
		}
	}
}

// hasLeft tells the events of a pod after which it may not have to move any more: it is gone, or it was deleted by force and is kept by a
// finalizer alone. The request to end, which comes before, changes nothing, and on a full node is a hundred events.
func hasLeft(e watch.Event) bool {
	if e.Type == watch.Deleted {
		return true
	}
	pod, err := meta.Accessor(e.Object)
	if e.Type != watch.Modified || err != nil {
		return false
	}
	grace := pod.GetDeletionGracePeriodSeconds()
	return !pod.GetDeletionTimestamp().IsZero() && grace != nil && *grace == 0
}
