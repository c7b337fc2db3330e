package inmemory

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// store is a copy of all objects. It is read without JSON, which is what most of the time of the fake client goes into.
type store struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// otherwise reads what is asked for in another form than it is kept in.
	otherwise client.Reader

	mu      sync.RWMutex
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object // which are never changed
}

func (s *store) set(kind schema.GroupVersionKind, key client.ObjectKey, obj client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[kind] == nil {
		s.objects[kind] = map[client.ObjectKey]client.Object{}
	}
	if obj == nil {
		delete(s.objects[kind], key)
		return
	}
	s.objects[kind][key] = obj
}

func (s *store) at(kind schema.GroupVersionKind, key client.ObjectKey) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[kind][key]
}

// of are the objects of a kind, in the order of their names.
func (s *store) of(kind schema.GroupVersionKind) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.objects[kind]), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// copied is the store as it is now.
func (s *store) copied() *store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	then := &store{scheme: s.scheme, mapper: s.mapper, otherwise: s.otherwise, objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{}}
	for kind, objects := range s.objects {
		then.objects[kind] = maps.Clone(objects)
	}
	return then
}

// Get reads an object.
func (s *store) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	stored := s.at(kind, key)
	switch {
	case stored != nil && reflect.TypeOf(stored) == reflect.TypeOf(obj):
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(stored.DeepCopyObject()).Elem())
		return nil
	case stored != nil:
		return s.otherwise.Get(ctx, key, obj, opts...)
	}
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(mapping.Resource.GroupResource(), key.Name)
}

// List reads objects.
func (s *store) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, s.scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	var found []runtime.Object
	for _, obj := range s.of(kind) {
		if options.FieldSelector != nil || reflect.TypeOf(obj) != itemType(list) {
			return s.otherwise.List(ctx, list, opts...)
		}
		if options.Namespace != "" && obj.GetNamespace() != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		found = append(found, obj.DeepCopyObject())
	}
	return meta.SetList(list, found)
}

// itemType is the type of the items of a list, as a pointer.
func itemType(list client.ObjectList) reflect.Type {
	if _, is := list.(*unstructured.UnstructuredList); is {
		return reflect.TypeFor[*unstructured.Unstructured]()
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	return reflect.PointerTo(items.Type().Elem())
}

func sameSpec(a, b client.Object) bool {
	return reflect.DeepEqual(specOf(a), specOf(b))
}

func specOf(obj client.Object) any {
	if u, is := obj.(*unstructured.Unstructured); is {
		return u.Object["spec"]
	}
	if field := reflect.ValueOf(obj).Elem().FieldByName("Spec"); field.IsValid() {
		return field.Interface()
	}
	return nil
}

// withoutEmptyStatus is c without a status of null, which the fake client gives an unstructured object that has none when its metadata is
// written.
func withoutEmptyStatus(c client.WithWatch) client.WithWatch {
	clean := func(obj runtime.Object) {
		if u, is := obj.(*unstructured.Unstructured); is && u.Object["status"] == nil {
			delete(u.Object, "status")
		}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			defer clean(obj)
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			return meta.EachListItem(list, func(o runtime.Object) error {
				clean(o)
				return nil
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			defer clean(obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			defer clean(obj)
			return c.Update(ctx, obj, opts...)
		},
	})
}
