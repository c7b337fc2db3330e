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

// Site is a workload cluster whose machines run on simulated hosts, in a namespace of the management cluster. A node has the name of its
// machine.
type Site struct {
	Namespace, Name string
	ControlPlanes   int
	Workers         int32
	Spare           int               // hosts without a machine
	Plane           *rig.ControlPlane // the control plane of the workload cluster
	Roles           []string          // the ClusterRoles that kubemend has there; all that it ships, if empty

	// Build sets these fields.
	Cluster *clusterv1.Cluster
	There   client.WithWatch // for the workload cluster, with the scheme of the management cluster's client

	here     client.Client // for the management cluster
	provider *simulator.Infrastructure
}

// Build creates the cluster. Machines become ready one after the other; AllWell waits for them.
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

// Reachable returns a Cluster and the objects that must exist before it, so that the management cluster can connect to a control plane as
// the Cluster's. Core connects as an administrator, kubemend as a user with the named roles of those that it ships for workload clusters,
// or with all. The machines of the Cluster will have their nodes in that control plane.
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

// Pool returns the name of the workers' MachineDeployment.
func (s *Site) Pool() string { return s.Name + "-md-0" }

// AllWell waits until all machines exist and run, and every node is ready.
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

// Machine returns a Machine from the API server.
func (s *Site) Machine(ctx context.Context, name string) *clusterv1.Machine {
	ginkgo.GinkgoHelper()
	m := &clusterv1.Machine{}
	gomega.Expect(s.here.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, m)).To(gomega.Succeed())
	return m
}

// ControlPlaneNames returns the sorted names of the control-plane machines.
func (s *Site) ControlPlaneNames(ctx context.Context) []string {
	ginkgo.GinkgoHelper()
	return s.names(ctx, client.HasLabels{clusterv1.MachineControlPlaneLabel})
}

// WorkerNames returns the sorted names of the workers.
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

// Host returns the simulated host of a machine.
func (s *Site) Host(machine string) *simulator.Host {
	ginkgo.GinkgoHelper()
	host := s.provider.Host(client.ObjectKey{Namespace: s.Namespace, Name: machine})
	gomega.Expect(host).NotTo(gomega.BeNil(), machine)
	return host
}

// Node returns a node of the workload cluster from its API server.
func (s *Site) Node(ctx context.Context, name string) *corev1.Node {
	ginkgo.GinkgoHelper()
	node := &corev1.Node{}
	gomega.Expect(s.There.Get(ctx, client.ObjectKey{Name: name}, node)).To(gomega.Succeed())
	return node
}

// Ready returns the status of the condition Ready of a node of the cluster.
func (s *Site) Ready(ctx context.Context, name string) corev1.ConditionStatus {
	return Ready(ctx, s.There, name)
}

// Ready returns the status of the condition Ready of a node, or the error if the node cannot be read.
func Ready(ctx context.Context, in client.Reader, name string) corev1.ConditionStatus {
	node := &corev1.Node{}
	if err := in.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	return Readiness(node)
}

// Readiness returns the status of a node's condition Ready; it is empty if the node has no such condition.
func Readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}
