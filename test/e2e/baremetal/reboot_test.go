package baremetal

import (
	"context"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// kind is one of the two kinds of remediations, as a check names it.
type kind struct {
	apiVersion, name string
	template         func(name string, s infrav1.RemediationStrategy) client.Object
	empty            func() client.Object
}

var kinds = []kind{
	{
		apiVersion: mendv1.GroupVersion.String(), name: "HostRemediation",
		template: func(name string, s infrav1.RemediationStrategy) client.Object {
			t := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			t.Spec.Template.Spec.Strategy = &s
			return t
		},
		empty: func() client.Object { return &mendv1.HostRemediation{} },
	},
	{
		apiVersion: infrav1.GroupVersion.String(), name: "Metal3Remediation",
		template: func(name string, s infrav1.RemediationStrategy) client.Object {
			t := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			t.Spec.Template.Spec.Strategy = &s
			return t
		},
		empty: func() client.Object { return &infrav1.Metal3Remediation{} },
	},
}

var _ = Describe("A worker whose kubelet hangs", func() {
	for _, k := range kinds {
		It("is power-cycled by a "+k.name+", and its workload runs elsewhere meanwhile", func(ctx SpecContext) {
			allWell(ctx)
			app := strings.ToLower(k.name)
			Expect(builders.Apply(ctx, there, append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))...)).To(Succeed())
			name := nodeOf(ctx, app)
			identity := machine(ctx, name).UID
			watched(ctx, k)
			host := provider.Host(client.ObjectKey{Namespace: namespace, Name: name})
			began := time.Now()

			host.Kubelet().Stop()

			Eventually(func() string { return nodeOf(ctx, app) }).WithTimeout(2 * time.Minute).ShouldNot(Equal(name))
			Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
			Eventually(func() corev1.ConditionStatus { return ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
			Eventually(func() bool { return gone(ctx, k, name) }).Should(BeTrue())
			nothingIsLeft(ctx, host, name)
			Expect(machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
			told := events(ctx, k.name, name, began)
			for _, once := range []string{
				"AttemptBegan", "PowerOffRequested", "PoweredOff", "Fenced", "WorkloadMoved", "PowerOnRequested", "PoweredOn", "Unfenced",
			} {
				Expect(told).To(HaveKeyWithValue(once, 1), "%v", told)
			}
			Expect(events(ctx, "BareMetalHost", host.Key().Name, began)).To(And(HaveKeyWithValue("PowerOffRequested", 1), HaveKeyWithValue("PowerOnRequested", 1)))
		}, SpecTimeout(specPatience))
	}
})

// watched makes a check that remediates workers by requests of a kind, for as long as the spec runs.
func watched(ctx context.Context, k kind) {
	GinkgoHelper()
	name := strings.ToLower(k.name)
	check := builders.MachineHealthCheck(cluster, name, builders.Claimed, builders.Patience(2*time.Second),
		builders.RemediatedBy(k.apiVersion, k.name+"Template", name))
	template := k.template(name, infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100})
	Expect(builders.Apply(ctx, here, template, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(here.Delete(ctx, check)).To(Succeed())
		Expect(here.Delete(ctx, template)).To(Succeed())
	})
}

// allWell waits until every machine runs and every node is ready.
func allWell(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(here.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(workers + 1))
		for _, m := range list.Items {
			g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), m.Name)
			g.Expect(ready(ctx, m.Name)).To(Equal(corev1.ConditionTrue), m.Name)
		}
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

func machine(ctx context.Context, name string) *clusterv1.Machine {
	GinkgoHelper()
	m := &clusterv1.Machine{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m)).To(Succeed())
	return m
}

// ready is the condition of a node that has the name of its machine.
func ready(ctx context.Context, name string) corev1.ConditionStatus {
	node := &corev1.Node{}
	if err := there.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// nodeOf is where the one pod of a Deployment runs; empty while none does.
func nodeOf(ctx context.Context, app string) (node string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &corev1.PodList{}
		g.Expect(there.List(ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": app})).To(Succeed())
		node = ""
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() {
				node = p.Spec.NodeName
			}
		}
		g.Expect(node).NotTo(BeEmpty())
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	return node
}

// gone reports whether there is no remediation of a machine.
func gone(ctx context.Context, k kind, name string) bool {
	return apierrors.IsNotFound(here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, k.empty()))
}

// events counts the events about an object since a moment, by reason.
func events(ctx context.Context, kind, name string, since time.Time) map[string]int {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(here.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	told := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name && !e.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
			told[e.Reason]++
			if e.Series != nil {
				told[e.Reason] += int(e.Series.Count)
			}
		}
	}
	return told
}

// nothingIsLeft checks that no trace of a remediation is left on host and node.
func nothingIsLeft(ctx context.Context, host *simulator.Host, node string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		bmh := &bmov1alpha1.BareMetalHost{}
		g.Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
		for key, value := range bmh.Annotations {
			g.Expect(key).NotTo(Or(HavePrefix(infrav1.RebootAnnotation), HavePrefix("kubemend.io/"), HaveSuffix("/unhealthy")), fmt.Sprintf("%s: %s", key, value))
		}
		n := &corev1.Node{}
		g.Expect(there.Get(ctx, client.ObjectKey{Name: node}, n)).To(Succeed())
		for _, t := range n.Spec.Taints {
			g.Expect(t.Key).NotTo(Equal(infrav1.OutOfServiceTaintKey))
		}
		g.Expect(n.Annotations).NotTo(HaveKey(fence.FencedByAnnotation))
	}).Should(Succeed())
}
