package capacity

import (
	"cmp"
	"context"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/suite"
)

var metal3Machine = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Metal3Machine"}

// facts are all that is true of a scene at a moment.
type facts struct {
	// leaving reports that the namespace, or the Cluster, is being deleted.
	leaving     string
	deployments []clusterv1.MachineDeployment
	sets        []clusterv1.MachineSet
	// pool are the workers, the oldest one first.
	pool        []clusterv1.Machine
	between     []unstructured.Unstructured // the Metal3Machines
	hosts       []bmov1alpha1.BareMetalHost
	checks      []clusterv1.MachineHealthCheck
	nodes       []corev1.Node
	pods        []corev1.Pod
	budgets     []policyv1.PodDisruptionBudget
	attachments []storagev1.VolumeAttachment
	cluster     *clusterv1.Cluster
}

// observe reads what is true now.
func (s *scene) observe(ctx context.Context) *facts {
	f := &facts{}
	read := func(from client.Client, list client.ObjectList, options ...client.ListOption) {
		Expect(from.List(ctx, list, options...)).To(Succeed())
	}
	inside := client.InNamespace(s.Namespace)
	var (
		namespaces  corev1.NamespaceList
		clusters    clusterv1.ClusterList
		deployments clusterv1.MachineDeploymentList
		sets        clusterv1.MachineSetList
		machines    clusterv1.MachineList
		hosts       bmov1alpha1.BareMetalHostList
		checks      clusterv1.MachineHealthCheckList
		nodes       corev1.NodeList
		pods        corev1.PodList
		budgets     policyv1.PodDisruptionBudgetList
		attachments storagev1.VolumeAttachmentList
		between     unstructured.UnstructuredList
	)
	between.SetGroupVersionKind(metal3Machine)
	read(here, &namespaces, client.MatchingFields{"metadata.name": s.Namespace})
	read(here, &clusters, inside)
	read(here, &deployments, inside)
	read(here, &sets, inside)
	read(here, &machines, s.workers()...)
	read(here, &between, inside)
	read(here, &hosts, inside)
	read(here, &checks, inside)
	read(s.There, &nodes)
	read(s.There, &pods)
	read(s.There, &budgets)
	read(s.There, &attachments)
	switch {
	case len(namespaces.Items) == 0 || namespaces.Items[0].DeletionTimestamp != nil:
		f.leaving = "NamespaceDeleted"
	case len(clusters.Items) == 0 || clusters.Items[0].DeletionTimestamp != nil:
		f.leaving = "ClusterDeleted"
	}
	if len(clusters.Items) > 0 {
		f.cluster = &clusters.Items[0]
	}
	f.deployments, f.sets, f.pool, f.between, f.hosts, f.checks = deployments.Items, sets.Items, machines.Items, between.Items, hosts.Items, checks.Items
	f.nodes, f.pods, f.budgets, f.attachments = nodes.Items, pods.Items, budgets.Items, attachments.Items
	f.inOrder()
	return f
}

// workers select the Machines of the scene that are no part of its control plane.
func (s *scene) workers() []client.ListOption {
	return []client.ListOption{client.InNamespace(s.Namespace), client.HasLabels{clusterv1.MachineDeploymentNameLabel}}
}

// inOrder sorts the workers, the oldest one first.
func (f *facts) inOrder() {
	slices.SortStableFunc(f.pool, func(a, b clusterv1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// with are the same facts with other workers.
func (f *facts) with(workers map[string]*clusterv1.Machine) *facts {
	others := *f
	others.pool = make([]clusterv1.Machine, 0, len(workers))
	for _, m := range workers {
		others.pool = append(others.pool, *m)
	}
	others.inOrder()
	return &others
}

// machine is a worker; nil if it is gone.
func (f *facts) machine(name string) *clusterv1.Machine {
	i := slices.IndexFunc(f.pool, func(m clusterv1.Machine) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &f.pool[i]
}

// metal3 is the infrastructure of m; nil if it is gone.
func (f *facts) metal3(m *clusterv1.Machine) *unstructured.Unstructured {
	i := slices.IndexFunc(f.between, func(o unstructured.Unstructured) bool { return o.GetName() == m.Spec.InfrastructureRef.Name })
	if i < 0 {
		return nil
	}
	return &f.between[i]
}

// hostOf is the host that m has; nil if it has none.
func (f *facts) hostOf(m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	i := slices.IndexFunc(f.hosts, func(h bmov1alpha1.BareMetalHost) bool {
		return h.Spec.ConsumerRef != nil && h.Spec.ConsumerRef.Name == m.Spec.InfrastructureRef.Name
	})
	if i < 0 {
		return nil
	}
	return &f.hosts[i]
}

// ready reports whether m has a node that is Ready.
func (f *facts) ready(m *clusterv1.Machine) bool {
	return slices.ContainsFunc(f.nodes, func(n corev1.Node) bool {
		return m.Status.NodeRef.IsDefined() && n.Name == m.Status.NodeRef.Name && suite.Readiness(&n) == corev1.ConditionTrue
	})
}

// live are the workers that are not being deleted.
func (f *facts) live() []*clusterv1.Machine {
	var all []*clusterv1.Machine
	for i := range f.pool {
		if f.pool[i].DeletionTimestamp.IsZero() {
			all = append(all, &f.pool[i])
		}
	}
	return all
}

// foreign are the finalizers that no controller of Cluster API and its providers removes.
func foreign(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		domain, _, _ := strings.Cut(f, "/")
		return strings.HasSuffix(domain, "cluster.x-k8s.io")
	})
}
