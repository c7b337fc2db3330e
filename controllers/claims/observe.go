package claims

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/shard"
)

// observed is what one reconcile decides on. All of it is shared with the caches: read only.
type observed struct {
	key client.ObjectKey
	// cluster is nil if there is none, or if the cache has not seen it yet.
	cluster *clusterv1.Cluster
	// namespace are the labels of the Namespace, unless they are not known.
	namespace labels.Set
	known     bool
	checks    []clusterv1.MachineHealthCheck
	filter    string
}

// observe reads a Cluster, its Namespace and its checks.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*observed, error) {
	o := &observed{key: key, cluster: &clusterv1.Cluster{}, filter: r.WatchFilterValue}
	err := r.Client.Get(ctx, key, o.cluster, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		o.cluster = nil
	} else if err != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	if o.namespace, o.known, err = r.namespaces.labels(ctx, key.Namespace); err != nil {
		return nil, fmt.Errorf("read Namespace %s: %w", key.Namespace, err)
	}
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{clusterIndex: key.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the MachineHealthChecks of Cluster %s: %w", key, err)
	}
	o.checks = list.Items
	return o, nil
}

// facts are what is known of a check.
func (o *observed) facts(check *clusterv1.MachineHealthCheck) claims.Facts {
	f := FactsOf(check, o.cluster, o.namespace, o.known)
	f.Covered = shard.Covers(o.filter, check, o.cluster)
	return f
}

// FactsOf are what the objects say of a check that the manager looks at: the cluster is nil if there is none, and known says that the labels of the
// Namespace are.
func FactsOf(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, namespace labels.Set, known bool) claims.Facts {
	f := claims.Facts{
		Covered: true, Ending: !check.DeletionTimestamp.IsZero(),
		Cluster: claims.Unread, Namespace: claims.Unread, By: claims.Source(check.Annotations[mendv1.ClaimedByAnnotation]),
	}
	if _, marked := check.Annotations[mendv1.ClaimedByAnnotation]; marked && f.By == "" {
		f.By = claims.Cluster // an empty mark is one
	}
	if cluster != nil {
		f.Cluster, f.Ending = labelOf(cluster.Labels), f.Ending || !cluster.DeletionTimestamp.IsZero()
	}
	if known {
		f.Namespace = labelOf(namespace)
	}
	switch value, paused := check.Annotations[clusterv1.PausedAnnotation]; {
	case paused && value == mendv1.Claim:
		f.Pause = claims.Claimed
	case paused:
		f.Pause = claims.Paused
	}
	return f
}

// labelOf is what the label says among those of an object.
func labelOf(all map[string]string) claims.Label {
	switch value, labelled := all[mendv1.ClaimLabel]; {
	case !labelled:
		return claims.Absent
	case value == mendv1.ClaimLabelAct:
		return claims.Act
	}
	return claims.Invalid
}

// namespaces reads the labels of Namespaces. That one is not known is no error.
type namespaces interface {
	labels(ctx context.Context, name string) (all labels.Set, known bool, err error)
}

// cachedNamespaces are all, of which the cache has the metadata alone.
type cachedNamespaces struct{ client.Reader }

func (c cachedNamespaces) labels(ctx context.Context, name string) (labels.Set, bool, error) {
	return readNamespace(ctx, c.Reader, name)
}

// noNamespaces are those of a manager that may not read them.
type noNamespaces struct{}

func (noNamespaces) labels(context.Context, string) (labels.Set, bool, error) { return nil, false, nil }

// readNamespace reads the metadata of a Namespace. One that is not there, or that may not be read, is not known.
func readNamespace(ctx context.Context, from client.Reader, name string) (labels.Set, bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := from.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	return namespace.Labels, err == nil, err
}

// ownEvery is how often a manager of one namespace reads that Namespace. Who has its rights in one namespace may read the object, but not watch it.
const ownEvery = 30 * time.Second

// ownNamespace is the one Namespace of a manager with --namespace, as it was read last.
type ownNamespace struct {
	read atomic.Pointer[ownLabels]
}

type ownLabels struct {
	all   labels.Set
	known bool
}

func (o *ownNamespace) labels(context.Context, string) (labels.Set, bool, error) {
	last := o.read.Load()
	if last == nil {
		return nil, false, nil
	}
	return last.all, last.known, nil
}

// look reads the Namespace, and reports whether its label says something else than before. What cannot be read for the moment stays as it was.
func (o *ownNamespace) look(ctx context.Context, from client.Reader, name string) (changed bool, err error) {
	all, known, err := readNamespace(ctx, from, name)
	if err != nil {
		return false, err
	}
	was := o.read.Swap(&ownLabels{all, known})
	return was == nil || was.known != known || differ(was.all, all, mendv1.ClaimLabel), nil
}
