package conformance

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// long is how long ago something must have happened for every patience to be over.
const long = 30 * time.Minute

// quick is how soon a reaction to a watch event must come. Nothing else is that fast: kinds and claims are looked up after
// 30 s, everything is reconciled again after 10 m, and a probe of a connection that is answered has nothing reconciled.
const quick = 25 * time.Second

// environment is one Cluster in a namespace of its own. What its machines and nodes report, the spec writes.
type environment struct {
	cluster *clusterv1.Cluster
}

// newScene makes a Cluster that is up: infrastructure ready, control plane initialized, both an hour ago, and reachable.
func newEnvironment(ctx context.Context, edits ...func(*clusterv1.Cluster)) *environment {
	GinkgoHelper()
	return newEnvironmentIn(ctx, newNamespace(ctx), "c1", edits...)
}

// prepared are namespaces that no spec uses yet, with kubeconfigs for clusters c1 and c2.
//
// A ClusterCache that does not find the Secret in its cache retries only after 30 s. So the Secrets exist long before the
// Clusters.
var prepared []string

func prepareNamespaces(ctx context.Context, n int) {
	GinkgoHelper()
	names := make([]string, n)
	suite.AtOnce(10, n, func(i int) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scene-"}}
		Expect(here.Create(ctx, namespace)).To(Succeed())
		for _, cluster := range []string{"c1", "c2"} {
			key := client.ObjectKey{Namespace: namespace.Name, Name: cluster}
			Expect(here.Create(ctx, rig.KubeconfigSecret(key, workload))).To(Succeed())
		}
		names[i] = namespace.Name
	})
	prepared = append(prepared, names...)
}

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	if len(prepared) == 0 {
		prepareNamespaces(ctx, 20)
	}
	namespace := prepared[0]
	prepared = prepared[1:]
	return namespace
}

// newSceneIn makes a Cluster c1 or c2 in a namespace that may have others.
func newEnvironmentIn(ctx context.Context, namespace, name string, edits ...func(*clusterv1.Cluster)) *environment {
	GinkgoHelper()
	s := &environment{cluster: builders.Cluster(namespace, name)}
	s.begin(ctx, edits...)
	return s
}

// kubeconfig makes the Secret that says how to reach the environment's workload cluster.
func (s *environment) kubeconfig(ctx context.Context, content []byte) {
	GinkgoHelper()
	secret := rig.KubeconfigSecret(client.ObjectKeyFromObject(s.cluster), workload)
	for key := range secret.Data {
		secret.Data[key] = content
	}
	Expect(here.Create(ctx, secret)).To(Succeed())
}

// begin makes the Cluster.
func (s *environment) begin(ctx context.Context, edits ...func(*clusterv1.Cluster)) {
	GinkgoHelper()
	s.cluster.Labels = map[string]string{clusterv1.WatchLabel: acting}
	s.cluster.Status = builders.Standing()
	for _, edit := range edits {
		edit(s.cluster)
	}
	wanted := s.cluster.Status
	Expect(here.Create(ctx, s.cluster)).To(Succeed())
	s.cluster.Status = wanted
	Expect(here.Status().Update(ctx, s.cluster)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { s.end(ctx) })
}

// end deletes what the manager would otherwise go on looking at.
func (s *environment) end(ctx context.Context) {
	for _, list := range []client.Object{&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{}} {
		Expect(here.DeleteAllOf(ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
	}
	Expect(client.IgnoreNotFound(here.Delete(ctx, s.cluster))).To(Succeed())
}

func condition(kind string, status metav1.ConditionStatus, ago time.Duration) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second)),
	}
}

