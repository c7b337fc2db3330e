package machines

import (
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// patience is the timeout of the conditions of nodes by default, long how long ago something must have happened for every one to be over.
const (
	patience = 5 * time.Minute
	long     = 30 * time.Minute
)

// environment is one Cluster. What its machines and nodes report, the test writes.
type environment struct {
	*setting
	cluster *clusterv1.Cluster
}

// newEnvironment makes a Cluster that is up, in a namespace of its own: infrastructure ready, control plane initialized, both an hour ago,
// and reachable.
func (w *setting) newEnvironment(edits ...func(*clusterv1.Cluster)) *environment {
	w.t.Helper()
	return w.environment(w.namespace(), "c1", edits...)
}

// environment makes a Cluster in a namespace that may have others.
func (w *setting) environment(namespace, name string, edits ...func(*clusterv1.Cluster)) *environment {
	w.t.Helper()
	s := &environment{setting: w, cluster: builders.Cluster(namespace, name)}
	s.Expect(s.here.Create(s.ctx, kubemend.KubeconfigOf(namespace, name, "workload"))).To(Succeed())
	s.begin(edits...)
	time.Sleep(time.Minute) // until a manager that runs is connected to it
	return s
}

func (s *environment) begin(edits ...func(*clusterv1.Cluster)) {
	s.t.Helper()
	s.cluster.Labels = map[string]string{}
	s.cluster.Status = builders.Standing()
	for _, edit := range edits {
		edit(s.cluster)
	}
	wanted := s.cluster.Status
	s.Expect(s.here.Create(s.ctx, s.cluster)).To(Succeed())
	s.cluster.Status = wanted
	s.Expect(s.here.Status().Update(s.ctx, s.cluster)).To(Succeed())
}

func (s *environment) changeCluster(change func(*clusterv1.Cluster)) {
	before := s.cluster.DeepCopy()
	change(s.cluster)
	s.Expect(s.here.Status().Patch(s.ctx, s.cluster, client.MergeFrom(before))).To(Succeed())
}

// pause sets or clears spec.paused of the Cluster.
func (s *environment) pause(paused bool) {
	before := s.cluster.DeepCopy()
	s.cluster.Spec.Paused = &paused
	s.Expect(s.here.Patch(s.ctx, s.cluster, client.MergeFrom(before))).To(Succeed())
}

func condition(kind string, status metav1.ConditionStatus, ago time.Duration) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second)),
	}
}

// machine makes a worker whose infrastructure has been ready for an hour. It has no node yet.
func (s *environment) machine(name string, edits ...func(*clusterv1.Machine)) {
	m := builders.Worker(s.cluster, name)
	m.Labels["pool"] = "workers"
	m.Status.Conditions = []metav1.Condition{condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionTrue, time.Hour)}
	for _, edit := range edits {
		edit(m)
	}
	status := m.Status
	s.Expect(s.here.Create(s.ctx, m)).To(Succeed())
	// A patch: a check may have written a condition of the new Machine already.
	made := m.DeepCopy()
	m.Status = status
	s.Expect(s.here.Status().Patch(s.ctx, m, client.MergeFrom(made))).To(Succeed())
}

// worker makes a worker with a node that is Ready.
func (s *environment) worker(name string, edits ...func(*clusterv1.Machine)) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node(name)}}
	s.Expect(s.there.Create(s.ctx, node)).To(Succeed())
	s.nodeReports(name, corev1.NodeReady, corev1.ConditionTrue, time.Hour)
	s.machine(name, append([]func(*clusterv1.Machine){s.hasNode(name)}, edits...)...)
}

func (s *environment) workers(names ...string) {
	for _, name := range names {
		s.worker(name)
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
func (s *environment) nodeReports(machine string, kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) {
	node := &corev1.Node{}
	s.Expect(s.there.Get(s.ctx, client.ObjectKey{Name: s.node(machine)}, node)).To(Succeed())
	before := node.DeepCopy()
	builders.Reports(node, corev1.NodeCondition{
		Type: kind, Status: status, Reason: "Test", LastHeartbeatTime: metav1.Now(),
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second)),
	})
	s.Expect(s.there.Status().Patch(s.ctx, node, client.MergeFrom(before))).To(Succeed())
}

func (s *environment) fallsSilent(machines ...string) {
	for _, m := range machines {
		s.nodeReports(m, corev1.NodeReady, corev1.ConditionUnknown, 0)
	}
	time.Sleep(long) // in a bubble: its stamp would be no evidence if the manager had seen the node Ready after it
}

func (s *environment) comesBack(machines ...string) {
	for _, m := range machines {
		s.nodeReports(m, corev1.NodeReady, corev1.ConditionTrue, 0)
	}
}

func (s *environment) losesNode(machine string) {
	s.Expect(s.there.Delete(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node(machine)}})).To(Succeed())
}

// change patches a machine: its metadata and spec, then its status.
func (s *environment) change(machine string, change func(*clusterv1.Machine)) {
	m := s.get(machine)
	before := m.DeepCopy()
	change(m)
	status := m.Status
	s.Expect(s.here.Patch(s.ctx, m, client.MergeFrom(before))).To(Succeed())
	before, m.Status = m.DeepCopy(), status
	s.Expect(s.here.Status().Patch(s.ctx, m, client.MergeFrom(before))).To(Succeed())
}

func annotated(key string) func(*clusterv1.Machine) {
	return builders.Annotated[*clusterv1.Machine](key, "")
}

func (s *environment) get(machine string) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	s.Expect(s.here.Get(s.ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: machine}, m)).To(Succeed())
	return m
}

// check makes a MachineHealthCheck of the pool "workers": Ready False or Unknown for five minutes.
func (s *environment) check(name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	selected := func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}}
	}
	c := builders.MachineHealthCheck(s.cluster, name, append([]func(*clusterv1.MachineHealthCheck){selected}, edits...)...)
	s.Expect(s.here.Create(s.ctx, c)).To(Succeed())
	return c
}

// changeCheck patches a check's metadata and spec.
func (s *environment) changeCheck(name string, change func(*clusterv1.MachineHealthCheck)) {
	c := s.getCheck(name)
	before := c.DeepCopy()
	change(c)
	s.Expect(s.here.Patch(s.ctx, c, client.MergeFrom(before))).To(Succeed())
}

func (s *environment) getCheck(name string) *clusterv1.MachineHealthCheck {
	c := &clusterv1.MachineHealthCheck{}
	s.Expect(s.here.Get(s.ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, c)).To(Succeed())
	return c
}
