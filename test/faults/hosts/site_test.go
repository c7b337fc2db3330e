package hosts

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/workload"
)

// site is the workload cluster as the controllers see it.
type site struct {
	e    *environment
	live client.Client
}

// View is what ClusterCache's informers show.
func (s site) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	if s.e.unreachable() {
		return workload.View{Link: workload.Down}, nil
	}
	list := &corev1.NodeList{}
	if err := s.e.work.cache.List(ctx, list); err != nil {
		return workload.View{}, err
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return workload.Seen(workload.Up, nodes), nil
}

// GetUncachedClient is the way past all caches.
func (s site) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if s.e.unreachable() {
		return nil, clustercache.ErrClusterNotConnected
	}
	return leases{s.live, s.e}, nil
}

// leases is the way past all caches, on which the lease of the node is as the kubelet has renewed it last.
type leases struct {
	client.Client
	e *environment
}

// Get reads an object. The lease of the node is none that is stored: it is another one every ten seconds.
func (l leases) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	lease, is := into.(*coordinationv1.Lease)
	if !is || key.Namespace != corev1.NamespaceNodeLease {
		return l.Client.Get(ctx, key, into, opts...)
	}
	l.e.work.Reads++
	at, has := l.e.renewed(key.Name)
	if !has {
		return apierrors.NewNotFound(coordinationv1.Resource("leases"), key.Name)
	}
	*lease = coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(key.Name), RenewTime: ptr.To(metav1.NewMicroTime(at))},
	}
	return nil
}

// renewed is when the lease of a node was renewed last; false if it never was.
func (e *environment) renewed(node string) (time.Time, bool) {
	switch now := e.clock.Now(); {
	case e.plane != nil:
		return e.plane.renewed(node, now)
	case node == e.nodeName:
		return e.box.renewed(now)
	}
	return time.Time{}, false
}

// GetRESTConfig: nothing is watched. A controller that waits for pods to go has to read them again.
func (s site) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, clustercache.ErrClusterNotConnected
}

// unreachable reports whether kubemend cannot reach the workload cluster.
func (e *environment) unreachable() bool {
	if e.plane != nil {
		return !e.plane.answers()
	}
	return e.pods.unreachable || e.as.apiServer && !e.box.model.Powered()
}
