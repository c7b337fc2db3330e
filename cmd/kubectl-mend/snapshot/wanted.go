package snapshot

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
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
	hostGVK          = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK = infrav1.GroupVersion.WithKind("Metal3Machine")
	namespaceGVK     = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK          = corev1.SchemeGroupVersion.WithKind("Node")
	leaseGVK         = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	eventGVK         = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK       = clusterv1.GroupVersion.WithKind("Cluster")
	machineGVK       = clusterv1.GroupVersion.WithKind("Machine")
	machineCheckGVK  = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	nodeCheckGVK     = nhcv1.GroupVersion.WithKind("NodeHealthCheck")
)

// clusters are the clusters themselves, and the Namespaces whose label claims checks.
func (r *reading) clusters() []task {
	return []task{
		{gvk: clusterGVK, namespace: r.Namespace, keep: ofCluster(r.Cluster)},
		{gvk: namespaceGVK, bare: true, options: []client.ListOption{client.HasLabels{mendv1.ClaimLabel}}, keep: claimLabelAlone},
	}
}

// claimLabelAlone keeps a Namespace, and of it no more than the label that claims checks.
func claimLabelAlone(o client.Object) bool {
	o.SetAnnotations(nil)
	o.SetLabels(map[string]string{mendv1.ClaimLabel: o.GetLabels()[mendv1.ClaimLabel]})
	return true
}

// first is what else can be read without knowing anything.
func (r *reading) first() []task {
	ns := r.Namespace
	tasks := []task{
		{gvk: machineCheckGVK, namespace: ns, keep: ofCluster(r.Cluster)},
		{gvk: infrav1.GroupVersion.WithKind("Metal3Remediation"), namespace: ns, anyVersion: true},
		{gvk: mendv1.GroupVersion.WithKind("HostRemediation"), namespace: ns},
		{gvk: nodeCheckGVK},
		{gvk: leaseGVK, namespace: r.LeaseNamespace},
		leaseOf(managerlease.LeaseName, managerlease.UsualNamespace), leaseOf(managerlease.LeaderLeaseName, managerlease.UsualNamespace),
		leaseOf(managerlease.CoreLeaseName, managerlease.CoreNamespace),
		bindings("ClusterRoleBinding"), bindings("RoleBinding"),
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

// machines are those of the clusters in scope.
func (r *reading) machines() []task {
	return []task{{gvk: machineGVK, namespace: r.Namespace, options: r.labelled()}}
}

// hosts are those that machines may run on, and what stands between them and the machines.
func (r *reading) hosts() []task {
	return []task{{gvk: hostGVK, namespace: r.Namespace}, {gvk: metal3MachineGVK, namespace: r.Namespace, bare: !r.Owners, options: r.labelled()}}
}

// labelled selects what belongs to the cluster in scope.
func (r *reading) labelled() []client.ListOption {
	if r.Cluster == "" {
		return nil
	}
	return []client.ListOption{client.MatchingLabels{clusterv1.ClusterNameLabel: r.Cluster}}
}

// leaseOf reads a lease of some manager, wherever it is, or at least where it usually is.
func leaseOf(name, usually string) task {
	return task{
		gvk: leaseGVK, called: "Lease " + name, instead: []string{usually},
		options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
	}
}

// bindings reads who has the rights of a manager, by which its lease is believed.
func bindings(kind string) task {
	return task{
		gvk: rbacv1.SchemeGroupVersion.WithKind(kind), called: kind + "s of " + managerlease.OfKubemend.Roles[0],
		options: []client.ListOption{managerlease.OfKubemend.Labelled},
		keep: func(o client.Object) bool {
			switch b := o.(type) {
			case *rbacv1.ClusterRoleBinding:
				return managerlease.OfKubemend.Binds(b.RoleRef)
			case *rbacv1.RoleBinding:
				return managerlease.OfKubemend.Binds(b.RoleRef)
			}
			return false
		},
	}
}

// vouching is what shows that the lease of a manager outside of the cluster is its own: who may write in its namespace. See managerlease.Bindings.
func (r *reading) vouching() []task {
	outside := slices.ContainsFunc(All[coordinationv1.Lease](r.snapshot, managerlease.UsualNamespace), managerlease.FromOutside)
	if !outside {
		return nil
	}
	return []task{{gvk: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), namespace: managerlease.UsualNamespace}}
}

// second is what the checks name.
func (r *reading) second(ctx context.Context) []task {
	named := naming{}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		named.addOf(check, r.Namespace)
	}
	checks := All[nhcv1.NodeHealthCheck](r.snapshot, "")
	for _, check := range checks {
		for _, ref := range templatesOf(check) {
			named.add(ref.GroupVersionKind(), ref.Namespace, true)
		}
	}
	for _, ref := range r.Templates {
		named.add(ref.GroupVersionKind(), ref.Namespace, ref.Namespace != r.Namespace)
	}
	r.markedKinds(ctx, func(gvk schema.GroupVersionKind) {
		named.add(gvk.GroupVersion().WithKind(gvk.Kind+remediationrequest.TemplateSuffix), r.Namespace, false)
	})
	return slices.Concat(r.tasks(named), r.forNodeChecks(len(checks) > 0 || r.NodeChecks), r.spares())
}

