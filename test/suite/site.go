package suite

import (
	"context"
	"slices"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// Site is a workload cluster with its machines, all on simulated hosts, in a namespace of the management cluster. A node has the name of
// its machine.
type Site struct {
	Namespace, Name string
	ControlPlanes   int
	Workers         int32
	Spare           int               // hosts that no machine has
	Plane           *rig.ControlPlane // of the workload cluster
	Roles           []string          // of kubemend there; all that it ships, if empty

	// What Build makes.
	Cluster *clusterv1.Cluster
	There   client.WithWatch // to the workload cluster; it knows the kinds that the client to the management cluster does

	here     client.Client // to the management cluster
	provider *simulator.Infrastructure
}

// Build makes the cluster. Machines come up by and by; AllWell waits for them.
func (s *Site) Build(ctx context.Context, here client.Client, provider *simulator.Infrastructure,
	edits ...func(*clusterv1.MachineDeployment)) {
	ginkgo.GinkgoHelper()
	s.here, s.provider = here, provider
	s.There = clientOf(s.Plane.Config(), here.Scheme())
	s.Cluster = builders.Cluster(s.Namespace, s.Name)
	objects := Reachable(ctx, s.Cluster, s.Plane, provider, s.Roles...)
	objects = append(objects, builders.BareMetalHosts(s.Namespace, "host", s.ControlPlanes+int(s.Workers)+s.Spare)...)
	objects = append(objects, builders.ControlPlane(s.Cluster, s.ControlPlanes)...)
	objects = append(objects, builders.Workers(s.Cluster, s.Pool(), s.Workers, edits...)...)
	gomega.Expect(builders.Apply(ctx, here, objects...)).To(gomega.Succeed())
}

// Reachable are a Cluster and what has to be there before it, so that the management cluster reaches a control plane as the Cluster's: core
// as an administrator, and kubemend as a user with those of the roles that it ships for workload clusters that are named, or with all of
// them. The machines of the Cluster will have their nodes there.
func Reachable(ctx context.Context, cluster *clusterv1.Cluster, plane *rig.ControlPlane, provider *simulator.Infrastructure,
	roles ...string) []client.Object {
	ginkgo.GinkgoHelper()
	key := client.ObjectKeyFromObject(cluster)
	ofManager := Must(plane.GrantWorkloadUser(ctx, roles...))
	gomega.Expect(provider.Serve(key, plane.Config())).To(gomega.Succeed())
	return []client.Object{
		builders.Namespace(cluster.Namespace), rig.SharedKubeconfigSecret(key, plane, ofManager), builders.Metal3Cluster(cluster), cluster,
	}
}

// Pool is the name of the workers' MachineDeployment.
func (s *Site) Pool() string { return s.Name + "-md-0" }

// AllWell waits until every machine runs, as many as there are to be, and every node is ready.
func (s *Site) AllWell(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func(g gomega.Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(s.here.List(ctx, list, client.InNamespace(s.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.Name})).
			To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(s.ControlPlanes + int(s.Workers)))
		for _, m := range list.Items {
			g.Expect(m.DeletionTimestamp).To(gomega.BeNil(), m.Name)
			g.Expect(m.Status.Phase).To(gomega.Equal(string(clusterv1.MachinePhaseRunning)), m.Name)
			g.Expect(s.Ready(ctx, m.Name)).To(gomega.Equal(corev1.ConditionTrue), m.Name)
		}
	}).WithContext(ctx).Should(gomega.Succeed())
}

// Machine is a machine as it is now.
func (s *Site) Machine(ctx context.Context, name string) *clusterv1.Machine {
	ginkgo.GinkgoHelper()
	m := &clusterv1.Machine{}
	gomega.Expect(s.here.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, m)).To(gomega.Succeed())
	return m
}

// ControlPlaneNames are the names of the machines of the control plane, sorted.
func (s *Site) ControlPlaneNames(ctx context.Context) []string {
	ginkgo.GinkgoHelper()
	return s.names(ctx, client.HasLabels{clusterv1.MachineControlPlaneLabel})
}

// WorkerNames are the names of the workers, sorted.
func (s *Site) WorkerNames(ctx context.Context) []string {
	ginkgo.GinkgoHelper()
	return s.names(ctx, client.HasLabels{clusterv1.MachineDeploymentNameLabel})
}

func (s *Site) names(ctx context.Context, which client.ListOption) []string {
	ginkgo.GinkgoHelper()
	list := &clusterv1.MachineList{}
	gomega.Expect(s.here.List(ctx, list, client.InNamespace(s.Namespace), which)).To(gomega.Succeed())
	names := make([]string, 0, len(list.Items))
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// Host is what carries a machine.
func (s *Site) Host(machine string) *simulator.Host {
	ginkgo.GinkgoHelper()
	host := s.provider.Host(client.ObjectKey{Namespace: s.Namespace, Name: machine})
	gomega.Expect(host).NotTo(gomega.BeNil(), machine)
	return host
}

// Node is a node as it is now.
func (s *Site) Node(ctx context.Context, name string) *corev1.Node {
	ginkgo.GinkgoHelper()
	node := &corev1.Node{}
	gomega.Expect(s.There.Get(ctx, client.ObjectKey{Name: name}, node)).To(gomega.Succeed())
	return node
}

// Ready is the function Ready, of a node of the cluster.
func (s *Site) Ready(ctx context.Context, name string) corev1.ConditionStatus {
	return Ready(ctx, s.There, name)
}

// Ready is what the condition Ready of a node says now; of a node that cannot be read, it is the error.
func Ready(ctx context.Context, in client.Reader, name string) corev1.ConditionStatus {
	node := &corev1.Node{}
	if err := in.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	return Readiness(node)
}

// Readiness is the status of a node's condition Ready; empty without one.
func Readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}
