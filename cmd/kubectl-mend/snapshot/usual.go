package snapshot

import (
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var (
	hostGVK              = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK     = infrav1.GroupVersion.WithKind("Metal3Machine")
	metal3RemediationGVK = infrav1.GroupVersion.WithKind("Metal3Remediation")
	hostRemediationGVK   = mendv1.GroupVersion.WithKind("HostRemediation")
	namespaceGVK         = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK              = corev1.SchemeGroupVersion.WithKind("Node")
	podGVK               = corev1.SchemeGroupVersion.WithKind("Pod")
	budgetGVK            = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
	eventGVK             = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK           = clusterv1.GroupVersion.WithKind("Cluster")
	recordGVK            = mendv1.GroupVersion.WithKind("RemediationRecord")
	machineGVK           = clusterv1.GroupVersion.WithKind("Machine")
	machineCheckGVK      = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineSetGVK        = clusterv1.GroupVersion.WithKind("MachineSet")
	machineDeploymentGVK = clusterv1.GroupVersion.WithKind("MachineDeployment")
	controlPlaneGVK      = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")
	nodeCheckGVK         = nhcv1.GroupVersion.WithKind("NodeHealthCheck")
)

// scoped are the kinds that are read in the namespace of a scope; others are read wherever they are.
var scoped = []schema.GroupVersionKind{
	clusterGVK, machineCheckGVK, machineGVK, machineSetGVK, machineDeploymentGVK, controlPlaneGVK, metal3MachineGVK, hostGVK,
	recordGVK, eventGVK,
}

// managers are the managers and what claims checks for them, and the checks of nodes.
func (r *reading) managers() []query {
	queries := make([]query, 0, 5)
	queries = append(queries,
		query{gvk: nodeCheckGVK},
		query{gvk: namespaceGVK, bare: true, labels: mendv1.ClaimLabel},
		query{gvk: leaseGVK, name: managerlease.LeaseName, called: "Lease " + managerlease.LeaseName},
	)
	for _, gvk := range []schema.GroupVersionKind{roleBindingGVK, clusterRoleBindingGVK} {
		queries = append(queries, query{
			gvk: gvk, labels: labels.Set(managerlease.BindingLabels).String(), called: gvk.Kind + "s of " + managerlease.ClusterRole,
		})
	}
	return queries
}

// remediations are the requests that MachineHealthChecks make, and those of former templates: of every kind of remediation that has a
// template.
func (r *reading) remediations() []query {
	queries := []query{{gvk: metal3RemediationGVK, namespace: r.Namespace}, {gvk: hostRemediationGVK, namespace: r.Namespace}}
	add := func(gvk schema.GroupVersionKind) {
		if !slices.ContainsFunc(queries, func(q query) bool { return q.gvk.GroupKind() == gvk.GroupKind() }) {
			queries = append(queries, query{gvk: gvk, namespace: r.Namespace})
		}
	}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		template := remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)
		if check.Spec.Remediation.TemplateRef.IsDefined() && remediationrequest.Refusal(template) == nil {
			add(remediationrequest.KindOf(template))
		}
	}
	for gk, res := range r.served {
		_, templated := r.served[schema.GroupKind{Group: gk.Group, Kind: gk.Kind + remediationrequest.TemplateSuffix}]
		if templated && strings.HasSuffix(gk.Kind, "Remediation") && custom(gk.Group) && res.namespaced {
			add(gk.WithVersion(res.versions[0]))
		}
	}
	return queries
}

// rest is what is read without being asked for: the machines in scope, what records tell of them, and, for a file, all that a page may ask
// for beside what the controllers do.
func (r *reading) rest() []query {
	queries := []query{{gvk: machineGVK}}
	if r.Records {
		queries = append(queries, query{gvk: recordGVK})
	}
	if !r.Everything {
		return queries
	}
	for _, gvk := range scoped {
		queries = append(queries, query{gvk: gvk})
	}
	if r.Namespace != "" {
		queries = append(queries,
			query{gvk: eventGVK, namespace: metav1.NamespaceDefault}, // where those are about what has no namespace
			query{gvk: namespaceGVK, bare: true, name: r.Namespace})  // it may be being deleted
	}
	_, there := r.served[openshift.ClusterVersions.GroupKind()]
	if there && len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 { // what a NodeHealthCheck looks at there if it is not disabled
		queries = append(queries, query{gvk: openshift.Machines, bare: true},
			query{gvk: budgetGVK, namespace: openshift.EtcdNamespace}, query{gvk: podGVK, namespace: openshift.EtcdNamespace})
	}
	for _, definition := range []string{
		"metal3remediations." + infrav1.GroupVersion.Group, "metal3machines." + infrav1.GroupVersion.Group, "baremetalhosts.metal3.io",
		"hostremediations." + mendv1.GroupVersion.Group, "nodehealthchecks." + nhcv1.GroupVersion.Group,
	} {
		queries = append(queries, query{gvk: definitionGVK, bare: true, name: definition})
	}
	return queries
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
