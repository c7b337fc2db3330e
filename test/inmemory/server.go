// Package inmemory is an API server in memory, with what a controller needs around it: watches, a cache and a queue on a virtual clock. The
// controller is set up as in the manager, its predicates, handlers and deadlines are its own, and a remediation takes a millisecond.
//
// Nothing happens by itself: the test writes, and Program.Settle lets the controller work until it waits for something. What only a real
// API server knows (schemas, rights, connections that break) is not here.
package inmemory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Kind is a kind that the server may serve.
type Kind struct {
	schema.GroupVersionKind
	// Global says that its objects have no namespace.
	Global bool
	// Later says that it is served only after Install.
	Later bool
	// Whole says that its status is written with the rest of an object.
	Whole bool
}

// Server is an API server. Its client is for all but the program under test.
type Server struct {
	client.WithWatch
	Clock *clocktesting.FakePassiveClock
	// Default is called for each object before it is created, to do what the defaults of its schema do; nil for nothing.
	Default func(client.Object) error
	// Refuse is the answer to a write of an object that its schema or a webhook does not allow; nil for none.
	Refuse func(client.Object) error

	raw    client.WithWatch
	store  *store // of what raw has
	scheme *runtime.Scheme
	kinds  []Kind
	mapper *meta.DefaultRESTMapper

	mu      sync.Mutex
	born    int
	changes []change
}

// change is what became of an object. It was not there before if was is nil, and is not any more if the other one is nil.
type change struct {
	kind    schema.GroupVersionKind
	was, is client.Object
}

// Register makes those of the kinds unstructured that are not in the scheme.
func Register(scheme *runtime.Scheme, kinds ...Kind) {
	for _, kind := range kinds {
		if !scheme.Recognizes(kind.GroupVersionKind) {
			scheme.AddKnownTypeWithName(kind.GroupVersionKind, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
		}
	}
}

// New returns a server of these kinds, which have to be in the scheme.
func New(scheme *runtime.Scheme, clock *clocktesting.FakePassiveClock, kinds ...Kind) *Server {
	s := &Server{Clock: clock, scheme: scheme, mapper: meta.NewDefaultRESTMapper(nil)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(s.mapper)
	for _, kind := range kinds {
		s.kinds = append(s.kinds, kind)
		if !kind.Later {
			s.Install(kind.GroupVersionKind)
		}
		if kind.Whole {
			continue
		}
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind.GroupVersionKind)
		builder.WithStatusSubresource(obj)
	}
	// The tracker that the builder makes keeps managed fields, which no test reads and which cost most of the time.
	s.raw = withoutEmptyStatus(
		builder.WithObjectTracker(testing.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).Build())
	s.store = &store{scheme: scheme, mapper: s.mapper, otherwise: s.raw, objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{}}
	s.WithWatch = s.intercepted()
	return s
}

// Install makes the server serve a kind that it was made with.
func (s *Server) Install(kind schema.GroupVersionKind) {
	scope := meta.RESTScopeNamespace
	for _, k := range s.kinds {
		if k.GroupVersionKind == kind && k.Global {
			scope = meta.RESTScopeRoot
		}
	}
	s.mapper.Add(kind, scope)
}

// Mapper knows the kinds that are served.
func (s *Server) Mapper() meta.RESTMapper { return s.mapper }

// APIs are the kinds that are served, as discovery has them.
func (s *Server) APIs() []*metav1.APIResourceList {
	var lists []*metav1.APIResourceList
	at := map[string]*metav1.APIResourceList{}
	for _, kind := range s.kinds {
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

func (s *Server) intercepted() client.WithWatch {
	return interceptor.NewClient(s.raw, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := s.served(obj); err != nil {
				return err
			}
			return s.store.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := s.served(list); err != nil {
				return err
			}
			return s.store.List(ctx, list, opts...)
		},
		Create: s.create,
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			which := obj.DeepCopyObject().(client.Object)
			which.SetResourceVersion("") // what is deleted is not answered with
			return s.write(ctx, which, func(was client.Object) error {
				options := client.DeleteOptions{}
				options.ApplyOptions(opts)
				if only := options.Preconditions; only != nil && only.UID != nil && was != nil && was.GetUID() != *only.UID {
					return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), errors.New("the UID in the precondition is another one"))
				}
				return c.Delete(ctx, obj, opts...)
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return s.write(ctx, obj, func(client.Object) error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return s.write(ctx, obj, func(was client.Object) error {
				if same, err := changesNothing(was, obj, patch); same || err != nil {
					return err
				}
				return c.Patch(ctx, obj, patch, opts...)
			})
		},
		Apply: s.apply,
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return s.write(ctx, obj, func(client.Object) error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return s.write(ctx, obj, func(was client.Object) error {
				if same, err := changesNothing(was, obj, patch); same || err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			})
		},
	})
}

// changesNothing reports whether a patch leaves an object as it was, which gives it no new version, and then fills obj.
func changesNothing(was, obj client.Object, patch client.Patch) (bool, error) {
	if was == nil || patch.Type() != types.MergePatchType {
		return false, nil
	}
	data, err := patch.Data(obj)
	if err != nil {
		return false, err
	}
	before, err := json.Marshal(was)
	if err != nil {
		return false, err
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil || !jsonpatch.Equal(before, after) {
		return false, err
	}
	if reflect.TypeOf(was) == reflect.TypeOf(obj) {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(was.DeepCopyObject()).Elem())
	}
	return true, nil
}

// served is the error with which an API server answers those who ask for a kind that it does not serve.
func (s *Server) served(obj runtime.Object) error {
	kind, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	if _, isObject := obj.(client.Object); !isObject {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	_, err = s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	return err
}

// create makes an object as an API server does: defaulted, with a UID and the time, in a namespace that is there.
func (s *Server) create(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if s.Default != nil {
		if err := s.Default(obj); err != nil {
			return err
		}
	}
	return s.write(ctx, obj, func(client.Object) error {
		if namespace := obj.GetNamespace(); namespace != "" {
			if err := s.store.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
				return err
			}
		}
		uid, at := obj.GetUID(), obj.GetCreationTimestamp()
		s.born++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.born)))
		obj.SetCreationTimestamp(metav1.NewTime(s.Clock.Now()).Rfc3339Copy())
		obj.SetGeneration(1)
		err := c.Create(ctx, obj, opts...)
		if err != nil {
			obj.SetUID(uid)
			obj.SetCreationTimestamp(at)
		}
		return err
	})
}

