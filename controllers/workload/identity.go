package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// RBAC in the workload clusters, to read their UID.
// +kubebuilder:rbac:groups=core,resources=namespaces,resourceNames=kube-system,verbs=get

// ChangedError says that another workload cluster (Found) answers than the one in the annotation of the Cluster (Kept). The UID of a
// workload cluster is that of its namespace kube-system.
type ChangedError struct {
	Cluster     client.ObjectKey
	Kept, Found types.UID
}

// Error names both UIDs, and the command that confirms the new cluster.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("another workload cluster answers: its namespace kube-system has UID %s, but the annotation of the Cluster has %s. "+
		"If it is the right one, run kubectl annotate clusters.cluster.x-k8s.io %s -n %s %s-",
		e.Found, e.Kept, e.Cluster.Name, e.Cluster.Namespace, mendv1.WorkloadClusterAnnotation)
}

// Kept returns the UID of the workload cluster in the annotation of cluster; empty if there is none. The annotation also has the UID of the
// Cluster, and does not count if that differs: then the annotation was copied or restored from another Cluster.
func Kept(cluster *clusterv1.Cluster) types.UID {
	uid, kept, _ := strings.Cut(cluster.Annotations[mendv1.WorkloadClusterAnnotation], "/")
	if uid != string(cluster.UID) {
		return ""
	}
	return types.UID(kept)
}

// Keeps returns the value of the annotation for cluster and the UID of its workload cluster.
func Keeps(cluster *clusterv1.Cluster, uid types.UID) string {
	return string(cluster.UID) + "/" + string(uid)
}

// UIDOf reads the UID of a workload cluster.
func UIDOf(ctx context.Context, live client.Reader) (types.UID, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace)
	return namespace.UID, err
}

// identity says which workload cluster answers.
type identity struct {
	connection int                   // the connection by which uid was read; 0 to read it again
	uid        types.UID             // empty if it could not be read
	changed    bool                  // uid is not the one in the annotation
	kept       undone.Did[types.UID] // the writes of the annotation: a write may fail, or another client may undo it
}

// identifiedFor is how long a UID that was read is used, so that the reconciles of many machines do not read it again. It ends earlier with
// another kubeconfig, another connection or a new Cluster of the same name.
const identifiedFor = time.Second

// Verify reads which workload cluster answers, for a controller that is about to act. It returns a ChangedError if the annotation of the
// Cluster names another one, and nil if the UID cannot be read. If the Cluster has no annotation and none was written before, Verify writes
// it.
func (c *Clusters) Verify(ctx context.Context, cluster client.ObjectKey) error {
	c.mu.Lock()
	known, connection := c.of(cluster).identity, c.of(cluster).connection
	c.mu.Unlock()
	var identified *time.Time
	if to := c.Transports.routeOf(cluster); to != nil && known.uid != "" && known.connection == connection {
		identified = to.identified.Load()
	}
	if identified == nil || c.Transports.clock.Now().Sub(*identified) >= identifiedFor {
		c.identify(ctx, cluster)
	}
	keep, err := c.compare(ctx, cluster, time.Time{})
	if keep != nil {
		keep(ctx)
	}
	return err
}

// identified returns v, or a View that is Down if another workload cluster answers. It reads the UID once for each connection, and again
// each time while the UID is another one or the read fails. If the read is forbidden, it does not try again.
func (c *Clusters) identified(ctx context.Context, cluster client.ObjectKey, v View, now time.Time) View {
	c.mu.Lock()
	known, connection := c.of(cluster).identity, c.of(cluster).connection
	c.mu.Unlock()
	if v.Link == Down || v.Link == Unsure && !known.changed {
		return v
	}
	if v.Link == Up && (known.changed || known.connection != connection) && !c.identify(ctx, cluster) {
		v = View{Link: Unsure, Recheck: ProbeInterval}
	}
	var err error
	if v.Keep, err = c.compare(ctx, cluster, now); err != nil {
		return View{Link: Down, Recheck: refusedInterval, Changed: err}
	}
	return v
}

