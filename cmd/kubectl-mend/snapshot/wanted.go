package snapshot

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/presence"
	"github.com/kubemend/kubemend/controllers/request"
)

// The groups of OpenShift that NodeHealthChecks look at, and where it runs etcd.
const (
	openshiftConfig  = "config.openshift.io"
	openshiftMachine = "machine.openshift.io"
	etcdNamespace    = "openshift-etcd"
)

// definitions are the CustomResourceDefinitions whose labels decide who serves a kind.
var definitions = []string{
	"metal3remediations." + infrav1.GroupVersion.Group, "metal3machines." + infrav1.GroupVersion.Group, "baremetalhosts.metal3.io",
	"hostremediations." + mendv1.GroupVersion.Group, "nodehealthchecks." + nhcv1.GroupVersion.Group,
	"clusterversions." + openshiftConfig, "machinehealthchecks." + openshiftMachine, "machines." + openshiftMachine,
}

var (
	nodeGVK    = corev1.SchemeGroupVersion.WithKind("Node")
	leaseGVK   = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	eventGVK   = eventsv1.SchemeGroupVersion.WithKind("Event")
	machineGVK = clusterv1.GroupVersion.WithKind("Machine")
)

// clusters are the clusters themselves.
func (r *reading) clusters() []task {
	return []task{{gvk: clusterv1.GroupVersion.WithKind("Cluster"), namespace: r.Namespace, keep: r.inScope}}
}

// first is what else can be read without knowing anything.
func (r *reading) first() []task {
	ns := r.Namespace
	ofCluster := []client.ListOption{}
	if r.Cluster != "" {
		ofCluster = append(ofCluster, client.MatchingLabels{clusterv1.ClusterNameLabel: r.Cluster})
	}
	tasks := []task{
		{gvk: clusterv1.GroupVersion.WithKind("MachineHealthCheck"), namespace: ns, keep: r.inScope},
		{gvk: machineGVK, namespace: ns, options: ofCluster},
		{gvk: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), namespace: ns},
		{gvk: infrav1.GroupVersion.WithKind("Metal3Machine"), namespace: ns, bare: true, options: ofCluster},
		{gvk: infrav1.GroupVersion.WithKind("Metal3Remediation"), namespace: ns, anyVersion: true},
		{gvk: mendv1.GroupVersion.WithKind("HostRemediation"), namespace: ns},
		{gvk: nhcv1.GroupVersion.WithKind("NodeHealthCheck")},
		{gvk: leaseGVK, namespace: r.LeaseNamespace},
		leaseOf(presence.LeaseName, presence.UsualNamespace), leaseOf(presence.LeaderLeaseName, presence.UsualNamespace),
		leaseOf(presence.CoreLeaseName, presence.CoreNamespace),
		{gvk: schema.GroupVersionKind{Group: openshiftConfig, Version: "v1", Kind: "ClusterVersion"}},
		{gvk: schema.GroupVersionKind{Group: openshiftMachine, Version: "v1beta1", Kind: "MachineHealthCheck"}},
		{gvk: schema.GroupVersionKind{Group: openshiftMachine, Version: "v1beta1", Kind: "Machine"}, bare: true},
	}
	crd := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	if r.Events {
		tasks = append(tasks, task{gvk: eventGVK, namespace: ns})
		if ns != "" && ns != metav1.NamespaceDefault { // those about what has no namespace
			tasks = append(tasks, task{gvk: eventGVK, namespace: metav1.NamespaceDefault})
		}
	}
	return append(tasks, task{gvk: crd, bare: true, keep: func(o client.Object) bool { return slices.Contains(definitions, o.GetName()) }})
}

// leaseOf reads a lease of some manager, wherever it is, or at least where it usually is.
func leaseOf(name, usually string) task {
	return task{
		gvk: leaseGVK, called: "Lease " + name, instead: []string{usually}, options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
	}
}

// inScope reports whether an object belongs to the cluster that is asked for.
func (r *reading) inScope(obj client.Object) bool {
	switch o := obj.(type) {
	case *clusterv1.Cluster:
		return r.Cluster == "" || o.Name == r.Cluster
	case *clusterv1.MachineHealthCheck:
		return r.Cluster == "" || o.Spec.ClusterName == r.Cluster
	}
	return true
}

