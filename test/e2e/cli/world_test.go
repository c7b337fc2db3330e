package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// world is one cluster with its hosts, in a namespace of the management cluster.
type world struct {
	namespace, name string
	workers         int32
	spare           int // hosts that no machine has

	plane   *rig.ControlPlane // of the workload cluster
	there   client.WithWatch  // to it
	cluster *clusterv1.Cluster
}

// build makes the cluster. Machines come up by and by.
func (w *world) build(ctx context.Context) {
	GinkgoHelper()
	w.there = clientFor(w.plane.Config())
	w.cluster = builders.Cluster(w.namespace, w.name)
	key := client.ObjectKeyFromObject(w.cluster)
	ofManager, err := w.plane.GrantWorkloadUser(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(provider.Serve(key, w.plane.Config())).To(Succeed())
	objects := []client.Object{builders.Namespace(w.namespace), rig.SharedKubeconfigSecret(key, w.plane, ofManager), builders.Metal3Cluster(w.cluster), w.cluster}
	objects = append(objects, builders.BareMetalHosts(w.namespace, "host", 1+int(w.workers)+w.spare)...)
	objects = append(objects, builders.ControlPlane(w.cluster, 1)...)
	objects = append(objects, builders.Workers(w.cluster, w.name, w.workers)...)
	Expect(builders.Apply(ctx, here, objects...)).To(Succeed())
}

// allWell waits until every machine runs and every node is ready.
func (w *world) allWell(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(here.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1 + int(w.workers)))
		for _, m := range list.Items {
			g.Expect(m.DeletionTimestamp).To(BeNil(), m.Name)
			g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), m.Name)
			g.Expect(w.ready(ctx, m.Name)).To(Equal(corev1.ConditionTrue), m.Name)
		}
	}).Should(Succeed())
}

func (w *world) machine(ctx context.Context, name string) *clusterv1.Machine {
	GinkgoHelper()
	m := &clusterv1.Machine{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, m)).To(Succeed())
	return m
}

// workerNames are the names of workers and of their nodes, sorted.
func (w *world) workerNames(ctx context.Context) []string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(w.namespace), client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// host is what carries a machine.
func (w *world) host(machine string) *simulator.Host {
	GinkgoHelper()
	host := provider.Host(client.ObjectKey{Namespace: w.namespace, Name: machine})
	Expect(host).NotTo(BeNil(), machine)
	return host
}

// slow makes all hosts take their time, until the spec ends.
func (w *world) slow(times simulator.Times) {
	GinkgoHelper()
	for i := range 1 + int(w.workers) + w.spare {
		host := hosts.Host(client.ObjectKey{Namespace: w.namespace, Name: fmt.Sprintf("host-%d", i)})
		Expect(host).NotTo(BeNil())
		host.Take(times)
		DeferCleanup(func() { host.Take(simulator.Times{}) })
	}
}

// silence hangs the kubelets of machines, until the spec ends: the next one is to find those that are left well.
func (w *world) silence(machines ...string) {
	GinkgoHelper()
	for _, name := range machines {
		kubelet := w.host(name).Kubelet()
		kubelet.Stop()
		DeferCleanup(kubelet.Start) // of a machine that was replaced meanwhile, it does nothing
	}
}

// ready is the condition of a node that has the name of its machine.
func (w *world) ready(ctx context.Context, name string) corev1.ConditionStatus {
	node := &corev1.Node{}
	if err := w.there.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// checked makes a check of the workers that allows 40% of them to be bad, until the spec ends, and waits until it counts them.
func (w *world) checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	most := intstr.FromString("40%")
	check := builders.MachineHealthCheck(w.cluster, name, append([]func(*clusterv1.MachineHealthCheck){func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &most
	}}, edits...)...)
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, check)).To(Succeed()) })
	Eventually(func(g Gomega) {
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
		g.Expect(check.Status.CurrentHealthy).To(HaveValue(Equal(w.workers)))
	}).Should(Succeed())
	return check
}

// stored is a check as it is now.
func (w *world) stored(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, check)).To(Succeed())
	return check
}

// theOwnerRests keeps the owner of the workers from replacing any, until the function that it returns is called.
func (w *world) theOwnerRests(ctx context.Context) (wake func(context.Context)) {
	GinkgoHelper()
	list := &clusterv1.MachineSetList{}
	Expect(here.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	set := &list.Items[0]
	annotate := func(ctx context.Context, change func(map[string]string)) {
		before := set.DeepCopy()
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		change(set.Annotations)
		Expect(here.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
	}
	annotate(ctx, func(a map[string]string) { a[clusterv1.PausedAnnotation] = "e2e" })
	Eventually(func() bool {
		Expect(here.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		return conditions.IsTrue(set, clusterv1.PausedCondition)
	}).Should(BeTrue())
	wake = func(ctx context.Context) {
		annotate(ctx, func(a map[string]string) { delete(a, clusterv1.PausedAnnotation) })
	}
	DeferCleanup(func(ctx SpecContext) { wake(ctx) })
	return wake
}

// handedOver tells when a machine is first seen that is said to be unhealthy, and that its owner is to remediate.
func (w *world) handedOver(ctx context.Context, name string) <-chan time.Time {
	GinkgoHelper()
	changes, err := here.Watch(ctx, &clusterv1.MachineList{}, client.InNamespace(w.namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(changes.Stop)
	at := make(chan time.Time, 1)
	go func() {
		for e := range changes.ResultChan() {
			if m, is := e.Object.(*clusterv1.Machine); is && collections.IsUnhealthyAndOwnerRemediated(m) {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

// said are conditions, without what is different each time.
func said(all []metav1.Condition) map[string]string {
	texts := map[string]string{}
	for _, c := range all {
		texts[c.Type] = fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
	}
	return texts
}
