package inmemory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// store has all objects, in the types of the scheme.
type store struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// indexes has the indexes by kind and field.
	indexes map[schema.GroupVersionKind]map[string]client.IndexerFunc

	mu      sync.RWMutex
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object // stored objects are never modified
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

// At returns an object, which the caller must not change; nil if there is none.
func (s *store) At(kind schema.GroupVersionKind, key client.ObjectKey) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[kind][key]
}

// Of returns the objects of a kind sorted by name, which the caller must not change.
func (s *store) Of(kind schema.GroupVersionKind) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.objects[kind]), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func (s *store) copied() *store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	then := &store{
		scheme: s.scheme, mapper: s.mapper, indexes: s.indexes, objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{},
	}
	for kind, objects := range s.objects {
		then.objects[kind] = maps.Clone(objects)
	}
	return then
}

// IndexField adds an index for lists by a field.
func (s *store) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	kind, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	if s.indexes[kind] == nil {
		s.indexes[kind] = map[string]client.IndexerFunc{}
	}
	s.indexes[kind][field] = values
	return nil
}

// mapping returns the resource of the kind of an object or list. If the kind is not served, the error is that of an API server.
func (s *store) mapping(obj runtime.Object) (*meta.RESTMapping, error) {
	kind, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return nil, err
	}
	if _, isObject := obj.(client.Object); !isObject {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	return s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// Get reads an object.
func (s *store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	mapping, err := s.mapping(obj)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		key.Namespace = ""
	}
	stored := s.At(mapping.GroupVersionKind, key)
	if stored == nil {
		return apierrors.NewNotFound(mapping.Resource.GroupResource(), key.Name)
	}
	return fill(obj, stored, mapping.GroupVersionKind)
}

// List reads objects.
func (s *store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	mapping, err := s.mapping(list)
	if err != nil {
		return err
	}
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	var found []runtime.Object
	for _, obj := range s.Of(mapping.GroupVersionKind) {
		if options.Namespace != "" && obj.GetNamespace() != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(obj.GetLabels())) ||
			!s.hasFields(mapping.GroupVersionKind, obj, options) {
			continue
		}
		item := reflect.New(itemType(list)).Interface().(client.Object)
		if err := fill(item, obj, mapping.GroupVersionKind); err != nil {
			return err
		}
		found = append(found, item)
	}
	return meta.SetList(list, found)
}

// hasFields reports whether an object matches the field selector, by an index if there is one, else by the path of the field.
func (s *store) hasFields(kind schema.GroupVersionKind, obj client.Object, options client.ListOptions) bool {
	if options.FieldSelector == nil {
		return true
	}
	for _, wanted := range options.FieldSelector.Requirements() {
		if values := s.indexes[kind][wanted.Field]; values != nil {
			if !slices.Contains(values(obj), wanted.Value) {
				return false
			}
			continue
		}
		all, err := content(obj)
		is, _, _ := unstructured.NestedString(all, strings.Split(wanted.Field, ".")...)
		if err != nil || is != wanted.Value {
			return false
		}
	}
	return true
}

// fill copies an object into into, which may have another type.
func fill(into, obj client.Object, kind schema.GroupVersionKind) error {
	shown := obj.DeepCopyObject()
	if reflect.TypeOf(into) == reflect.TypeOf(obj) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(shown).Elem())
		into.GetObjectKind().SetGroupVersionKind(kind)
		return nil
	}
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
	if err != nil {
		return fmt.Errorf("show %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	switch into := into.(type) {
	case *unstructured.Unstructured:
		into.Object = all
	case *metav1.PartialObjectMetadata:
		*into = metav1.PartialObjectMetadata{}
		all = map[string]any{"metadata": all["metadata"]}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(all, into)
	default:
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(all, into)
	}
	into.GetObjectKind().SetGroupVersionKind(kind)
	return err
}

// content returns an object in the form of JSON, with times in whole seconds.
func content(obj runtime.Object) (all map[string]any, err error) {
	if u, is := obj.(*unstructured.Unstructured); is { // its numbers may have the types of YAML
		data, err := json.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		err = json.Unmarshal(data, &all)
		return all, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
}

func itemType(list client.ObjectList) reflect.Type {
	if _, is := list.(*unstructured.UnstructuredList); is {
		return reflect.TypeFor[unstructured.Unstructured]()
	}
	return reflect.ValueOf(list).Elem().FieldByName("Items").Type().Elem()
}

// specOf returns what a change of raises the generation.
func specOf(obj client.Object) any {
	if u, is := obj.(*unstructured.Unstructured); is {
		return u.Object["spec"]
	}
	if field := reflect.ValueOf(obj).Elem().FieldByName("Spec"); field.IsValid() {
		return field.Interface()
	}
	return nil
}

// takeStatus copies the status of from, which has the same type, to obj; nil removes the status.
func takeStatus(obj, from client.Object) {
	if u, is := obj.(*unstructured.Unstructured); is {
		delete(u.Object, "status")
		if from != nil && from.(*unstructured.Unstructured).Object["status"] != nil {
			u.Object["status"] = from.DeepCopyObject().(*unstructured.Unstructured).Object["status"]
		}
		return
	}
	status := reflect.ValueOf(obj).Elem().FieldByName("Status")
	switch {
	case !status.IsValid():
	case from == nil:
		status.SetZero()
	default:
		status.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName("Status"))
	}
}
