package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// patience is how long one answer of the management cluster is waited for: a list of thousands of machines takes some seconds.
const patience = 30 * time.Second

// fromMemory reads what the API server has in memory: it is as new as a controller's cache, and costs it less than a read of its database.
func fromMemory() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}} // the client writes its selectors into it
}

// query is a list of objects of one kind.
type query struct {
	gvk schema.GroupVersionKind
	// bare says that no more than metadata is read.
	bare bool
	// namespace is where; everywhere if it is empty.
	namespace string
	// name and labels select among the objects; all are read if they are empty.
	name, labels string
	// called is how what is read is called, if not by its kind.
	called string
}

// byName are the kinds of which only the objects are read that are asked for by name or by labels: there are many others.
var byName = []schema.GroupKind{
	leaseGVK.GroupKind(), namespaceGVK.GroupKind(), definitionGVK.GroupKind(), roleBindingGVK.GroupKind(), clusterRoleBindingGVK.GroupKind(),
}

var (
	definitionGVK         = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	leaseGVK              = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	roleBindingGVK        = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	clusterRoleBindingGVK = rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding")
)

// load reads what is asked for, unless that was read before. A snapshot that was recorded has nothing more to read. The error is that of
// the context.
func (w *Snapshot) load(ctx context.Context, q query) error {
	if w.source == nil {
		return nil
	}
	return w.source.load(ctx, q)
}

