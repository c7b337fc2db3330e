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

// fromMemory reads what the API server has in memory: it is as new as a controller's cache, and costs it less than a read of its database.
func fromMemory() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}} // the client writes its selectors into it
}

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
	options := append([]client.ListOption{client.InNamespace(t.namespace), fromMemory()}, t.options...)
	objs, err := r.objects(ctx, t, options)
	if err != nil {
		return err
	}
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	for _, obj := range objs {
		if err := r.snapshot.keep(r.snapshot.kinds[t.gvk.GroupKind()], t.gvk, obj); err != nil {
			return fmt.Errorf("%s: %w", client.ObjectKeyFromObject(obj), err)
		}
	}
	return nil
}

// kept is what is kept of an object; nil if nothing is.
func (t task) kept(obj client.Object) client.Object {
	obj.GetObjectKind().SetGroupVersionKind(t.gvk)
	if t.keep != nil && !t.keep(obj) {
		return nil
	}
	return slim(obj)
}

// objects are what is kept of the list that a task asks for.
func (r *reading) objects(ctx context.Context, t task, options []client.ListOption) (kept []client.Object, err error) {
	list, err := r.emptyList(t)
	if err != nil {
		return nil, err
	}
	if err := r.client.List(ctx, list, options...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(o k8sruntime.Object) error {
		if obj, ok := o.(client.Object); ok {
			if obj = t.kept(obj); obj != nil {
				kept = append(kept, obj)
			}
		}
		return nil
	})
	return kept, err
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
