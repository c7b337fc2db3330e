package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long one answer of the management cluster is waited for: a list of thousands of machines takes some seconds.
const patience = 30 * time.Second

// task is one kind that is to be read.
type task struct {
	gvk schema.GroupVersionKind
	// bare says that no more than metadata is read.
	bare bool
	// anyVersion says that metadata alone is read if the version is not served but another one is.
	anyVersion bool
	// namespace is where; everywhere if it is empty. instead are those that are read if not everything may be.
	namespace string
	instead   []string
	options   []client.ListOption
	// keep says which objects are kept; all if it is nil.
	keep func(client.Object) bool
	// most is how many objects are kept: those that were created last; all if it is 0.
	most int
	// called is how what is read is called, if not by its kind.
	called string
}

// read carries out a task. A kind that is not installed is not missing.
func (r *reading) read(ctx context.Context, t task) {
	is, found := r.served[t.gvk.GroupKind()]
	if !found {
		return
	}
	if !slices.Contains(is.versions, t.gvk.Version) {
		known := r.snapshot.scheme.Recognizes(t.gvk)
		if known && !t.bare && !t.anyVersion {
			r.snapshot.Lacks(plural(t.gvk.Kind),
				fmt.Sprintf("they are served in %s, and version %s is needed", strings.Join(is.versions, ", "), t.gvk.Version))
			return
		}
		t.bare = t.bare || known
		t.gvk.Version = is.versions[0]
	}
	r.install(t.gvk.GroupKind())
	if !is.namespaced {
		t.namespace = ""
	}
	err := r.list(ctx, t)
	if err == nil {
		r.say(t, t.namespace, nil)
		return
	}
	r.snapshot.Lacks(t.what(is), why(err))
	if !apierrors.IsForbidden(err) || t.namespace != "" || len(t.instead) == 0 {
		r.say(t, t.namespace, fmt.Errorf("list %s: %w", plural(t.gvk.Kind), err))
		return
	}
	for _, namespace := range t.instead {
		t.namespace, t.instead = namespace, nil
		r.read(ctx, t)
	}
}

// say notes of a namespace of a kind whether it was read. What was read of it once stays read.
func (r *reading) say(t task, namespace string, err error) {
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	k := r.snapshot.kinds[t.gvk.GroupKind()]
	if k == nil {
		return
	}
	if was, said := k.scopes[namespace]; said && was == nil {
		return
	}
	k.scopes[namespace] = err
}

// list reads what a task asks for into the snapshot.
func (r *reading) list(ctx context.Context, t task) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// What the API server has in memory is as new as a controller's cache, and costs it less than a read of its database.
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	options := append([]client.ListOption{client.InNamespace(t.namespace), fromMemory}, t.options...)
	read := r.whole
	if custom(t.gvk.Group) && !t.bare && r.snapshot.scheme.Recognizes(t.gvk) {
		read = r.inPieces // there may be thousands, and they come as JSON
	}
	all, err := read(ctx, t, options)
	if err != nil {
		return err
	}
	all = r.newest(t, all)
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	for _, obj := range all {
		if err := r.snapshot.keep(r.snapshot.kinds[t.gvk.GroupKind()], t.gvk, obj); err != nil {
			return fmt.Errorf("%s: %w", client.ObjectKeyFromObject(obj), err)
		}
	}
	if name := t.name(); name != "" && len(all) == 0 { // it was deleted before it was read whole; one that is known whole stays as it was
		known := r.snapshot.kinds[t.gvk.GroupKind()].records[client.ObjectKey{Namespace: t.namespace, Name: name}]
		if known != nil && isMetadata(known.is) {
			r.snapshot.remove(known)
		}
	}
	return nil
}

// name is that of the one object that a task reads whole; empty if it reads others.
func (t task) name() string {
	if t.bare || t.keep != nil {
		return ""
	}
	o := (&client.ListOptions{}).ApplyOptions(t.options)
	if o.FieldSelector == nil {
		return ""
	}
	name, _ := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	return name
}

// kept is what is kept of an object; nil if nothing is.
func (t task) kept(obj client.Object) client.Object {
	obj.GetObjectKind().SetGroupVersionKind(t.gvk)
	if t.keep != nil && !t.keep(obj) {
		return nil
	}
	return slim(obj)
}

// whole reads what a task asks for as one list.
func (r *reading) whole(ctx context.Context, t task, options []client.ListOption) (all []client.Object, err error) {
	list, err := r.emptyList(t)
	if err != nil {
		return nil, err
	}
	if err := r.client.List(ctx, list, options...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(o k8sruntime.Object) error {
		if obj, ok := o.(client.Object); ok {
			if kept := t.kept(obj); kept != nil {
				all = append(all, kept)
			}
		}
		return nil
	})
	return all, err
}

// emptyList is a list of what a task reads, as its type if that is known.
func (r *reading) emptyList(t task) (client.ObjectList, error) {
	gvk := t.gvk.GroupVersion().WithKind(t.gvk.Kind + "List")
	switch {
	case t.bare:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	case !r.snapshot.scheme.Recognizes(t.gvk):
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := r.snapshot.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}