func (r *reading) load(ctx context.Context, q query) error {
	res, found := r.served[q.gvk.GroupKind()]
	if !found {
		return nil
	}
	switch {
	case !res.namespaced:
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
	q, wanted := r.narrowed(q)
	if !wanted || r.wasAsked(q) {
		return nil
	}
	err := r.read(ctx, q, res)
	if ctx.Err() != nil { // what was not read then, is not what the user may not read
		return fmt.Errorf("list %s: %w", plural(q.gvk.Kind), errors.Join(ctx.Err(), err))
	}
	instead := r.instead(q, err)
	if len(instead) == 0 {
		r.say(q, err)
	}
	for _, namespace := range instead {
		q.namespace = namespace
		if err := r.load(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// narrowed is a query for what is in scope of what q asks for; false if no more of that is read than was.
func (r *reading) narrowed(q query) (query, bool) {
	gk := q.gvk.GroupKind()
	if gk == nodeGVK.GroupKind() && len(r.snapshot.Objects(nodeCheckGVK, "")) == 0 {
		r.say(q, errNoNodeCheck)
		return q, false
	}
	if r.held(gk, q.name != "" || q.labels != "") {
		return q, false
	}
	if !r.selects(gk) {
		q.name, q.labels = "", r.selection(gk).String()
	}
	return q, true
}

// held reports whether other objects of a kind are not listed than those that were read, unless they are selected.
func (r *reading) held(gk schema.GroupKind, selected bool) bool {
	switch gk {
	case machineGVK.GroupKind():
		return r.calm || r.one && !selected
	case metal3MachineGVK.GroupKind():
		return r.one && !selected
	case hostGVK.GroupKind():
		return r.one && !selected && !r.siblings.Load()
	}
	return false
}

// selects reports whether of a kind no more is read than the objects that are asked for by name or by labels.
func (r *reading) selects(gk schema.GroupKind) bool {
	switch gk {
	case machineGVK.GroupKind(), metal3MachineGVK.GroupKind(), hostGVK.GroupKind():
		return r.one
	}
	return slices.Contains(byName, gk)
}

// selection are the labels by which a kind is read, whatever is asked for.
func (r *reading) selection(gk schema.GroupKind) labels.Set {
	switch {
	case gk == machineGVK.GroupKind():
		return r.labelled()
	case gk == recordGVK.GroupKind() && r.OpenRecords:
		return labels.Set{mendv1.RecordOpenLabel: "true"}
	case gk == recordGVK.GroupKind() && r.target != "":
		return labels.Set{mendv1.RecordTargetLabel: r.target}
	case gk == recordGVK.GroupKind() && r.Cluster != "":
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

// keeps reports whether an object that was read is in scope.
func (r *reading) keeps(obj client.Object) bool {
	here := func(cluster string) bool { return len(r.labelled()) == 0 || cluster == r.Cluster }
	switch o := obj.(type) {
	case *clusterv1.Cluster:
		return here(o.Name)
	case *clusterv1.MachineHealthCheck:
		return here(o.Spec.ClusterName)
	case *mendv1.RemediationRecord:
		return r.OpenRecords || r.Cluster == "" || o.Spec.Target.ClusterName == r.Cluster
	case *clusterv1.Machine: // without their nodes those of calm clusters would look as if these were gone
		return !r.calm || !r.snapshot.Counted(client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.ClusterName})
	}
	return true
}

// instead are the namespaces that are read of what may not be read everywhere.
func (r *reading) instead(q query, err error) []string {
	if !apierrors.IsForbidden(err) || q.namespace != "" {
		return nil
	}
	if q.gvk == leaseGVK {
		return []string{managerlease.UsualNamespace}
	}
	_, templated := r.served[schema.GroupKind{Group: q.gvk.Group, Kind: q.gvk.Kind + remediationrequest.TemplateSuffix}]
	if !templated && !strings.HasSuffix(q.gvk.Kind, remediationrequest.TemplateSuffix) {
		return nil
	}
	namespaces := []string{r.Namespace}
	for _, check := range All[nhcv1.NodeHealthCheck](r.snapshot, "") {
		for _, ref := range TemplatesOf(&check.Spec) {
			namespaces = append(namespaces, ref.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.DeleteFunc(slices.Compact(namespaces), func(namespace string) bool { return namespace == "" })
}

// wasAsked reports whether what q asks for was read, by itself or with more. What may not be read everywhere may be read in a namespace.
func (r *reading) wasAsked(q query) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.called, q.gvk.Version = "", ""
	if _, asked := r.asked[q]; asked {
		return true
	}
	if r.one && q.gvk.GroupKind() == machineGVK.GroupKind() && q.labels != "" {
		r.siblings.Store(true)
	}
	for _, namespace := range []string{q.namespace, ""} {
		for _, bare := range []bool{q.bare, false} {
			for _, more := range []query{{name: q.name, labels: q.labels}, {}} {
				more.gvk, more.namespace, more.bare = q.gvk, namespace, bare
				if err, asked := r.asked[more]; asked && err == nil {
					return true
				}
			}
		}
	}
	return false
}

// read reads what a query asks for. A version that is not served of a kind of others is read as metadata of one that is.
func (r *reading) read(ctx context.Context, q query, res served) error {
	asked := q
	asked.called, asked.gvk.Version = "", ""
	var err error
	if !slices.Contains(res.versions, q.gvk.Version) {
		known := r.snapshot.scheme.Recognizes(q.gvk)
		if known && !q.bare && q.gvk.Group == clusterv1.GroupVersion.Group {
			err = fmt.Errorf("they are served in %s, and version %s is needed", strings.Join(res.versions, ", "), q.gvk.Version)
		}
		q.bare = q.bare || known
		q.gvk.Version = res.versions[0]
	}
	if err == nil {
		err = r.list(ctx, q)
	}
	if ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	r.asked[asked] = err
	r.mu.Unlock()
	if err != nil {
		r.snapshot.Lacks(q.what(res), why(err))
	}
	return err
}

// say notes of a namespace of a kind whether it was read. What was read of it once stays read.
func (r *reading) say(q query, err error) {
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

// list reads what a query asks for into the snapshot. An object that is there already may have been changed there, and stays.
func (r *reading) list(ctx context.Context, q query) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := r.emptyList(q)
	if err != nil {
		return err
	}
	options := []client.ListOption{client.InNamespace(q.namespace), fromMemory()}
	if q.name != "" {
		options = append(options, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, q.name)})
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
	return meta.EachListItem(list, func(item k8sruntime.Object) error {
		obj, ok := item.(client.Object)
		if !ok || !r.keeps(obj) {
			return nil
		}
		r.snapshot.mu.Lock()
		defer r.snapshot.mu.Unlock()
		k := r.snapshot.kinds[q.gvk.GroupKind()]
		if there := k.objects[client.ObjectKeyFromObject(obj)]; there != nil && (q.bare || !isMetadata(there)) {
			return nil
		}
		return r.snapshot.keep(k, q.gvk, obj)
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