// identify reads which workload cluster answers. If the UID changes within a connection, the cache may have nodes of both clusters: then
// identify ends the connection and returns false.
func (c *Clusters) identify(ctx context.Context, cluster client.ObjectKey) bool {
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	to, before := c.Transports.routeOf(cluster), (*time.Time)(nil)
	if to != nil {
		before = to.identified.Load()
	}
	var uid types.UID
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err == nil {
		uid, err = UIDOf(ctx, live)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.of(cluster)
	known := &state.identity
	same := known.connection == state.connection
	if err != nil && (same || known.changed) {
		return true
	}
	ends := same && state.nodes != nil && known.uid != "" && known.uid != uid && to != nil
	if ends {
		to.reconnects.Store(true)
		state.nodes = nil
	}
	if to != nil && err == nil { // swaps nothing if the kubeconfig has changed: uid may be of the cluster before
		to.identified.CompareAndSwap(before, new(c.Transports.clock.Now()))
	}
	known.connection, known.uid = state.connection, uid
	if err != nil && !apierrors.IsForbidden(err) {
		known.connection = 0
	}
	return !ends
}

// compare compares the UID that was last read with the annotation of the Cluster. If there is no annotation, it returns a function that
// writes it.
func (c *Clusters) compare(ctx context.Context, cluster client.ObjectKey, now time.Time) (keep func(context.Context), err error) {
	object := &clusterv1.Cluster{}
	if err := c.Management.Get(ctx, cluster, object, client.UnsafeDisableDeepCopy); err != nil || !object.DeletionTimestamp.IsZero() {
		if apierrors.IsNotFound(err) { // the state may have been created again after forget
			c.mu.Lock()
			delete(c.states, cluster)
			c.mu.Unlock()
		}
		return nil, nil // a Cluster that is gone has no annotation
	}
	kept := Kept(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	known := &c.of(cluster).identity
	known.changed = known.uid != "" && kept != "" && kept != known.uid
	switch {
	case known.changed:
		return nil, &ChangedError{Cluster: cluster, Kept: kept, Found: known.uid}
	case known.uid == "" || kept != "" || ptr.Deref(object.Spec.Paused, false):
		return nil, nil
	case known.kept.Times > 0 && (now.IsZero() || now.Before(known.kept.Until(now))):
		return nil, nil
	}
	found := known.uid
	return func(ctx context.Context) { c.keep(ctx, object, found, now) }, nil
}

// keep writes the UID of the workload cluster into the annotation of its Cluster.
func (c *Clusters) keep(ctx context.Context, cluster *clusterv1.Cluster, uid types.UID, now time.Time) {
	c.mu.Lock()
	known := &c.of(client.ObjectKeyFromObject(cluster)).identity
	known.kept = known.kept.Again(uid, now)
	c.mu.Unlock()
	next := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, mendv1.WorkloadClusterAnnotation, Keeps(cluster, uid))
	// The optimistic lock protects an annotation that another manager has written meanwhile.
	err := c.Management.Patch(ctx, next, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Error(err, "Cannot write a workload cluster's UID to its Cluster",
			"Cluster", client.ObjectKeyFromObject(cluster))
	}
}

const (
	// identityLabel and apiServer select the identity leases of API servers. Since Kubernetes v1.26 the leases have a label with the host
	// name. (Kubernetes, pkg/controlplane/apiserver: IdentityLeaseComponentLabelKey, KubeAPIServer)
	identityLabel = "apiserver.kubernetes.io/identity"
	apiServer     = "kube-apiserver"
	// askWithin is the timeout of the list.
	askWithin = 3 * time.Second
)

// RBAC in the workload clusters, for power cycles.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=list

// APIServers returns when the API servers of a cluster last renewed their identity leases, by host name, which is the name of the node in
// clusters of kubeadm. live must read from the API server. Leases without a host name are skipped.
func APIServers(ctx context.Context, live client.Reader) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	leases := &coordinationv1.LeaseList{}
	if err := live.List(ctx, leases, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{identityLabel: apiServer}); err != nil {
		return nil, fmt.Errorf("list the identity leases of API servers: %w", err)
	}
	renewed := map[string]time.Time{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if name := lease.Labels[corev1.LabelHostname]; name != "" && lease.Spec.RenewTime != nil &&
			lease.Spec.RenewTime.After(renewed[name]) {
			renewed[name] = lease.Spec.RenewTime.Time
		}
	}
	return renewed, nil
}
