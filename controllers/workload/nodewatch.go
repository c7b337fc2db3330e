package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/enqueue"
)

// NodeWatch is a watch of a running controller on the nodes of one workload cluster. From the first view on that shows a node, the controller
// hears of what happens to it; clustercache.NewWatcher gives one that begins to hear later (see enqueue.Informed).
type NodeWatch struct {
	// ID tells it from the other watches on the same cluster.
	ID         string
	Controller clustercache.SourceWatcher[reconcile.Request]
	Hears      handler.TypedEventHandler[*corev1.Node, reconcile.Request]
	Predicate  predicate.TypedPredicate[*corev1.Node]
}

var _ clustercache.Watcher = NodeWatch{}

// Name identifies the watch; ClusterCache adds one of a name only once to a connection.
func (w NodeWatch) Name() string { return w.ID }

// Object is the kind that is watched.
func (NodeWatch) Object() client.Object { return &corev1.Node{} }

// Watch begins the watch. It must not block: ClusterCache holds a lock meanwhile.
func (w NodeWatch) Watch(nodes cache.Cache) error {
	informer, err := nodes.GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache nodes for %s: %w", w.ID, err)
	}
	return w.Controller.Watch(enqueue.Informed(informer, w.Hears, w.Predicate))
}
