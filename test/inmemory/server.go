// Package inmemory is an API server in memory with everything that a controller needs: watches, a cache, and a queue on a virtual clock.
// The controller is set up as in the manager, with its own predicates, handlers and deadlines. A remediation takes a millisecond.
//
// Nothing happens by itself: the test writes, and Program.Settle lets the controller reconcile until it waits. Schemas, rights and broken
// connections need a real API server.
package inmemory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// Kind is a kind that the server may serve.
type Kind struct {
	schema.GroupVersionKind
	// Global means that objects of the kind have no namespace.
	Global bool
	// Later means that the kind is served only after Install.
	Later bool
	// Whole means that the kind has no status subresource.
	Whole bool
}

// Server is an API server and its client. It implements what controllers rely on: resource versions and UIDs as preconditions, generations,
// finalizers, and the status subresource.
type Server struct {
	client.WithWatch // nil: programs call only the methods below
	Clock            *clocktesting.FakePassiveClock
	// Default is called for each object before its creation, in place of the defaults of its schema; nil for none.
	Default func(client.Object) error
	// After is called after each change; nil for nothing.
	After func(Change)
	// Reads is the number of reads.
	Reads int

	*store
	kinds  map[schema.GroupVersionKind]Kind
	order  []schema.GroupVersionKind
	served *meta.DefaultRESTMapper

	mu            sync.Mutex
	version, born int
	changes       []Change
}

// Change is a change of an object from Was, nil for a creation, to Is, nil for a deletion.
type Change struct {
	Kind    schema.GroupVersionKind
	Was, Is client.Object
}

// Register adds the kinds that are not in the scheme to it, as unstructured objects.
func Register(scheme *runtime.Scheme, kinds ...Kind) {
	for _, kind := range kinds {
		if !scheme.Recognizes(kind.GroupVersionKind) {
			scheme.AddKnownTypeWithName(kind.GroupVersionKind, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
		}
	}
}

// New returns a server of these kinds, which must be in the scheme.
func New(scheme *runtime.Scheme, clock *clocktesting.FakePassiveClock, kinds ...Kind) *Server {
	versions := make([]schema.GroupVersion, 0, len(kinds))
	for _, kind := range kinds {
		versions = append(versions, kind.GroupVersion())
	}
	s := &Server{Clock: clock, kinds: map[schema.GroupVersionKind]Kind{}, served: meta.NewDefaultRESTMapper(versions)}
	s.store = &store{
		scheme: scheme, mapper: s.served, indexes: map[schema.GroupVersionKind]map[string]client.IndexerFunc{},
		objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{},
	}
	for _, kind := range kinds {
		s.kinds[kind.GroupVersionKind] = kind
		s.order = append(s.order, kind.GroupVersionKind)
		if !kind.Later {
			s.Install(kind.GroupVersionKind)
		}
	}
	return s
}

// Install makes the server serve a kind with Later.
func (s *Server) Install(kind schema.GroupVersionKind) {
	scope := meta.RESTScopeNamespace
	if s.kinds[kind].Global {
		scope = meta.RESTScopeRoot
	}
	s.served.Add(kind, scope)
}

// APIs returns the served kinds, as discovery lists them.
func (s *Server) APIs() []*metav1.APIResourceList {
	var lists []*metav1.APIResourceList
	at := map[string]*metav1.APIResourceList{}
	for _, kind := range s.order {
		mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			continue
		}
		gv := kind.GroupVersion().String()
		if at[gv] == nil {
			at[gv] = &metav1.APIResourceList{GroupVersion: gv}
			lists = append(lists, at[gv])
		}
		at[gv].APIResources = append(at[gv].APIResources, metav1.APIResource{
			Name: mapping.Resource.Resource, Kind: kind.Kind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		})
	}
	return lists
}

// Scheme returns the scheme of the kinds.
func (s *Server) Scheme() *runtime.Scheme { return s.scheme }

// RESTMapper returns a mapper of the served kinds.
func (s *Server) RESTMapper() meta.RESTMapper { return s.mapper }

// GroupVersionKindFor returns the kind of an object.
func (s *Server) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, s.scheme)
}

// IsObjectNamespaced reports whether an object has a namespace.
func (s *Server) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, s.scheme, s.mapper)
}

// Get reads an object.
func (s *Server) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	s.Reads++
	return s.store.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (s *Server) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s.Reads++
	return s.store.List(ctx, list, opts...)
}

// Put stores objects unchanged, without the rules of Create and Update.
func (s *Server) Put(objects ...client.Object) {
	for _, obj := range objects {
		mapping, err := s.mapping(obj)
		if err != nil {
			panic(err)
		}
		s.keep(mapping.GroupVersionKind, client.ObjectKeyFromObject(obj), nil, obj.DeepCopyObject().(client.Object))
	}
}

