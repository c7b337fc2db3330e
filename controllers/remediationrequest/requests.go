package remediationrequest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
)

// ClingingFor is how long kubemend waits for the end of a request that is being deleted. If a remediator has not released the request by
// then, the remediator may have been removed too.
const ClingingFor = 10 * time.Minute

// RBAC for the two kinds of requests that kubemend serves itself, and for their templates. Remediators bring aggregated roles for their own
// kinds: see config/rbac/ext-remediation.yaml.
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediationtemplates,verbs=get
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=get
// +kubebuilder:rbac:groups=kubemend.io,resources=hostremediations,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=get;create;patch;delete

// Requests reads and writes the remediation requests of the management cluster.
type Requests struct {
	// Client reads metadata from caches and writes. A kind must be Ready before it is read.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
}

// Metadata is the part of a request or a template that caches hold.
type Metadata = metav1.PartialObjectMetadata

// List returns the requests of one kind in a namespace, by name, from the cache. They must not be changed.
func (r *Requests) List(ctx context.Context, kind schema.GroupVersionKind, namespace string) (map[string]*Metadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
	}
	byName := make(map[string]*Metadata, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// Cached reports whether the cache has an object of that kind and name.
func (r *Requests) Cached(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (bool, error) {
	found := &Metadata{}
	found.SetGroupVersionKind(kind)
	err := r.Client.Get(ctx, key, found, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	return err == nil, nil
}

// Find reads a request from the API server. It returns nil if the request does not exist.
func (r *Requests) Find(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*Metadata, error) {
	found := &Metadata{}
	found.SetGroupVersionKind(kind)
	err := r.Live.Get(ctx, key, found)
	if Missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s %s: %w", kind.Kind, key, err)
	}
	return found, nil
}

// Template reads a template from the API server. The error satisfies Missing if the template or its kind does not exist.
func (r *Requests) Template(
	ctx context.Context, ref clusterv1.MachineHealthCheckRemediationTemplateReference, namespace string,
) (*unstructured.Unstructured, error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(TemplateKind(ref))
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, template); err != nil {
		return nil, fmt.Errorf("read remediation template %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	return template, nil
}

// Missing reports whether err says that an object or its kind does not exist.
func Missing(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Create creates a request, or returns ErrAppeared if there is one, even if it is being deleted. It reads from the API server first,
// because the cache may not have a new request yet.
func (r *Requests) Create(ctx context.Context, req *unstructured.Unstructured) error {
	kind, key := req.GroupVersionKind(), client.ObjectKeyFromObject(req)
	found, err := r.Find(ctx, kind, key)
	if err != nil {
		return fmt.Errorf("%w: %w", begin.ErrUnasked, err)
	}
	if found != nil {
		return ErrAppeared
	}
	err = r.Client.Create(ctx, req)
	if apierrors.IsAlreadyExists(err) {
		return ErrAppeared
	}
	if err != nil && !r.made(ctx, req) {
		return fmt.Errorf("create %s %s: %w", kind.Kind, key, err)
	}
	return nil
}

// made reports whether req exists although its creation returned an error, because only the response may have been lost.
func (r *Requests) made(ctx context.Context, req *unstructured.Unstructured) bool {
	found, err := r.Find(ctx, req.GroupVersionKind(), client.ObjectKeyFromObject(req))
	if err != nil || found == nil {
		return false // Create returns its first error
	}
	maker, marked := MadeBy(found)
	wanted, ours := MadeBy(req)
	if ours && (!marked || maker != wanted) || !ours && !sameOwners(found, req) {
		return false
	}
	req.SetUID(found.UID)
	req.SetResourceVersion(found.ResourceVersion)
	req.SetCreationTimestamp(found.CreationTimestamp)
	return true
}

// sameOwners reports whether a and b have the same owners, and at least one.
func sameOwners(a, b metav1.Object) bool {
	uids := func(o metav1.Object) (all []types.UID) {
		for _, owner := range o.GetOwnerReferences() {
			all = append(all, owner.UID)
		}
		return all
	}
	return len(a.GetOwnerReferences()) > 0 && slices.Equal(uids(a), uids(b))
}

// Adopt marks a request as made by a check and, if record is not empty, as part of the remediation of that record. It returns a conflict if
// the request has changed since it was read.
func (r *Requests) Adopt(ctx context.Context, req *Metadata, by Maker, record string) error {
	marks := map[string]string{mendv1.MadeByAnnotation: by.Name}
	if record != "" {
		marks[mendv1.RecordAnnotation] = record
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": req.ResourceVersion,
		"annotations":     marks,
		"labels":          map[string]string{mendv1.MadeByUIDLabel: string(by.UID)},
	}})
	if err != nil {
		return fmt.Errorf("adopt %s %s: %w", req.Kind, client.ObjectKeyFromObject(req), err)
	}
	if err := r.Client.Patch(ctx, Identity(req), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("adopt %s %s: %w", req.Kind, client.ObjectKeyFromObject(req), err)
	}
	return nil
}

// Delete deletes a request by its UID, so that a later request of the same name stays.
func (r *Requests) Delete(ctx context.Context, req client.Object) error {
	err := r.Client.Delete(ctx, Identity(req), client.Preconditions{UID: ptr.To(req.GetUID())})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", req.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(req), err)
	}
	return nil
}

// Identity returns a new object with only the kind, name and UID of obj, so that obj may be shared with a cache.
func Identity(obj client.Object) *Metadata {
	own := &Metadata{}
	own.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	own.Name, own.Namespace, own.UID = obj.GetName(), obj.GetNamespace(), obj.GetUID()
	return own
}

// Changed returns a handler that drops updates in which the metadata of a request or a template has not changed. For each remediation, a
// remediator writes about a dozen times to the status of the request, which no check reads.
func Changed(h handler.TypedEventHandler[*Metadata, reconcile.Request]) handler.TypedEventHandler[*Metadata, reconcile.Request] {
	update := func(
		ctx context.Context, e event.TypedUpdateEvent[*Metadata], q workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		if !same(e.ObjectOld, e.ObjectNew) {
			h.Update(ctx, e, q)
		}
	}
	return handler.TypedFuncs[*Metadata, reconcile.Request]{CreateFunc: h.Create, UpdateFunc: update, DeleteFunc: h.Delete}
}

// same reports whether two versions of an object are equal in all fields that decisions use.
func same(a, b *Metadata) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