// spares are the Metal3Machines whole, which say what hosts machines want: where a check waits for spare hosts, and the
// machines were read. What is known of one machine alone the manager says in its condition.
func (r *reading) spares() []task {
	if r.Spares {
		return []task{{gvk: metal3MachineGVK, namespace: r.Namespace}}
	}
	var tasks []task
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		wait, _ := machinehealthcheck.SpareWaitOf(check)
		there := slices.ContainsFunc(tasks, func(t task) bool { return t.namespace == check.Namespace })
		if wait != nil && !there && r.Machine == "" && !check.Spec.Remediation.TemplateRef.IsDefined() {
			tasks = append(tasks, task{gvk: metal3MachineGVK, namespace: check.Namespace})
		}
	}
	return tasks
}

// naming are the kinds that checks name, and where they are to be read.
type naming map[schema.GroupKind]*task

// add adds the kind of a template, and that of the requests made from it: in one namespace, or everywhere. Where not everything
// may be read it is the namespaces that were named.
func (n naming) add(template schema.GroupVersionKind, namespace string, everywhere bool) {
	if remediationrequest.Refusal(template) != nil {
		return // the controllers read no objects of such a kind
	}
	for _, gvk := range []schema.GroupVersionKind{template, remediationrequest.KindOf(template)} {
		t := n[gvk.GroupKind()]
		if t == nil {
			t = &task{gvk: gvk, namespace: namespace, anyVersion: true}
			n[gvk.GroupKind()] = t
		}
		if everywhere || t.namespace != namespace {
			t.namespace = ""
		}
		t.instead = append(t.instead, namespace)
	}
}

// addOf adds what a MachineHealthCheck names.
func (n naming) addOf(check *clusterv1.MachineHealthCheck, namespace string) {
	if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
		n.add(remediationrequest.TemplateKind(ref), namespace, false)
	}
}

// tasks reads what is named, and was not tried to be read before.
func (r *reading) tasks(named naming) []task {
	tasks := make([]task, 0, len(named))
	for _, gk := range slices.SortedFunc(maps.Keys(named), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		t := *named[gk]
		slices.Sort(t.instead)
		t.instead = slices.DeleteFunc(slices.Compact(t.instead), func(namespace string) bool { return namespace == "" || r.done(gk, namespace) })
		if !r.done(gk, t.namespace) {
			tasks = append(tasks, t)
		}
	}
	return tasks
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

// templatesOf are the templates that a check names, and the kinds of requests that its status lists, as if there were a template of each.
func templatesOf(check *nhcv1.NodeHealthCheck) []corev1.ObjectReference {
	refs := TemplatesOf(&check.Spec)
	for i := range check.Status.UnhealthyNodes {
		for _, was := range check.Status.UnhealthyNodes[i].Remediations {
			ref := was.Resource
			ref.Kind += remediationrequest.TemplateSuffix
			refs = append(refs, ref)
		}
	}
	return refs
}

// TemplatesOf are the templates that a NodeHealthCheck names.
func TemplatesOf(spec *nhcv1.NodeHealthCheckSpec) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	if spec.RemediationTemplate != nil {
		refs = append(refs, *spec.RemediationTemplate)
	}
	for i := range spec.EscalatingRemediations {
		refs = append(refs, spec.EscalatingRemediations[i].RemediationTemplate)
	}
	return refs
}

// forNodeChecks is what NodeHealthChecks need besides, if there are any.
func (r *reading) forNodeChecks(there bool) []task {
	if !there {
		r.say(task{gvk: nodeGVK}, "", errNoNodeCheck)
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
		_, templated := r.served[schema.GroupKind{Group: gk.Group, Kind: gk.Kind + remediationrequest.TemplateSuffix}]
		if !templated || !custom(gk.Group) || !is.namespaced {
			continue
		}
		gvk := gk.WithVersion(is.versions[0])
		for _, mark := range append([]client.ListOption{client.HasLabels{mendv1.MadeByUIDLabel}}, remediationrequest.NodeChecksMarks()...) {
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

// has reports whether there is an object of a kind with a mark. That it may not be read is missing only of remediations:
// infrastructure providers have dozens of other kinds that users may rarely list, and of which no check makes any.
func (r *reading) has(ctx context.Context, gvk schema.GroupVersionKind, mark client.ListOption) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := r.client.List(ctx, list, client.InNamespace(r.Namespace), client.Limit(1), mark)
	if err != nil && (!apierrors.IsForbidden(err) || strings.HasSuffix(gvk.Kind, "Remediation")) && !r.done(gvk.GroupKind(), r.Namespace) {
		r.snapshot.Lacks(plural(gvk.Kind)+" that a check has made", why(err))
	}
	return err == nil && len(list.Items) > 0
}