// apply creates an object, or changes the fields that it has.
func (s *Server) apply(ctx context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode what is applied: %w", err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("decode what is applied: %w", err)
	}
	err = s.Create(ctx, obj)
	if apierrors.IsAlreadyExists(err) {
		err = s.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
	}
	if err != nil {
		return err
	}
	if data, err = json.Marshal(obj); err != nil {
		return fmt.Errorf("encode what was applied: %w", err)
	}
	return json.Unmarshal(data, config)
}

// write carries out a write, and notes what has changed for those who watch.
func (s *Server) write(ctx context.Context, obj client.Object, do func(was client.Object) error) error {
	if err := s.served(obj); err != nil {
		return err
	}
	kind, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.store.at(kind, client.ObjectKeyFromObject(obj))
	if s.Refuse != nil {
		if err := s.Refuse(obj); err != nil {
			return err
		}
	}
	if err := do(was); err != nil {
		return err
	}
	is := s.written(ctx, kind, was, obj)
	if err := s.count(ctx, was, is, obj); err != nil {
		return err
	}
	if was == nil && is == nil || was != nil && is != nil && was.GetResourceVersion() == is.GetResourceVersion() {
		return nil
	}
	s.note(change{kind, was, is}, obj)
	return nil
}

// count gives an object whose spec has changed the next generation.
func (s *Server) count(ctx context.Context, was, is, obj client.Object) error {
	if is == nil || was == nil || sameSpec(was, is) {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"generation":%d}}`, was.GetGeneration()+1)
	if err := s.raw.Patch(ctx, is, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return err
	}
	obj.SetGeneration(is.GetGeneration())
	obj.SetResourceVersion(is.GetResourceVersion())
	return nil
}

// note stores what has become of obj, and lets watches hear of it.
func (s *Server) note(what change, obj client.Object) {
	s.store.set(what.kind, client.ObjectKeyFromObject(obj), what.is)
	s.changes = append(s.changes, what)
}

// written is an object after a write that has answered with obj; nil if there is none.
func (s *Server) written(ctx context.Context, kind schema.GroupVersionKind, was, obj client.Object) client.Object {
	answered := obj.GetResourceVersion() != "" && (was == nil || obj.GetResourceVersion() != was.GetResourceVersion())
	ending := was != nil && was.GetDeletionTimestamp() != nil
	if !answered || ending || reflect.TypeOf(obj) != reflect.TypeOf(s.empty(kind)) {
		return s.stored(ctx, kind, client.ObjectKeyFromObject(obj))
	}
	is := obj.DeepCopyObject().(client.Object)
	is.GetObjectKind().SetGroupVersionKind(kind)
	return is
}

// stored is an object as it is stored; nil if there is none.
func (s *Server) stored(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) client.Object {
	if key.Name == "" {
		return nil
	}
	obj := s.empty(kind)
	if err := s.raw.Get(ctx, key, obj); err != nil {
		return nil
	}
	return obj
}

// empty is an object of a kind.
func (s *Server) empty(kind schema.GroupVersionKind) client.Object {
	made, err := s.scheme.New(kind)
	if obj, is := made.(client.Object); is && err == nil {
		obj.GetObjectKind().SetGroupVersionKind(kind)
		return obj
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}

// take returns what has changed since it was last called.
func (s *Server) take() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.changes
	s.changes = nil
	return taken
}
