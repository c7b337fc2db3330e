package simulator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// cell is a workload cluster of its own, in which pods run.
type cell struct {
	*WithT
	ctx      context.Context
	c        client.Client
	kubelets map[string]*simulator.Kubelet
	attacher *simulator.Attacher
}

// newCell has four nodes: with fewer that are healthy, kube-controller-manager takes the outage for one of the network.
func newCell(t *testing.T, name string) *cell {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	plane, err := theRig.Workload(t.Context(), name, rig.WorkloadOptions{
		Controllers: slices.Concat(rig.NodeControllers(), rig.PodControllers()),
	})
	g.Expect(err).NotTo(HaveOccurred())
	scheduler, err := simulator.NewScheduler(plane.Config(), logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	play(t, "scheduler", scheduler.Start)
	cl := &cell{WithT: g, ctx: t.Context(), c: clientOf(t, plane), kubelets: map[string]*simulator.Kubelet{}}
	cl.attacher, err = simulator.NewAttacher(plane.Config(), logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	play(t, "attacher", cl.attacher.Start)
	for n := range 4 {
		k := simulator.NewKubelet(cl.c, simulator.KubeletOptions{Node: fmt.Sprintf("node-%d", n), Every: 200 * time.Millisecond})
		cl.kubelets[k.Node()] = k
		t.Cleanup(k.Stop)
		k.Start()
	}
	return cl
}

// pods are those of a Deployment of builders.
func (c *cell) pods(g Gomega, app string) []corev1.Pod {
	list := &corev1.PodList{}
	g.Expect(c.c.List(c.ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": app})).To(Succeed())
	return list.Items
}

// run waits until a number of pods run, none of them on that node, and returns them.
func (c *cell) run(app string, number int, not string) []corev1.Pod {
	var running []corev1.Pod
	c.Eventually(func(g Gomega) {
		running = slices.DeleteFunc(c.pods(g, app), func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodRunning || p.Spec.NodeName == not || !p.DeletionTimestamp.IsZero()
		})
		g.Expect(running).To(HaveLen(number))
	}).Should(Succeed())
	return running
}

func (c *cell) attachedTo(g Gomega, node string) []storagev1.VolumeAttachment {
	list := &storagev1.VolumeAttachmentList{}
	g.Expect(c.c.List(c.ctx, list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != node })
}

func (c *cell) node(g Gomega, name string) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(c.c.Get(c.ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

// silence stops a kubelet and waits until its node is Unknown.
func (c *cell) silence(node string) {
	c.kubelets[node].Stop()
	c.Eventually(func(g Gomega) {
		g.Expect(c.node(g, node).Status.Conditions).To(ContainElement(SatisfyAll(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionUnknown))))
	}).Should(Succeed())
}

// fence puts the out-of-service taint on a node, as a remediation does.
func (c *cell) fence(node string) {
	c.taint(node, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
}

func (c *cell) taint(node string, taint corev1.Taint) {
	c.editTaints(node, func(taints []corev1.Taint) []corev1.Taint { return append(taints, taint) })
}

func (c *cell) untaint(node, key string) {
	c.editTaints(node, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
	})
}

// editTaints retries until no other client has changed them at the same time.
func (c *cell) editTaints(name string, edit func([]corev1.Taint) []corev1.Taint) {
	c.Eventually(func(g Gomega) {
		node := c.node(g, name)
		patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		node.Spec.Taints = edit(node.Spec.Taints)
		g.Expect(c.c.Patch(c.ctx, node, patch)).To(Succeed())
	}).Should(Succeed())
}

func TestPodsWithAVolumeMoveFromATaintedNode(t *testing.T) {
	t.Parallel()
	c := newCell(t, "moving")
	c.Expect(builders.Apply(c.ctx, c.c, builders.Volume("default", "data")...)).To(Succeed())
	c.Expect(builders.Apply(c.ctx, c.c, builders.Deployment("default", "app", 1, builders.WithVolume("data")))).To(Succeed())
	pod := c.run("app", 1, "")[0]
	lost := pod.Spec.NodeName
	c.Expect(c.attachedTo(c, lost)).To(HaveLen(1))
	c.Expect(c.node(c, lost).Status.VolumesInUse).To(HaveLen(1))

	c.silence(lost)
	c.Expect(c.pods(c, "app")).To(HaveLen(1), "a node that is silent loses no pods by itself for a while")
	c.attacher.Stick(true)
	fenced := time.Now()
	c.fence(lost)
	c.Eventually(func(g Gomega) {
		attachments := c.attachedTo(g, lost)
		g.Expect(attachments).To(HaveLen(1))
		g.Expect(attachments[0].DeletionTimestamp).NotTo(BeNil())
	}).Should(Succeed())
	t.Logf("the volume is to be detached after %s", time.Since(fenced))
	c.attacher.Stick(false)
	c.Eventually(func(g Gomega) { g.Expect(c.attachedTo(g, lost)).To(BeEmpty()) }).Should(Succeed())
	moved := c.run("app", 1, lost)[0]
	t.Logf("the replacement runs after %s", time.Since(fenced))
	c.Expect(c.attachedTo(c, moved.Spec.NodeName)).To(HaveLen(1))
	c.Eventually(func() error { return c.c.Get(c.ctx, client.ObjectKeyFromObject(&pod), &corev1.Pod{}) }).
		Should(Satisfy(apierrors.IsNotFound), "podgc removes it, since no kubelet does")
	t.Logf("the pod is gone after %s", time.Since(fenced))
}

func TestAStoppedKubeletDoesNotEndItsPods(t *testing.T) {
	t.Parallel()
	c := newCell(t, "leaving")
	c.Expect(builders.Apply(c.ctx, c.c, builders.Deployment("default", "app", 3))).To(Succeed())
	pods := c.run("app", 3, "")
	nodes := map[string]bool{}
	for i := range pods {
		nodes[pods[i].Spec.NodeName] = true
	}
	c.Expect(nodes).To(HaveLen(3), "the scheduler spreads them")

	// A taint keeps every pod away that does not tolerate it, until it is gone.
	for name := range c.kubelets {
		c.taint(name, corev1.Taint{Key: "example.com/closed", Effect: corev1.TaintEffectNoSchedule})
	}
	c.Expect(builders.Apply(c.ctx, c.c, builders.Deployment("default", "shy", 1))).To(Succeed())
	c.Expect(builders.Apply(c.ctx, c.c, builders.Deployment("default", "bold", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}))).To(Succeed())
	c.run("bold", 1, "")
	c.Eventually(func(g Gomega) { g.Expect(c.pods(g, "shy")).To(HaveLen(1)) }).Should(Succeed())
	c.Expect(c.pods(c, "shy")[0].Spec.NodeName).To(BeEmpty())
	for name := range c.kubelets {
		c.untaint(name, "example.com/closed")
	}
	c.run("shy", 1, "")

	pod := pods[0]
	c.silence(pod.Spec.NodeName)
	c.Expect(c.c.Delete(c.ctx, &pod)).To(Succeed())
	c.run("app", 3, pod.Spec.NodeName)
	c.Expect(c.c.Get(c.ctx, client.ObjectKeyFromObject(&pod), &pod)).To(Succeed(), "it is still there")
	c.Expect(pod.DeletionTimestamp).NotTo(BeNil())
	c.kubelets[pod.Spec.NodeName].Start()
	c.Eventually(func() error { return c.c.Get(c.ctx, client.ObjectKeyFromObject(&pod), &corev1.Pod{}) }).
		Should(Satisfy(apierrors.IsNotFound))
}
