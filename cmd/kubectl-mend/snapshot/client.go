package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"
)

// Get implements client.Reader. It returns the errors of an API server, also for a kind that is not installed or that the user may not
// read. With client.UnsafeDisableDeepCopy callers must not change the object.
func (s *Snapshot) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, Scheme)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	k, err := s.read(ctx, gvk, question{Namespace: key.Namespace, Name: key.Name})
	if k == nil {
		return err
	}
	stored := s.stored(gvk, key)
	if stored == nil {
		return cmp.Or[error](err, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Plural}, key.Name))
	}
	if stored, err = as(stored, gvk, obj); err != nil {
		return err
	}
	if o := (&client.GetOptions{}).ApplyOptions(options); !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
		stored = stored.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(stored).Elem())
	return nil
}

// read lists the objects of a question, unless they were listed before. It returns an error that satisfies meta.IsNoMatchError if the kind
// or the version is not installed, and the kind with the error of the API server if its objects could not be read.
func (s *Snapshot) read(ctx context.Context, gvk schema.GroupVersionKind, q question) (*kind, error) {
	if err := s.source.load(ctx, gvk, q); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[gvk.GroupKind()]
	if k == nil || !slices.Contains(k.Versions, gvk.Version) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	if !k.Namespaced {
		q.Namespace = ""
	}
	err := k.unread(q.Namespace)
	return k, err
}

// List implements client.Reader. The objects are sorted by name. List ignores limits.
func (s *Snapshot) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, Scheme)
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := (&client.ListOptions{}).ApplyOptions(options)
	q := question{Namespace: o.Namespace}
	if o.LabelSelector != nil {
		q.Labels = o.LabelSelector.String()
	}
	if o.FieldSelector != nil {
		q.Name, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	k, err := s.read(ctx, gvk, q)
	if err != nil {
		return err
	}
	found, err := k.selected(s.Objects(gvk, o.Namespace), o)
	if err != nil {
		return err
	}
	items := make([]runtime.Object, 0, len(found))
	for _, stored := range found {
		obj, err := as(stored, gvk, list)
		if err != nil {
			return err
		}
		if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
			obj = obj.DeepCopyObject().(client.Object)
		}
		items = append(items, obj)
	}
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	return nil
}

// selected returns those of objs that the options select. It reuses the slice.
func (k *kind) selected(objs []client.Object, o *client.ListOptions) ([]client.Object, error) {
	if o.LabelSelector != nil {
		objs = slices.DeleteFunc(objs, func(obj client.Object) bool { return !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) })
	}
	if o.FieldSelector == nil {
		return objs, nil
	}
	for _, field := range o.FieldSelector.Requirements() {
		values := k.indexes[field.Field]
		if values == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s cannot be selected by the field %q", k.Plural, field.Field))
		}
		objs = slices.DeleteFunc(objs, func(obj client.Object) bool { return !slices.Contains(values(obj), field.Value) })
	}
	return objs, nil
}

func isMetadata(obj runtime.Object) bool {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return true
	}
	return false
}

func isTree(obj runtime.Object) bool {
	_, tree := obj.(runtime.Unstructured)
	return tree
}

// as returns a stored object in the version gvk and in the form of like: as its Go type, as metadata or unstructured. Callers must not
// change it. It converts versions by the names of the fields, as an API server does for a kind without a conversion webhook.
func as(stored client.Object, gvk schema.GroupVersionKind, like runtime.Object) (client.Object, error) {
	switch {
	case isMetadata(like):
		bare := meta.AsPartialObjectMetadata(stored)
		bare.SetGroupVersionKind(gvk)
		return bare, nil
	case stored.GetObjectKind().GroupVersionKind() == gvk && isTree(stored) == isTree(like):
		return stored, nil
	}
	return convert(stored, gvk, isTree(like))
}

// convert returns a copy of an object in another version, unstructured (tree) or as the Go type that Scheme has.
func convert(obj client.Object, gvk schema.GroupVersionKind, tree bool) (client.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	values := &unstructured.Unstructured{Object: content}
	values.SetGroupVersionKind(gvk)
	if tree {
		return values, nil
	}
	typed, err := Scheme.New(gvk)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return typed.(client.Object), nil
}

// IndexField lets client.MatchingFields select objects of a kind by a field. An object that cannot be converted to the type of obj has no
// values.
func (s *Snapshot) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(obj, Scheme)
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", obj, field, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexed(gvk.GroupKind()).indexes[field] = func(stored client.Object) []string {
		typed, err := as(stored, gvk, obj)
		if err != nil {
			return nil
		}
		return values(typed)
	}
	return nil
}

// RESTMapper returns a mapper of the kinds that are installed now.
func (s *Snapshot) RESTMapper() meta.RESTMapper {
	kinds := s.installed()
	var preferred []schema.GroupVersion
	for _, k := range kinds {
		for _, version := range k.Versions {
			preferred = append(preferred, schema.GroupVersion{Group: k.Group, Version: version})
		}
	}
	mapper := meta.NewDefaultRESTMapper(preferred)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, version := range k.Versions {
			gv := schema.GroupVersion{Group: k.Group, Version: version}
			mapper.AddSpecific(gv.WithKind(k.Kind), gv.WithResource(k.Plural), gv.WithResource(strings.ToLower(k.Kind)), scope)
		}
	}
	return mapper
}

// Installed reports whether a CustomResourceDefinition is installed, by the served kinds: the user need not have the right to read it.
func (s *Snapshot) Installed(_ context.Context, crd string) (bool, error) {
	return slices.ContainsFunc(s.installed(), func(k *kind) bool { return k.Plural+"."+k.Group == crd }), nil
}

// Kinds gives the controllers the kinds of templates and requests of a snapshot, in place of remediationrequest.Kinds. It reads a kind when
// a controller asks for it, and watches and polls nothing.
type Kinds[T client.Object] struct {
	*Snapshot

	// In is the namespace to read, for MachineHealthChecks. It is empty for NodeHealthChecks, which need all namespaces.
	In string
}

// Source returns nil.
func (k *Kinds[T]) Source(handler.TypedEventHandler[T, reconcile.Request]) ctrlsource.Source {
	return nil
}

// Unread returns nil.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind { return nil }

// Polled returns false.
func (k *Kinds[T]) Polled(schema.GroupVersionKind) bool { return false }

// Ready returns true if the kind was read. The error satisfies remediationrequest.Missing if the kind is not installed, and
// apierrors.IsForbidden if the user may not list it.
func (k *Kinds[T]) Ready(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	if _, err := k.read(ctx, gvk, question{Namespace: k.In}); err != nil {
		return false, fmt.Errorf("list %s: %w", gvk, err)
	}
	return true, nil
}

// Readable is the same as Ready, because no kind is watched.
func (k *Kinds[T]) Readable(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	return k.Ready(ctx, gvk)
}

// InUse returns the kinds of requests that were read, or that no API server has to be asked for, each in its preferred version, sorted.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, installed := range k.installed() {
		k.mu.RLock()
		asked, why := installed.covered(k.In)
		k.mu.RUnlock()
		gvk := installed.WithVersion(installed.Versions[0])
		if why == nil && (asked || !installed.live) && k.templated(installed) && !slices.Contains(scoped, gvk) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}
