package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubemend/kubemend/controllers/explain"
)

// installed is a kind as an API server serves it.
type installed struct {
	schema.GroupVersionKind
	plural     string
	namespaced bool
}

// always are the kinds that every management cluster has.
var always = []installed{
	{corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", false},
	{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", false},
	{coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases", true},
	{apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "customresourcedefinitions", false},
	{clusterv1.GroupVersion.WithKind("Cluster"), "clusters", true},
	{clusterv1.GroupVersion.WithKind("Machine"), "machines", true},
	{clusterv1.GroupVersion.WithKind("MachineHealthCheck"), "machinehealthchecks", true},
}

// kind is a kind that is installed, and all its objects.
type kind struct {
	schema.GroupKind
	plural     string
	namespaced bool
	// versions are those that are served, the preferred one first.
	versions []string
	// scopes say of a namespace, or of all if it is empty, whether it was read: nil if it was, else why it was not.
	scopes map[string]error

	records map[client.ObjectKey]*record
	// indexes are by the name of the field. That without a name finds all objects.
	indexes map[string]*index
}

// kindFor returns the kind, which is installed with it if it was not. The lock is held.
func (w *Snapshot) kindFor(gvk schema.GroupVersionKind, plural string, namespaced bool) *kind {
	k := w.kinds[gvk.GroupKind()]
	if k == nil {
		k = &kind{
			GroupKind: gvk.GroupKind(), plural: plural, namespaced: namespaced, scopes: map[string]error{},
			records: map[client.ObjectKey]*record{}, indexes: map[string]*index{"": newIndex(func(client.Object) []string { return []string{""} })},
		}
		w.kinds[gvk.GroupKind()] = k
		w.mapper = nil
	}
	if len(k.versions) == 0 { // it was indexed before it was installed
		k.plural, k.namespaced = plural, namespaced
	}
	if !slices.Contains(k.versions, gvk.Version) {
		k.versions = append(k.versions, gvk.Version)
		w.mapper = nil
	}
	return k
}

// find returns the kind of a version; the error is that of a kind which is not installed. The lock is held.
func (w *Snapshot) find(gvk schema.GroupVersionKind) (*kind, error) {
	k := w.kinds[gvk.GroupKind()]
	if k == nil || !slices.Contains(k.versions, gvk.Version) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return k, nil
}

// unreadError is an error that is explain.ErrUnread as well.
type unreadError struct{ error }

// Is implements what errors.Is asks for.
func (unreadError) Is(target error) bool { return target == explain.ErrUnread }

// Unwrap implements what errors.Is and errors.As ask for.
func (e unreadError) Unwrap() error { return e.error }

// unread is why a namespace of the kind was not read, or, if that is empty, why nothing was; nil if it was. It is explain.ErrUnread.
func (k *kind) unread(namespace string) error {
	why, known := k.scopes[namespace]
	if !known {
		why, known = k.scopes[""]
	}
	switch {
	case known, len(k.scopes) == 0: // all that was to be read, was
	case namespace != "":
		why = fmt.Errorf("%s in namespace %s were not read, only those in %s", k.plural, namespace,
			strings.Join(slices.Sorted(maps.Keys(k.scopes)), ", "))
	case len(k.read()) == 0:
		why = k.scopes[slices.Min(slices.Collect(maps.Keys(k.scopes)))]
	}
	if why != nil {
		return unreadError{why}
	}
	return nil
}

// read are the namespaces that were read, sorted; an empty name stands for all.
func (k *kind) read() []string {
	var read []string
	for namespace, why := range k.scopes {
		if why == nil {
			read = append(read, namespace)
		}
	}
	slices.Sort(read)
	return read
}

// Whole says why objects of a kind may be missing that are in namespaces which were not read; nil if all were.
func (w *Snapshot) Whole(gvk schema.GroupVersionKind) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	k := w.kinds[gvk.GroupKind()]
	if k == nil || len(k.scopes) == 0 {
		return nil
	}
	if why, known := k.scopes[""]; known {
		return why
	}
	return fmt.Errorf("%s were not read in all namespaces, only in %s", k.plural, cmp.Or(strings.Join(k.read(), ", "), "none"))
}

// custom reports whether the kinds of a group come from CustomResourceDefinitions. Such a group has a dot in its name, and
// needs the approval of Kubernetes to end with k8s.io.
func custom(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// in are the objects in a namespace, or in all if that is empty, by name.
func (k *kind) in(namespace string) shelf { return k.indexes[""].in(namespace, "") }

// RESTMapper knows the kinds that are installed.
func (w *Snapshot) RESTMapper() meta.RESTMapper {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mapper != nil {
		return w.mapper
	}
	kinds := slices.SortedFunc(maps.Values(w.kinds), func(a, b *kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	var versions []schema.GroupVersion
	for _, k := range kinds {
		for _, v := range k.versions {
			versions = append(versions, schema.GroupVersion{Group: k.Group, Version: v})
		}
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, v := range k.versions {
			gv := schema.GroupVersion{Group: k.Group, Version: v}
			mapper.AddSpecific(gv.WithKind(k.Kind), gv.WithResource(k.plural), gv.WithResource(strings.ToLower(k.Kind)), scope)
		}
	}
	w.mapper = mapper
	return mapper
}

// index finds objects by a value that a function takes from them.
type index struct {
	shape  shape // of the objects that the function takes
	values client.IndexerFunc
	found  map[indexKey]shelf
	of     map[*record][]string
}

// indexKey is a value, in one namespace or, if that is empty, in all.
type indexKey struct{ namespace, value string }

func newIndex(values client.IndexerFunc) *index {
	return &index{values: values, found: map[indexKey]shelf{}, of: map[*record][]string{}}
}

// IndexField makes objects of a kind be found by client.MatchingFields. One that was added before by the same name is replaced.
func (w *Snapshot) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(obj, w.scheme)
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", obj, field, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[gvk.GroupKind()]
	if k == nil {
		k = w.kindFor(gvk, "", true)
		k.versions, w.mapper = nil, nil // it is as little installed as before
	}
	i := newIndex(values)
	i.shape = shapeOf(obj, gvk)
	k.indexes[field] = i
	for _, r := range k.in("") {
		i.update(r)
	}
	return nil
}

// in are the objects with a value in a namespace, or in all if that is empty.
func (i *index) in(namespace, value string) shelf { return i.found[indexKey{namespace, value}] }

// keys are those of what has a value.
func (r *record) keys(value string) []indexKey {
	return []indexKey{{"", value}, {r.key.Namespace, value}}
}

// update makes an object be found by the values that it has now.
func (i *index) update(r *record) {
	obj, err := r.is, error(nil)
	if i.shape != (shape{}) {
		obj, err = r.as(i.shape)
	}
	var values []string
	if err == nil { // else no more than its metadata is known
		values = i.values(obj)
	}
	if slices.Equal(values, i.of[r]) {
		return
	}
	i.take(r)
	i.of[r] = values
	for _, value := range values {
		for _, key := range r.keys(value) {
			i.found[key] = i.found[key].with(r)
		}
	}
}

func (i *index) take(r *record) {
	for _, value := range i.of[r] {
		for _, key := range r.keys(value) {
			i.found[key] = i.found[key].without(r)
		}
	}
	delete(i.of, r)
}