// second is what the checks name.
func (r *reading) second(ctx context.Context) []task {
	named := map[schema.GroupKind]*task{}
	name := func(template schema.GroupVersionKind, namespace string, everywhere bool) {
		for _, gvk := range []schema.GroupVersionKind{template, request.KindOf(template)} {
			if gvk.Kind == "" || gvk.Group == "" {
				continue
			}
			t := named[gvk.GroupKind()]
			if t == nil {
				t = &task{gvk: gvk, namespace: namespace, anyVersion: true}
				named[gvk.GroupKind()] = t
			}
			if everywhere {
				t.namespace = ""
				t.instead = append(t.instead, namespace)
			}
		}
	}
	r.world.mu.RLock()
	for _, rec := range r.all(clusterv1.GroupVersion.WithKind("MachineHealthCheck")) {
		if ref := rec.is.(*clusterv1.MachineHealthCheck).Spec.Remediation.TemplateRef; ref.IsDefined() {
			name(request.TemplateKind(ref), r.Namespace, false)
		}
	}
	checks := r.all(nhcv1.GroupVersion.WithKind("NodeHealthCheck"))
	for _, rec := range checks {
		for _, ref := range templatesOf(rec.is.(*nhcv1.NodeHealthCheck)) {
			name(ref.GroupVersionKind(), ref.Namespace, true)
		}
	}
	r.world.mu.RUnlock()
	for _, ref := range r.Templates {
		name(ref.GroupVersionKind(), ref.Namespace, ref.Namespace != r.Namespace)
	}
	r.markedKinds(ctx, func(gvk schema.GroupVersionKind) {
		name(gvk.GroupVersion().WithKind(gvk.Kind+request.TemplateSuffix), r.Namespace, false)
	})
	tasks := make([]task, 0, len(named))
	for _, gk := range slices.SortedFunc(maps.Keys(named), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		t := *named[gk]
		slices.Sort(t.instead)
		t.instead = slices.DeleteFunc(slices.Compact(t.instead), func(namespace string) bool { return namespace == "" })
		if !r.done(gk, t.namespace) {
			tasks = append(tasks, t)
		}
	}
	return append(tasks, r.forNodeChecks(len(checks) > 0 || r.NodeChecks)...)
}

func (r *reading) all(gvk schema.GroupVersionKind) shelf {
	if k := r.world.kinds[gvk.GroupKind()]; k != nil {
		return k.all
	}
	return nil
}

// done reports whether a kind was tried to be read in a namespace already.
func (r *reading) done(gk schema.GroupKind, namespace string) bool {
	r.world.mu.RLock()
	defer r.world.mu.RUnlock()
	k := r.world.kinds[gk]
	if k == nil {
		return false
	}
	_, said := k.scopes[namespace]
	return said
}

// templatesOf are the templates that a check names, and the kinds of requests that its status lists, as if there were a template of each.
func templatesOf(check *nhcv1.NodeHealthCheck) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	if ref := check.Spec.RemediationTemplate; ref != nil {
		refs = append(refs, *ref)
	}
	for i := range check.Spec.EscalatingRemediations {
		refs = append(refs, check.Spec.EscalatingRemediations[i].RemediationTemplate)
	}
	for i := range check.Status.UnhealthyNodes {
		for _, was := range check.Status.UnhealthyNodes[i].Remediations {
			ref := was.Resource
			ref.Kind += request.TemplateSuffix
			refs = append(refs, ref)
		}
	}
	return refs
}

// forNodeChecks is what NodeHealthChecks need besides, if there are any.
func (r *reading) forNodeChecks(there bool) []task {
	if !there {
		r.say(task{gvk: nodeGVK}, "", errors.New("the nodes of the management cluster were not read, since there is no NodeHealthCheck"))
		return nil
	}
	tasks := []task{{gvk: nodeGVK}}
	if _, openshift := r.served[schema.GroupKind{Group: openshiftConfig, Kind: "ClusterVersion"}]; openshift {
		tasks = append(tasks, task{gvk: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), namespace: etcdNamespace},
			task{gvk: corev1.SchemeGroupVersion.WithKind("Pod"), namespace: etcdNamespace})
	}
	return tasks
}

// markedKinds finds the kinds of which there are requests that a check has made, whether one names them still or not.
func (r *reading) markedKinds(ctx context.Context, found func(schema.GroupVersionKind)) {
	var mu sync.Mutex
	var marked []schema.GroupVersionKind
	var tasks []func()
	for gk, is := range r.served {
		_, templated := r.served[schema.GroupKind{Group: gk.Group, Kind: gk.Kind + request.TemplateSuffix}]
		if custom := (&kind{GroupKind: gk}).custom(); !templated || !custom || !is.namespaced {
			continue
		}
		gvk := gk.WithVersion(is.versions[0])
		for _, mark := range append([]client.ListOption{client.HasLabels{mendv1.MadeByUIDLabel}}, request.NodeChecksMarks()...) {
			tasks = append(tasks, func() {
				if r.has(ctx, gvk, mark) {
					mu.Lock()
					defer mu.Unlock()
					marked = append(marked, gvk)
				}
			})
		}
	}
	inParallel(tasks)
	for _, gvk := range marked {
		found(gvk)
	}
}

// has reports whether there is an object of a kind with a mark. What may not be looked at has none: there, no request of ours can be made.
func (r *reading) has(ctx context.Context, gvk schema.GroupVersionKind, mark client.ListOption) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := r.client.List(ctx, list, client.InNamespace(r.Namespace), client.Limit(1), mark)
	if err != nil && !apierrors.IsForbidden(err) {
		r.world.Lacks(plural(gvk.Kind)+" that a check has made", why(err))
	}
	return err == nil && len(list.Items) > 0
}
