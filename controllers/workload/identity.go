package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// RBAC in the workload clusters, to know which one answers.
// +kubebuilder:rbac:groups=core,resources=namespaces,resourceNames=kube-system,verbs=get

// ChangedError says that another workload cluster answers than the Cluster keeps. The UIDs are those of their namespaces kube-system.
type ChangedError struct {
	Cluster     client.ObjectKey
	Kept, Found types.UID
}

// Error names both, and how a person confirms the one that answers.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("another workload cluster answers, whose namespace kube-system has UID %s; %s is kept on the Cluster. "+
		"If it is the right one, run kubectl annotate clusters.cluster.x-k8s.io %s -n %s %s-",
		e.Found, e.Kept, e.Cluster.Name, e.Cluster.Namespace, mendv1.WorkloadClusterAnnotation)
}

// Kept is the UID that cluster keeps; empty if none. One that was copied with a Cluster, or restored, has the UID of another one before it.
func Kept(cluster *clusterv1.Cluster) types.UID {
	uid, kept, _ := strings.Cut(cluster.Annotations[mendv1.WorkloadClusterAnnotation], "/")
	if uid != string(cluster.UID) {
		return ""
	}
	return types.UID(kept)
}

// Keeps is the value of the annotation by which cluster keeps uid.
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

// identity is which workload cluster answers.
type identity struct {
	connection int                   // the one by which that was read; 0 to read it again
	uid        types.UID             // empty if it could not be read
	changed    bool                  // it is not the one that is kept
	kept       undone.Did[types.UID] // how often the Cluster was to keep it: the write may fail, or another client undo it
}

// identifiedFor is how long it counts which workload cluster has answered: what is done next by the same reconcile, or by those of other
// machines, would ask the same again. Another kubeconfig, another connection and a Cluster that is made anew end it before.
const identifiedFor = time.Second

// Verify asks which workload cluster answers, for a controller that is about to act, and returns a ChangedError if another one is kept.
// What cannot be read says nothing. A Cluster that keeps none keeps this one from now on.
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

// identified is v, or Down if another workload cluster is behind it: that is read once for each connection, and each time while it is so,
// or while it fails. A refusal stands.
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

// identify reads which workload cluster answers. A connection to two may have nodes of both in its cache: it ends, and false is returned.
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
	if to != nil && err == nil { // unless the kubeconfig was changed meanwhile: the answer may be of the one before
		to.identified.CompareAndSwap(before, new(c.Transports.clock.Now()))
	}
	known.connection, known.uid = state.connection, uid
	if err != nil && !apierrors.IsForbidden(err) {
		known.connection = 0
	}
	return !ends
}

// compare compares what was last read of a cluster with what its Cluster keeps. Of a Cluster that keeps none it returns what makes it do
// so.
func (c *Clusters) compare(ctx context.Context, cluster client.ObjectKey, now time.Time) (keep func(context.Context), err error) {
	object := &clusterv1.Cluster{}
	if err := c.Management.Get(ctx, cluster, object, client.UnsafeDisableDeepCopy); err != nil || !object.DeletionTimestamp.IsZero() {
		if apierrors.IsNotFound(err) { // it may have been read after it was forgotten
			c.mu.Lock()
			delete(c.states, cluster)
			c.mu.Unlock()
		}
		return nil, nil // a Cluster that is gone keeps nothing
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

// keep writes to a Cluster which workload cluster it is.
func (c *Clusters) keep(ctx context.Context, cluster *clusterv1.Cluster, uid types.UID, now time.Time) {
	c.mu.Lock()
	known := &c.of(client.ObjectKeyFromObject(cluster)).identity
	known.kept = known.kept.Again(uid, now)
	c.mu.Unlock()
	next := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, mendv1.WorkloadClusterAnnotation, Keeps(cluster, uid))
	// With the lock: what another manager has kept meanwhile stands.
	err := c.Management.Patch(ctx, next, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Error(err, "Cannot keep on a Cluster which workload cluster it is", "Cluster", client.ObjectKeyFromObject(cluster))
	}
}