// machine makes a worker whose infrastructure has been ready for an hour. It has no node yet.
func (s *environment) machine(ctx context.Context, name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	GinkgoHelper()
	m := builders.ControlPlaneMachine(s.cluster, name)
	delete(m.Labels, clusterv1.MachineControlPlaneLabel)
	m.Labels["pool"] = "workers"
	m.Status.Conditions = []metav1.Condition{condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionTrue, time.Hour)}
	for _, edit := range edits {
		edit(m)
	}
	status := m.Status
	Expect(here.Create(ctx, m)).To(Succeed())
	// A patch: a check may have written a condition of the new Machine already.
	made := m.DeepCopy()
	m.Status = status
	Expect(here.Status().Patch(ctx, m, client.MergeFrom(made))).To(Succeed())
	return m
}

// worker makes a worker with a node that is Ready.
func (s *environment) worker(ctx context.Context, name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node(name)}}
	Expect(there.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { _ = there.Delete(ctx, node) })
	s.nodeReports(ctx, name, corev1.NodeReady, corev1.ConditionTrue, time.Hour)
	return s.machine(ctx, name, append([]func(*clusterv1.Machine){s.hasNode(name)}, edits...)...)
}

func (s *environment) workers(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		s.worker(ctx, name)
	}
}

// node is the name of a machine's node. All environments share one workload cluster.
func (s *environment) node(machine string) string {
	return fmt.Sprintf("%s-%s-%s", s.cluster.Namespace, s.cluster.Name, machine)
}

func (s *environment) hasNode(name string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{Name: s.node(name)} }
}

// nodeReports sets a condition of a machine's node, as if it had been so for some time.
func (s *environment) nodeReports(ctx context.Context, machine string, kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(there.Get(ctx, client.ObjectKey{Name: s.node(machine)}, node)).To(Succeed())
	before := node.DeepCopy()
	builders.Reports(node, corev1.NodeCondition{
		Type: kind, Status: status, Reason: "Test", LastHeartbeatTime: metav1.Now(),
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second)),
	})
	Expect(there.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}

func (s *environment) fallsSilent(ctx context.Context, machines ...string) {
	GinkgoHelper()
	for _, m := range machines {
		s.nodeReports(ctx, m, corev1.NodeReady, corev1.ConditionUnknown, long)
	}
}

func (s *environment) comesBack(ctx context.Context, machines ...string) {
	GinkgoHelper()
	for _, m := range machines {
		s.nodeReports(ctx, m, corev1.NodeReady, corev1.ConditionTrue, 0)
	}
}

// losesNode deletes a machine's node.
func (s *environment) losesNode(ctx context.Context, machine string) {
	GinkgoHelper()
	Expect(there.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node(machine)}})).To(Succeed())
}

// change patches a machine: its metadata and spec, then its status.
func (s *environment) change(ctx context.Context, machine string, change func(*clusterv1.Machine)) {
	GinkgoHelper()
	m := s.get(ctx, machine)
	before := m.DeepCopy()
	change(m)
	status := m.Status
	Expect(here.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	before, m.Status = m.DeepCopy(), status
	Expect(here.Status().Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
}

func annotated(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[key] = value
	}
}

func (s *environment) get(ctx context.Context, machine string) *clusterv1.Machine {
	GinkgoHelper()
	m := &clusterv1.Machine{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: machine}, m)).To(Succeed())
	return m
}

// check makes a MachineHealthCheck of the pool "workers": Ready False or Unknown for five minutes.
func (s *environment) check(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	selected := func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}}
	}
	c := builders.MachineHealthCheck(s.cluster, name, append([]func(*clusterv1.MachineHealthCheck){selected}, edits...)...)
	c.Labels = map[string]string{clusterv1.WatchLabel: s.cluster.Labels[clusterv1.WatchLabel]}
	Expect(here.Create(ctx, c)).To(Succeed())
	return c
}

// changeCheck patches a check's metadata and spec.
func (s *environment) changeCheck(ctx context.Context, name string, change func(*clusterv1.MachineHealthCheck)) {
	GinkgoHelper()
	c := s.getCheck(ctx, name)
	before := c.DeepCopy()
	change(c)
	Expect(here.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

func (s *environment) getCheck(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	c := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, c)).To(Succeed())
	return c
}
