package snapshot

import (
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
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
	hostGVK              = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK     = infrav1.GroupVersion.WithKind("Metal3Machine")
	namespaceGVK         = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK              = corev1.SchemeGroupVersion.WithKind("Node")
	leaseGVK             = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	podGVK               = corev1.SchemeGroupVersion.WithKind("Pod")
	budgetGVK            = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
	eventGVK             = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK           = clusterv1.GroupVersion.WithKind("Cluster")
	recordGVK            = mendv1.GroupVersion.WithKind("RemediationRecord")
	machineGVK           = clusterv1.GroupVersion.WithKind("Machine")
	machineCheckGVK      = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineSetGVK        = clusterv1.GroupVersion.WithKind("MachineSet")
	machineDeploymentGVK = clusterv1.GroupVersion.WithKind("MachineDeployment")
	drainRuleGVK         = clusterv1.GroupVersion.WithKind("MachineDrainRule")
	nodeCheckGVK         = nhcv1.GroupVersion.WithKind("NodeHealthCheck")
)

// first is what can be read without knowing anything: the clusters, their checks, the usual requests, and who manages them.
func (r *reading) first() []query {
	ns := r.Namespace
	crd := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	queries := []query{
		{gvk: clusterGVK, namespace: ns, keep: ofCluster(r.Cluster)},
		{gvk: namespaceGVK, bare: true, options: []client.ListOption{client.HasLabels{mendv1.ClaimLabel}}},
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
		{gvk: crd, bare: true, keep: func(o client.Object) bool { return slices.Contains(definitions, o.GetName()) }},
	}
	if r.Events {
		queries = append(queries, query{gvk: eventGVK, namespace: ns})
		if ns != "" && ns != metav1.NamespaceDefault { // those about what has no namespace
			queries = append(queries, query{gvk: eventGVK, namespace: metav1.NamespaceDefault})
		}
	}
	return queries
}

// leaseOf reads a lease of some manager, wherever it is, or at least where it usually is.
func leaseOf(name, usually string) query {
	return query{
		gvk: leaseGVK, called: "Lease " + name, instead: []string{usually},
		options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
	}
}

// bindings reads who has the rights of a manager, by which its lease is believed.
func bindings(kind string) query {
	return query{
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
func (r *reading) vouching() []query {
	outside := slices.ContainsFunc(All[coordinationv1.Lease](r.snapshot, managerlease.UsualNamespace), managerlease.FromOutside)
	if !outside {
		return nil
	}
	return []query{{gvk: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), namespace: managerlease.UsualNamespace}}
}

// openRecords are the open RemediationRecords, if they are wanted: those of the namespace, and those of NodeHealthChecks, which are where their requests are.
// The API server looks through closed ones by a label.
func (r *reading) openRecords() []query {
	if !r.OpenRecords || r.Records {
		return nil
	}
	namespaces := []string{r.Namespace}
	for _, check := range All[nhcv1.NodeHealthCheck](r.snapshot, "") {
		for _, ref := range TemplatesOf(&check.Spec) {
			if r.Namespace != "" && ref.Namespace != "" && !slices.Contains(namespaces, ref.Namespace) {
				namespaces = append(namespaces, ref.Namespace)
			}
		}
	}
	queries := make([]query, 0, len(namespaces))
	open := []client.ListOption{client.MatchingLabels{mendv1.RecordOpenLabel: "true"}}
	for _, namespace := range namespaces {
		queries = append(queries, query{gvk: recordGVK, namespace: namespace, options: open})
	}
	return queries
}

// nodeChecks is what NodeHealthChecks look at, if there are any.
func (r *reading) nodeChecks() []query {
	if len(r.snapshot.Objects(nodeCheckGVK, "")) == 0 && !r.NodeChecks {
		r.say(nodeGVK.GroupKind(), "", errNoNodeCheck)
		return nil
	}
	queries := []query{{gvk: nodeGVK}}
	if _, openshift := r.served[schema.GroupKind{Group: openshiftConfig, Kind: "ClusterVersion"}]; openshift {
		queries = append(queries, query{gvk: budgetGVK, namespace: etcdNamespace},
			query{gvk: podGVK, namespace: etcdNamespace})
	}
	return queries
}

// elsewhere is what is out of scope and what NodeHealthChecks are judged by all the same: the Machines of the nodes of the management cluster, in all
// namespaces, with their Clusters, and the MachineHealthChecks that may select them.
func (r *reading) elsewhere() []query {
	clusters := r.clustersOfNodes()
	queries := make([]query, 0, 3*len(clusters))
	for _, cluster := range clusters {
		queries = append(queries,
			query{gvk: clusterGVK, namespace: cluster.Namespace, keep: ofCluster(cluster.Name)},
			query{gvk: machineCheckGVK, namespace: cluster.Namespace, keep: ofCluster(cluster.Name)},
			query{gvk: machineGVK, namespace: cluster.Namespace, options: labelled(cluster.Name)})
	}
	return queries
}

// clustersOfNodes are the Clusters that the nodes of the management cluster say they are of, but for those in scope.
func (r *reading) clustersOfNodes() []client.ObjectKey {
	var clusters []client.ObjectKey
	for _, node := range All[corev1.Node](r.snapshot, "") {
		key := client.ObjectKey{Namespace: node.Annotations[clusterv1.ClusterNamespaceAnnotation], Name: node.Annotations[clusterv1.ClusterNameAnnotation]}
		if key.Namespace != "" && key.Name != "" && !r.reads(key) && !slices.Contains(clusters, key) {
			clusters = append(clusters, key)
		}
	}
	return clusters
}

// reads reports whether a Cluster is in scope, and with it all that belongs to it.
func (s *Scope) reads(cluster client.ObjectKey) bool {
	return (s.Namespace == "" || s.Namespace == cluster.Namespace) && (s.Cluster == "" || s.Cluster == cluster.Name)
}

// ofCluster keeps what belongs to the Cluster of a name; everything if that is empty.
func ofCluster(name string) func(client.Object) bool {
	return func(obj client.Object) bool {
		switch o := obj.(type) {
		case *clusterv1.Cluster:
			return name == "" || o.Name == name
		case *clusterv1.MachineHealthCheck:
			return name == "" || o.Spec.ClusterName == name
		}
		return true
	}
}
