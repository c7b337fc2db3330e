package claims

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// readEvery is how often a manager of one namespace reads that Namespace. Who has its rights in one namespace may read the object, but not watch it.
const readEvery = 30 * time.Second

// namespaceLabels reads the labels of a Namespace. That it is not known is no error.
type namespaceLabels func(ctx context.Context, name string) (labels map[string]string, known bool, err error)

// noNamespaces is for a manager that may not read Namespaces.
func noNamespaces(context.Context, string) (map[string]string, bool, error) { return nil, false, nil }

// readNamespaces reads the metadata of Namespaces, which is all that the cache has of them. One that is not there, or that may not be read, is not known.
func readNamespaces(reader client.Reader) namespaceLabels {
	return func(ctx context.Context, name string) (map[string]string, bool, error) {
		namespace := &metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, false, nil
		}
		return namespace.Labels, err == nil, err
	}
}

// polledNamespace is the one Namespace of a manager with --namespace, as it was read last.
type polledNamespace struct {
	mu    sync.Mutex
	last  map[string]string
	known bool
}

func (p *polledNamespace) labels(context.Context, string) (map[string]string, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.known, nil
}

// read reads the Namespace, and reports whether its labels have changed. What cannot be read for the moment stays as it was.
func (p *polledNamespace) read(ctx context.Context, live client.Reader, name string) (changed bool, err error) {
	labels, known, err := readNamespaces(live)(ctx, name)
	if err != nil {
		return false, fmt.Errorf("read Namespace %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = known != p.known || !maps.Equal(labels, p.last)
	p.last, p.known = labels, known
	return changed, nil
}

// poll reads the Namespace of r again and again, and enqueues the Clusters in it when its labels have changed.
func (r *Reconciler) poll(p *polledNamespace) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go wait.UntilWithContext(ctx, func(ctx context.Context) {
			changed, err := p.read(ctx, r.Live, r.Namespace)
			if err != nil {
				log.FromContext(ctx).Error(err, "Could not poll the Namespace")
			}
			if changed {
				for _, cluster := range r.clustersIn(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}}) {
					queue.Add(cluster)
				}
			}
		}, readEvery)
		return nil
	})
}