// Create creates an object with defaults, a UID and a creation time, and without status. Its namespace must exist.
func (s *Server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if s.Default != nil {
		if err := s.Default(obj); err != nil {
			return err
		}
	}
	return s.write(obj, func(kind schema.GroupVersionKind, resource schema.GroupResource, was client.Object) (client.Object, error) {
		namespace := client.ObjectKey{Name: obj.GetNamespace()}
		switch {
		case was != nil:
			return nil, apierrors.NewAlreadyExists(resource, obj.GetName())
		case obj.GetResourceVersion() != "":
			return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
		case namespace.Name != "" && s.At(namespaceKind, namespace) == nil:
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace.Name)
		}
		is, err := s.normal(kind, obj)
		if err != nil {
			return nil, err
		}
		s.born++
		if is.GetName() == "" {
			is.SetName(fmt.Sprintf("%s%05d", is.GetGenerateName(), s.born))
		}
		is.SetUID(types.UID(fmt.Sprintf("uid-%d", s.born)))
		is.SetCreationTimestamp(metav1.NewTime(s.Clock.Now().Truncate(time.Second)))
		is.SetGeneration(1)
		is.SetDeletionTimestamp(nil)
		// A kubelet creates its Node with its status. (Kubernetes, registry/core/node/strategy.go.)
		if !s.kinds[kind].Whole && kind.Kind != "Node" {
			takeStatus(is, nil)
		}
		return is, nil
	})
}

// Delete deletes an object, or sets its deletion timestamp if it has finalizers.
func (s *Server) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	which := obj.DeepCopyObject().(client.Object) // the caller's object must not change
	options := client.DeleteOptions{}
	options.ApplyOptions(opts)
	return s.write(which, func(_ schema.GroupVersionKind, resource schema.GroupResource, was client.Object) (client.Object, error) {
		if was == nil {
			return nil, apierrors.NewNotFound(resource, obj.GetName())
		}
		if only := options.Preconditions; only != nil {
			if only.UID != nil && *only.UID != was.GetUID() ||
				only.ResourceVersion != nil && *only.ResourceVersion != was.GetResourceVersion() {
				return nil, apierrors.NewConflict(resource, obj.GetName(), errors.New("the precondition does not hold"))
			}
		}
		is := was.DeepCopyObject().(client.Object)
		if is.GetDeletionTimestamp() == nil {
			is.SetDeletionTimestamp(&metav1.Time{Time: s.Clock.Now().Truncate(time.Second)})
			is.SetGeneration(is.GetGeneration() + 1)
		}
		return is, nil
	})
}

// Update writes an object except its status.
func (s *Server) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return s.update(obj, false)
}

// Patch merges a patch into an object except its status.
func (s *Server) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return s.patch(obj, patch, false)
}

// Status returns the writer of the status.
func (s *Server) Status() client.SubResourceWriter { return s.SubResource("status") }

// SubResource returns the writer of the status: there is no other subresource.
func (s *Server) SubResource(string) client.SubResourceClient { return statuses{s: s} }

type statuses struct {
	client.SubResourceClient // nil: programs call only the methods below
	s                        *Server
}

// Update writes the status of an object.
func (w statuses) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.s.update(obj, true)
}

// Patch merges a patch into the status of an object.
func (w statuses) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.s.patch(obj, patch, true)
}

func (s *Server) update(obj client.Object, status bool) error {
	return s.write(obj, func(kind schema.GroupVersionKind, resource schema.GroupResource, was client.Object) (client.Object, error) {
		is, err := s.normal(kind, obj)
		if err != nil {
			return nil, err
		}
		return s.next(kind, resource, was, is, obj, status)
	})
}

func (s *Server) patch(obj client.Object, patch client.Patch, status bool) error {
	return s.write(obj, func(kind schema.GroupVersionKind, resource schema.GroupResource, was client.Object) (client.Object, error) {
		if was == nil {
			return nil, apierrors.NewNotFound(resource, obj.GetName())
		}
		if patch.Type() != types.MergePatchType {
			return nil, fmt.Errorf("patch %s %s: %s is not known here", kind.Kind, obj.GetName(), patch.Type())
		}
		data, err := patch.Data(obj)
		if err != nil {
			return nil, err
		}
		var changes map[string]any
		if err := json.Unmarshal(data, &changes); err != nil {
			return nil, err
		}
		base, err := content(was)
		if err != nil {
			return nil, err
		}
		is, err := s.decode(kind, merged(base, changes))
		if err != nil {
			return nil, err
		}
		return s.next(kind, resource, was, is, obj, status)
	})
}
