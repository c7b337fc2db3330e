package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// kind is a kind that is installed, and its objects.
type kind struct {
	schema.GroupKind
	plural     string
	namespaced bool
	// versions are those that are served, the preferred one first; none of a kind that is only indexed.
	versions []string
	// live says that the API server of the source lists it.
	live bool
	// scopes say of a namespace, or of all if it is empty, whether it was read: nil if it was, else why it was not.
	scopes map[string]error
	// objects are shared by all who read them: one is replaced and never changed.
	objects map[client.ObjectKey]client.Object
	// indexes have the values by which objects can be selected.
	indexes map[string]client.IndexerFunc
}

// kindFor returns the kind, which is installed with it if it was not. The lock is held.
func (w *Snapshot) kindFor(gvk schema.GroupVersionKind, plural string, namespaced bool) *kind {
	k := w.indexed(gvk.GroupKind())
	if len(k.versions) == 0 {
		k.plural, k.namespaced = plural, namespaced
	}
	if !slices.Contains(k.versions, gvk.Version) {
		k.versions = append(k.versions, gvk.Version)
	}
	return k
}

// indexed returns the kind, which need not be installed. The lock is held.
func (w *Snapshot) indexed(gk schema.GroupKind) *kind {
	if w.kinds[gk] == nil {
		w.kinds[gk] = &kind{
			GroupKind: gk, scopes: map[string]error{}, objects: map[client.ObjectKey]client.Object{},
			indexes: map[string]client.IndexerFunc{
				metav1.ObjectNameField: func(obj client.Object) []string { return []string{obj.GetName()} },
			},
		}
	}
	return w.kinds[gk]
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

// scope is why a namespace of the kind was not read, by itself or with all others; nil if it was, or if nobody has asked for it.
func (k *kind) scope(namespace string) (asked bool, why error) {
	if why, asked = k.scopes[namespace]; !asked {
		why, asked = k.scopes[""]
	}
	return asked, why
}

// unread is why a namespace of the kind was not read, or, if that is empty, why nothing was; nil if it was. It is explain.ErrUnread.
func (k *kind) unread(namespace string) error {
	asked, why := k.scope(namespace)
	read := k.read()
	switch {
	case why != nil:
		return unreadError{why}
	case asked, len(k.scopes) == 0, namespace == "" && len(read) > 0: // all that was to be read, was
		return nil
	case namespace == "":
		return unreadError{k.scopes[slices.Min(slices.Collect(maps.Keys(k.scopes)))]}
	}
	return unreadError{fmt.Errorf("%s in namespace %s were not read, only those in %s", k.plural, namespace, strings.Join(read, ", "))}
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

// templated reports whether objects of a kind, of a CustomResourceDefinition, are made from templates.
func (w *Snapshot) templated(k *kind) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return custom(k.Group) && w.kinds[schema.GroupKind{Group: k.Group, Kind: k.Kind + remediationrequest.TemplateSuffix}] != nil
}

// in are the objects in a namespace, or in all if that is empty, by name.
func (k *kind) in(namespace string) []client.Object {
	objs := make([]client.Object, 0, len(k.objects))
	for key, obj := range k.objects {
		if namespace == "" || key.Namespace == namespace {
			objs = append(objs, obj)
		}
	}
	slices.SortFunc(objs, func(a, b client.Object) int {
		return compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b))
	})
	return objs
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// IndexField makes objects of a kind be found by client.MatchingFields. What is known by its metadata alone has no values.
func (w *Snapshot) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(obj, w.scheme)
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", obj, field, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.indexed(gvk.GroupKind()).indexes[field] = func(stored client.Object) []string {
		typed, err := w.as(stored, gvk, obj)
		if err != nil {
			return nil
		}
		return values(typed)
	}
	return nil
}

// installed are all kinds that are installed, in a stable order.
func (w *Snapshot) installed() []*kind {
	w.mu.RLock()
	defer w.mu.RUnlock()
	kinds := make([]*kind, 0, len(w.kinds))
	for _, k := range w.kinds {
		if len(k.versions) > 0 {
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b *kind) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	return kinds
}

// RESTMapper knows the kinds that are installed by now.
func (w *Snapshot) RESTMapper() meta.RESTMapper {
	kinds := w.installed()
	var preferred []schema.GroupVersion
	for _, k := range kinds {
		for _, version := range k.versions {
			preferred = append(preferred, schema.GroupVersion{Group: k.Group, Version: version})
		}
	}
	mapper := meta.NewDefaultRESTMapper(preferred)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, version := range k.versions {
			gv := schema.GroupVersion{Group: k.Group, Version: version}
			mapper.AddSpecific(gv.WithKind(k.Kind), gv.WithResource(k.plural), gv.WithResource(strings.ToLower(k.Kind)), scope)
		}
	}
	return mapper
}

// Installed reports whether there is a kind whose CustomResourceDefinition is of that name, also where those may not be read themselves.
func (w *Snapshot) Installed(_ context.Context, crd string) (bool, error) {
	return slices.ContainsFunc(w.installed(), func(k *kind) bool { return k.plural+"."+k.Group == crd }), nil
}
