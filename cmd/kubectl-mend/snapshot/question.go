package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// question is a list of objects of one kind.
type question struct {
	gvk schema.GroupVersionKind
	// namespace is where; everywhere if it is empty.
	namespace string
	// name and labels select among the objects; all are read if they are empty.
	name, labels string
}

// fromMemory reads what the API server has in memory: it is as new as a controller's cache, and costs it less than a read of its database.
func fromMemory() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}} // the client writes its selectors into it
}

// load reads what is asked for, unless that was read before. A record has nothing more to read. The error is that of the context.
func (w *Snapshot) load(ctx context.Context, q question) error {
	if w.source == nil {
		return nil
	}
	return w.source.load(ctx, q)
}

func (r *reading) load(ctx context.Context, q question) error {
	k := r.kind(q.gvk.GroupKind())
	if k == nil {
		return nil
	}
	switch {
	case !k.namespaced:
		q.namespace = ""
	case q.namespace == "" && slices.Contains(scoped, q.gvk):
		q.namespace = r.Namespace
	}
	if r.Namespace == "" && q.namespace != "" && custom(q.gvk.Group) { // one list of all is faster than one for each namespace
		everywhere := q
		everywhere.namespace = ""
		if err := r.load(ctx, everywhere); err != nil {
			return err
		}
	}
	q, wanted := r.widened(q)
	if !wanted || r.answered(q) {
		return nil
	}
	err := r.ask(ctx, q)
	if ctx.Err() != nil {
		return fmt.Errorf("list %s: %w", plural(q.gvk.Kind), errors.Join(ctx.Err(), err))
	}
	return nil
}

// ask lists what a question asks for, and remembers why it could not. What was not read when the context ended is asked again.
func (r *reading) ask(ctx context.Context, q question) error {
	k := r.kind(q.gvk.GroupKind())
	err := r.list(ctx, q, k)
	if ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	r.asked[q] = err
	r.mu.Unlock()
	if err != nil {
		r.snapshot.Lacks(q.what(k), why(err))
	}
	if q.gvk == leaseGVK && q.namespace == "" && apierrors.IsForbidden(err) { // a user may read those where managers usually run
		q.namespace = managerlease.UsualNamespace
		return r.ask(ctx, q)
	}
	r.say(q, err)
	return err
}

// kind is a kind that the API server lists; nil if it does not.
func (r *reading) kind(gk schema.GroupKind) *kind {
	r.snapshot.mu.RLock()
	defer r.snapshot.mu.RUnlock()
	if k := r.snapshot.kinds[gk]; k != nil && k.live {
		return k
	}
	return nil
}

// widened is what is listed to answer a question: all objects of its kind in a namespace, but by name or labels where there are many
// others. It is false where no more is read than was.
func (r *reading) widened(q question) (question, bool) {
	selected := q.name != "" || q.labels != ""
	gk := q.gvk.GroupKind()
	switch {
	case gk == nodeGVK.GroupKind() && len(r.snapshot.Objects(nodeCheckGVK, "")) == 0:
		r.say(q, errNoNodeCheck)
		return q, false
	case gk == machineGVK.GroupKind() && (r.calm || r.one && !selected):
		return q, false
	case slices.Contains(selectedKinds, gk), r.one && selected && slices.Contains(machineKinds, gk):
		return q, true
	}
	q.name, q.labels = "", r.selection(gk).String()
	return q, true
}

// selection are the labels by which a kind is listed.
func (r *reading) selection(gk schema.GroupKind) labels.Set {
	switch {
	case gk == machineGVK.GroupKind():
		return r.labelled()
	case gk != recordGVK.GroupKind():
	case r.OpenRecords:
		return labels.Set{mendv1.RecordOpenLabel: "true"}
	case r.target != "":
		return labels.Set{mendv1.RecordTargetLabel: r.target}
	case r.Cluster != "":
		return labels.Set{clusterv1.ClusterNameLabel: r.Cluster}
	}
	return nil
}

// labelled selects what belongs to the cluster in scope; everything if that are all. A NodeHealthCheck judges by the Machines of any.
func (r *reading) labelled() labels.Set {
	if r.Cluster == "" || len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 {
		return nil
	}
	return labels.Set{clusterv1.ClusterNameLabel: r.Cluster}
}

// inCluster reports whether a Cluster or a MachineHealthCheck is in the scope of a cluster; it is if the name is empty. Neither has a label
// by which it could be selected.
func inCluster(obj client.Object, cluster string) bool {
	switch obj := obj.(type) {
	case *clusterv1.Cluster:
		return cluster == "" || obj.Name == cluster
	case *clusterv1.MachineHealthCheck:
		return cluster == "" || obj.Spec.ClusterName == cluster
	}
	return true
}

// answered reports whether what q asks for was read, by itself or with more. What may not be read everywhere may be read in a namespace.
func (r *reading) answered(q question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, asked := r.asked[q]; asked {
		return true
	}
	for _, more := range []question{
		{gvk: q.gvk, namespace: q.namespace}, {gvk: q.gvk, name: q.name, labels: q.labels}, {gvk: q.gvk},
	} {
		if err, asked := r.asked[more]; asked && err == nil {
			return true
		}
	}
	return false
}

// say notes of a namespace of a kind whether it was read. What was read of it once stays read.
func (r *reading) say(q question, err error) {
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	k := r.snapshot.kinds[q.gvk.GroupKind()]
	if before, said := k.scopes[q.namespace]; said && before == nil {
		return
	}
	if err != nil && !errors.Is(err, errNoNodeCheck) {
		err = fmt.Errorf("list %s: %w", plural(q.gvk.Kind), err)
	}
	k.scopes[q.namespace] = err
}

// list reads what a question asks for into the snapshot. An object that is there already may have been changed there, and stays.
func (r *reading) list(ctx context.Context, q question, k *kind) error {
	if !slices.Contains(k.versions, q.gvk.Version) {
		return fmt.Errorf("they are served in %s, and version %s is needed", strings.Join(k.versions, ", "), q.gvk.Version)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	gvk := q.gvk.GroupVersion().WithKind(q.gvk.Kind + "List")
	var list client.ObjectList = &unstructured.UnstructuredList{}
	if typed, err := r.snapshot.scheme.New(gvk); err == nil {
		list = typed.(client.ObjectList)
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	options := []client.ListOption{client.InNamespace(q.namespace), fromMemory()}
	if q.name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: q.name})
	}
	if q.labels != "" {
		selector, err := labels.Parse(q.labels)
		if err != nil {
			return err
		}
		options = append(options, client.MatchingLabelsSelector{Selector: selector})
	}
	if err := r.client.List(ctx, list, options...); err != nil {
		return err
	}
	cluster := r.labelled()[clusterv1.ClusterNameLabel]
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok || !inCluster(obj, cluster) {
			return nil
		}
		if k.objects[client.ObjectKeyFromObject(obj)] != nil {
			return nil
		}
		return r.snapshot.keep(k, q.gvk, obj)
	})
}
