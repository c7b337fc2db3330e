// Package fence sees, fences and frees the node of a host, in the workload cluster of its machine.
//
// It reads and writes what the caller asks. Whether a node may be fenced, and when it has to be free again, is decided elsewhere:
// nothing here knows of the host, of its power or of a deadline.
package fence

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// FencedByAnnotation on a node says whose the out-of-service taint is: its value is the UID of a remediation. It comes and goes in the same
// patch as the taint. A taint without it was put there by somebody else, and is never taken away, but for the one that CAPM3 put there for
// a remediation that was taken over from it.
const FencedByAnnotation = mendv1.FencedByAnnotation

// Clusters is what is needed of workload clusters; Cluster API's ClusterCache has it.
type Clusters interface {
	// GetUncachedClient returns a client that reads past all caches.
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
	// GetRESTConfig returns the configuration of the connection: the same one for as long as the connection is the same.
	GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error)
	// Watch adds an informer to the cache of the connection, once for each name.
	Watch(ctx context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error
}

var _ Clusters = clustercache.ClusterCache(nil)

// Owner is a remediation as it signs a node: by its UID. clusterctl move gives it a new one, and what it signed before is still its own.
type Owner struct {
	UID types.UID
	// Former are other marks that count as its own: the UID that it had before it was moved, and that of a remediation of the same machine
	// that does not exist any more.
	Former []types.UID
	// Unsigned says that a taint without a mark counts as its own as well: CAPM3 signs nothing.
	Unsigned bool
	// Fences says that it is about to fence the node, so that it has to know the pods that are there; Found are those that it knows
	// of, nil if it knows of none, and Long says that the fence has stood for as long as volumes take to be detached.
	Fences bool
	Found  []types.UID
	Long   bool
}

func (o Owner) owns(mark types.UID) bool {
	return mark != "" && (mark == o.UID || slices.Contains(o.Former, mark))
}

// inherits reports whether the taint on node is o's without bearing its present UID.
func (o Owner) inherits(node *corev1.Node) bool {
	taint, mark := outOfService(node), types.UID(node.Annotations[FencedByAnnotation])
	return taint != nil && taint.Value == infrav1.OutOfServiceTaintValue && (mark == "" && o.Unsigned || slices.Contains(o.Former, mark))
}

// Left is called when something may have left a node that is watched: the node has to be read again. It must not block.
type Left func(Place)

// RBAC in the workload clusters, besides that of package workload. The taint comes and goes by a patch. No pod and no
// volume is touched: Kubernetes does that, once the node is fenced.
// +kubebuilder:rbac:groups=core,resources=nodes,roleName=kubemend-workload-fencer,verbs=patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=core,resources=pods,roleName=kubemend-workload-fencer,verbs=list;watch
// +kubebuilder:rbac:groups=core,resources=persistentvolumes,roleName=kubemend-workload-fencer,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,roleName=kubemend-workload-fencer,verbs=list;watch

// Nodes sees and fences nodes. It is safe for concurrent use.
type Nodes struct {
	clusters Clusters
	left     Left
	pods     func(config *rest.Config, node string) (toolscache.SharedIndexInformer, error)
	running  sync.WaitGroup // the watches, also those that were cancelled

	mu          sync.Mutex
	closed      bool
	attachments map[client.ObjectKey]toolscache.SharedIndexInformer
	watches     map[Place]*podWatch
}

// Place is a node of a workload cluster.
type Place struct {
	Cluster client.ObjectKey
	Node    string
}

// NewNodes returns the nodes of clusters. left is called for those that are watched.
func NewNodes(clusters Clusters, left Left) *Nodes {
	return &Nodes{
		clusters: clusters, left: left, pods: newPods,
		attachments: map[client.ObjectKey]toolscache.SharedIndexInformer{},
		watches:     map[Place]*podWatch{},
	}
}

// Forget forgets a cluster that does not exist any more.
func (n *Nodes) Forget(cluster client.ObjectKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.attachments, cluster)
	for at, w := range n.watches {
		if at.Cluster == cluster {
			w.cancel()
			delete(n.watches, at)
		}
	}
}
