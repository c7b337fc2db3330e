package snapshot

import (
	"context"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var (
	hostGVK               = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK      = infrav1.GroupVersion.WithKind("Metal3Machine")
	namespaceGVK          = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK               = corev1.SchemeGroupVersion.WithKind("Node")
	podGVK                = corev1.SchemeGroupVersion.WithKind("Pod")
	budgetGVK             = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
	eventGVK              = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK            = clusterv1.GroupVersion.WithKind("Cluster")
	recordGVK             = mendv1.GroupVersion.WithKind("RemediationRecord")
	machineGVK            = clusterv1.GroupVersion.WithKind("Machine")
	machineCheckGVK       = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineSetGVK         = clusterv1.GroupVersion.WithKind("MachineSet")
	machineDeploymentGVK  = clusterv1.GroupVersion.WithKind("MachineDeployment")
	controlPlaneGVK       = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")
	nodeCheckGVK          = nhcv1.GroupVersion.WithKind("NodeHealthCheck")
	definitionGVK         = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	leaseGVK              = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	roleBindingGVK        = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	clusterRoleBindingGVK = rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding")
)

// scoped are the kinds that are read in the namespace of a scope; others are read wherever they are.
var scoped = []schema.GroupVersionKind{
	clusterGVK, machineCheckGVK, machineGVK, machineSetGVK, machineDeploymentGVK, controlPlaneGVK,
	metal3MachineGVK, hostGVK, recordGVK, eventGVK,
}

// selectedKinds are those of which only the objects are read that are asked for by name or by labels: there are many others.
var selectedKinds = []schema.GroupKind{
	leaseGVK.GroupKind(), namespaceGVK.GroupKind(), definitionGVK.GroupKind(), roleBindingGVK.GroupKind(), clusterRoleBindingGVK.GroupKind(),
}

// machineKinds are those of which there are as many objects as Machines.
var machineKinds = []schema.GroupKind{machineGVK.GroupKind(), metal3MachineGVK.GroupKind(), hostGVK.GroupKind()}

// managerBindings selects the bindings of managers.
var managerBindings = labels.Set(managerlease.BindingLabels).String()

// readScope reads the managers, and the clusters and checks in scope with their remediations, which tell whose machines and nodes have to
// be read; and these.
func (r *reading) readScope(ctx context.Context) {
	r.all(ctx,
		question{gvk: nodeCheckGVK}, question{gvk: leaseGVK, name: managerlease.LeaseName},
		question{gvk: namespaceGVK, labels: mendv1.ClaimLabel},
		question{gvk: roleBindingGVK, labels: managerBindings}, question{gvk: clusterRoleBindingGVK, labels: managerBindings},
	)
	if len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 { // it judges nodes by the Machines of all clusters
		r.AllMachines = true
	}
	r.all(ctx, question{gvk: clusterGVK}, question{gvk: machineCheckGVK})
	kinds := r.requestKinds()
	requests := make([]question, 0, len(kinds))
	for _, gvk := range kinds {
		requests = append(requests, question{gvk: gvk, namespace: r.Namespace})
	}
	r.all(ctx, requests...)
	wanted := r.reads
	switch {
	case r.Machine != "" || r.Node != "":
		wanted = r.aroundMachine(ctx)
	case r.Restless && !r.AllMachines:
		wanted = r.restless(ctx)
	}
	reads := []func(){func() { r.all(ctx, r.rest()...) }}
	if r.Nodes {
		reads = append(reads, func() { r.workloads(ctx, wanted) })
	}
	inParallel(reads, func(read func()) { read() })
}

// all reads several lists at the same time. The snapshot remembers why one could not be read.
func (r *reading) all(ctx context.Context, questions ...question) {
	inParallel(questions, func(q question) { _ = r.load(ctx, q) })
}

// requestKinds are the kinds of the requests that MachineHealthChecks make, and of those made from former templates: of every kind of
// remediation that has a template.
func (r *reading) requestKinds() []schema.GroupVersionKind {
	kinds := map[schema.GroupKind]bool{
		infrav1.GroupVersion.WithKind("Metal3Remediation").GroupKind(): true, mendv1.GroupVersion.WithKind("HostRemediation").GroupKind(): true,
	}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		template := remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)
		if check.Spec.Remediation.TemplateRef.IsDefined() && remediationrequest.Refusal(template) == nil {
			kinds[remediationrequest.KindOf(template).GroupKind()] = true
		}
	}
	var found []schema.GroupVersionKind
	for _, k := range r.snapshot.installed() {
		if kinds[k.GroupKind] || strings.HasSuffix(k.Kind, "Remediation") && r.snapshot.templated(k) {
			found = append(found, k.WithVersion(k.versions[0]))
		}
	}
	return found
}

// rest is what is read without being asked for: the machines in scope, what records tell of them, and, for a file, all that a page may ask
// for beside what the controllers do.
func (r *reading) rest() []question {
	questions := []question{{gvk: machineGVK}}
	if r.Records {
		questions = append(questions, question{gvk: recordGVK})
	}
	if !r.Everything {
		return questions
	}
	for _, gvk := range scoped {
		questions = append(questions, question{gvk: gvk})
	}
	if r.Namespace != "" {
		questions = append(questions,
			question{gvk: eventGVK, namespace: metav1.NamespaceDefault}, // where those are about what has no namespace
			question{gvk: namespaceGVK, name: r.Namespace})              // it may be being deleted
	}
	if r.kind(nodehealthcheck.ClusterVersions.GroupKind()) != nil && r.AllMachines { // what a NodeHealthCheck looks at if it is not disabled
		questions = append(questions, question{gvk: nodehealthcheck.OpenShiftMachines},
			question{gvk: budgetGVK, namespace: nodehealthcheck.EtcdNamespace}, question{gvk: podGVK, namespace: nodehealthcheck.EtcdNamespace})
	}
	// A simulation without a manager asks whose the kind is.
	return append(questions, question{gvk: definitionGVK, name: crdgate.NodeCheckCRD})
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
