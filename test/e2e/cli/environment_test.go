package cli

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
	"github.com/kubemend/kubemend/test/suite"
)

// environment is one cluster with its hosts, in a namespace of the management cluster.
type environment struct{ suite.Site }

// slow makes all hosts take their time, until the spec ends.
func (env *environment) slow(times simulator.Times) {
	GinkgoHelper()
	for i := range env.ControlPlanes + int(env.Workers) + env.Spare {
		host := hosts.Host(client.ObjectKey{Namespace: env.Namespace, Name: fmt.Sprintf("host-%d", i)})
		Expect(host).NotTo(BeNil())
		host.Take(times)
		DeferCleanup(func() { host.Take(simulator.Times{}) })
	}
}

// silence hangs the kubelets of machines, until the spec ends: the next one is to find those that are left well.
func (env *environment) silence(machines ...string) {
	GinkgoHelper()
	for _, name := range machines {
		kubelet := env.Host(name).Kubelet()
		kubelet.Stop()
		DeferCleanup(kubelet.Start) // of a machine that was replaced meanwhile, it does nothing
	}
}

// checked makes a check of the workers that allows 40% of them to be bad, until the spec ends, and waits until it counts them.
func (env *environment) checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	most := intstr.FromString("40%")
	check := builders.MachineHealthCheck(env.Cluster, name, append([]func(*clusterv1.MachineHealthCheck){func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &most
	}}, edits...)...)
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, check)).To(Succeed()) })
	Eventually(func(g Gomega) {
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
		g.Expect(check.Status.CurrentHealthy).To(HaveValue(Equal(env.Workers)))
	}).Should(Succeed())
	return check
}

// stored is a check as it is now.
func (env *environment) stored(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: name}, check)).To(Succeed())
	return check
}

// pauseTheOwner keeps the owner of the workers from replacing any, until the returned function is called.
func (env *environment) pauseTheOwner(ctx context.Context) (resume func(context.Context)) {
	GinkgoHelper()
	list := &clusterv1.MachineSetList{}
	Expect(here.List(ctx, list, client.InNamespace(env.Namespace))).To(Succeed())
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
	resume = func(ctx context.Context) {
		annotate(ctx, func(a map[string]string) { delete(a, clusterv1.PausedAnnotation) })
	}
	DeferCleanup(func(ctx SpecContext) { resume(ctx) })
	return resume
}

// ownerRequested returns the moment at which a machine is first seen with a request for owner remediation.
func (env *environment) ownerRequested(ctx context.Context, name string) <-chan time.Time {
	GinkgoHelper()
	changes, err := rig.Follow(ctx, here, &clusterv1.MachineList{}, client.InNamespace(env.Namespace),
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
