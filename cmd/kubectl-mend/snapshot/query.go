package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
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

// query is a list of objects of one kind that is to be read.
type query struct {
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

// read reads what a query asks for. A kind that is not installed is not missing.
func (r *reading) read(ctx context.Context, q query) {
	res, found := r.served[q.gvk.GroupKind()]
	if !found {
		return
	}
	if !slices.Contains(res.versions, q.gvk.Version) {
		known := r.snapshot.scheme.Recognizes(q.gvk)
		if known && !q.bare && !q.anyVersion {
			r.snapshot.Lacks(plural(q.gvk.Kind),
				fmt.Sprintf("they are served in %s, and version %s is needed", strings.Join(res.versions, ", "), q.gvk.Version))
			return
		}
		q.bare = q.bare || known
		q.gvk.Version = res.versions[0]
	}
	r.install(q.gvk.GroupKind())
	if !res.namespaced {
		q.namespace = ""
	}
	err := r.list(ctx, q)
	if err == nil {
		r.say(q.gvk.GroupKind(), q.namespace, nil)
		return
	}
	r.snapshot.Lacks(q.what(res), why(err))
	if !apierrors.IsForbidden(err) || q.namespace != "" || len(q.instead) == 0 {
		r.say(q.gvk.GroupKind(), q.namespace, fmt.Errorf("list %s: %w", plural(q.gvk.Kind), err))
		return
	}
	for _, namespace := range q.instead {
		q.namespace, q.instead = namespace, nil
		r.read(ctx, q)
	}
}

// say notes of a namespace of a kind whether it was read. What was read of it once stays read.
func (r *reading) say(gk schema.GroupKind, namespace string, err error) {
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	k := r.snapshot.kinds[gk]
	if k == nil {
		return
	}
	if before, said := k.scopes[namespace]; said && before == nil {
		return
	}
	k.scopes[namespace] = err
}

// list reads what a query asks for into the snapshot.
func (r *reading) list(ctx context.Context, q query) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := r.emptyList(q)
	if err != nil {
		return err
	}
	if err := r.client.List(ctx, list, append([]client.ListOption{client.InNamespace(q.namespace), fromMemory()}, q.options...)...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item k8sruntime.Object) error {
		obj, ok := item.(client.Object)
		if !ok || q.keep != nil && !q.keep(obj) {
			return nil
		}
		r.snapshot.mu.Lock()
		defer r.snapshot.mu.Unlock()
		return r.snapshot.keep(r.snapshot.kinds[q.gvk.GroupKind()], q.gvk, obj)
	})
}

// emptyList is a list of what a query reads, as its type if that is known.
func (r *reading) emptyList(q query) (client.ObjectList, error) {
	gvk := q.gvk.GroupVersion().WithKind(q.gvk.Kind + "List")
	switch {
	case q.bare:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	case !r.snapshot.scheme.Recognizes(q.gvk):
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

// each reads several lists at the same time.
func (r *reading) each(ctx context.Context, queries []query) {
	reads := make([]func(), 0, len(queries))
	for _, q := range queries {
		reads = append(reads, func() { r.read(ctx, q) })
	}
	inParallel(reads)
}

// install makes a kind known to the snapshot in all versions that are served.
func (r *reading) install(gk schema.GroupKind) {
	res := r.served[gk]
	for _, version := range res.versions {
		r.snapshot.Install(gk.WithVersion(version), res.plural, res.namespaced)
	}
}

// done reports whether a kind was tried to be read in a namespace already.
func (r *reading) done(gk schema.GroupKind, namespace string) bool {
	r.snapshot.mu.RLock()
	defer r.snapshot.mu.RUnlock()
	k := r.snapshot.kinds[gk]
	if k == nil {
		return false
	}
	_, said := k.scopes[namespace]
	why, all := k.scopes[""]
	return said || all && why == nil
}

// only selects the object of a name.
func only(name string) []client.ListOption {
	return []client.ListOption{client.MatchingFields{metav1.ObjectNameField: name}}
}

// inParallel does several things at the same time, each of which says itself what fails.
func inParallel(tasks []func()) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, do := range tasks {
		work.Go(func() error {
			do()
			return nil
		})
	}
	_ = work.Wait() // none returns an error
}
