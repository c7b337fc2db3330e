package baremetal

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/simulator"
)

var _ = Describe("A host or node that is not like the others", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("is rebooted once and never fenced if it must not be powered off, and the remediation says so", func(ctx SpecContext) {
		name, host := fixture.anIdleWorker(ctx)
		mustStayOn(ctx, host)
		began := time.Now()

		rem := fixture.byHand(ctx, name)

		ends(ctx, rem, "Succeeded")
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Reset}))
		Expect(saidOf(ctx, rem, infrav1.PoweredOffCondition)()).To(Equal("False/CannotBeProven"))
		Expect(saidOf(ctx, rem, infrav1.WorkloadMovedCondition)()).To(Equal("False/CannotBeProven"))
		Expect(saidOf(ctx, rem, infrav1.NodeHealthyCondition)()).To(Equal("True/MachineHealthy"))
		Eventually(fixture.recordedEvents(ctx, ours.name, name, began)).Should(And(
			HaveKeyWithValue("PowerOffDisabled", 1), HaveKeyWithValue("RebootRequested", 1), Not(HaveKey("Fenced")), Not(HaveKey("PowerOffRequested"))))
		fixture.nothingIsLeft(ctx, host, name)
		Consistently(func() int { return len(host.History().Since(began)) }).Should(Equal(1), "rebooted once")
	}, SpecTimeout(specPatience))

	It("has a record, written before it was powered off, of a request that a user made", func(ctx SpecContext) {
		name, host := fixture.anIdleWorker(ctx)
		machine := fixture.Machine(ctx, name)
		all := &mendv1.RemediationRecordList{}
		ofIt := client.MatchingLabels{mendv1.RecordTargetLabel: string(machine.UID)}
		Eventually(func(g Gomega) { // one that is open still would be taken
			g.Expect(here.List(ctx, all, client.InNamespace(machine.Namespace), ofIt, client.HasLabels{mendv1.RecordOpenLabel})).To(Succeed())
			g.Expect(all.Items).To(BeEmpty())
		}).Should(Succeed())
		Expect(here.DeleteAllOf(ctx, &mendv1.RemediationRecord{}, client.InNamespace(machine.Namespace), ofIt)).To(Succeed())
		began := time.Now()

		rem := fixture.byHand(ctx, name)

		ends(ctx, rem, "Succeeded")
		Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
		Expect(here.List(ctx, all, client.InNamespace(rem.Namespace), ofIt)).To(Succeed())
		Expect(all.Items).To(ConsistOf(HaveField("Name", rem.Annotations[mendv1.RecordAnnotation])))
		record := &all.Items[0]
		Expect(record.CreationTimestamp.Time).NotTo(BeTemporally(">", host.History().Since(began)[0].At))
		Expect(record.OwnerReferences).To(ConsistOf(HaveField("Name", machine.Spec.ClusterName)))
		Expect(record.Spec.Mode).To(Equal(mendv1.RecordActive))
		Expect(record.Spec.Remediator).To(Equal(mendv1.RemediatedByRequest))
		Expect(record.Spec.Requester.Check).To(BeNil())
		Expect(record.Spec.Target.Host).To(HaveValue(HaveField("Name", host.Key().Name)))
		Expect(record.Spec.Target.Node).To(HaveValue(HaveField("Name", fixture.Node(ctx, name).Name)))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))

	It("keeps the out-of-service taint that another client set", func(ctx SpecContext) {
		name, host := fixture.anIdleWorker(ctx)
		foreign := corev1.Taint{Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect}
		fixture.edit(ctx, name, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, foreign) })
		DeferCleanup(func(ctx SpecContext) {
			fixture.edit(ctx, name, func(n *corev1.Node) { n.Spec.Taints = nil })
		})
		began := time.Now()

		rem := fixture.byHand(ctx, name)

		ends(ctx, rem, "Succeeded")
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		Expect(here.Delete(ctx, rem)).To(Succeed())
		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).Should(BeTrue())
		hostIsFree(ctx, host)
		node := fixture.Node(ctx, name)
		Expect(outOfService(node)).To(BeTrue(), "kubemend must not remove it")
		Expect(node.Annotations).NotTo(HaveKey(fence.FencedByAnnotation))
		Eventually(fixture.recordedEvents(ctx, ours.name, name, began)).Should(And(HaveKeyWithValue("PowerOnRequested", 1), Not(HaveKey("Fenced")), Not(HaveKey("Unfenced"))))
	}, SpecTimeout(specPatience))

	It("is deleted and gets its labels and annotations back, if fencing deletes nodes", func(ctx SpecContext) {
		manager.Kill()
		startManager(ctx, "--fencing=delete")
		DeferCleanup(func(ctx SpecContext) {
			manager.Kill()
			startManager(ctx)
		})
		const key, value = "example.com/row", "7"
		name, host := fixture.anIdleWorker(ctx)
		fixture.edit(ctx, name, func(n *corev1.Node) { n.Labels[key], n.Annotations[key] = value, value })
		host.Take(simulator.Times{PowerOn: time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		before, began := fixture.Node(ctx, name), time.Now()

		rem := fixture.byHand(ctx, name)

		ends(ctx, rem, "Succeeded")
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		after := fixture.Node(ctx, name)
		Expect(after.UID).NotTo(Equal(before.UID), "the node was deleted")
		Expect(after.CreationTimestamp.Time).NotTo(BeTemporally("<", host.History().Since(began)[0].At.Truncate(time.Second)), "after its host was off")
		Expect(after.Labels).To(HaveKeyWithValue(key, value))
		Expect(after.Annotations).To(HaveKeyWithValue(key, value))
		done := &mendv1.HostRemediation{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), done)).To(Succeed())
		Expect(done.Annotations).NotTo(Or(HaveKey(infrav1.NodeLabelsBackupAnnotation), HaveKey(infrav1.NodeAnnotationsBackupAnnotation)), "what was given back")
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})

// mustStayOn forbids to power a host off, until the spec ends.
func mustStayOn(ctx context.Context, host *simulator.Host) {
	GinkgoHelper()
	set := func(ctx context.Context, never bool) {
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
		before := bmh.DeepCopy()
		bmh.Spec.DisablePowerOff = never
		Expect(here.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
	}
	set(ctx, true)
	DeferCleanup(func(ctx SpecContext) { set(ctx, false) })
}

// edit changes a node, and retries when another client has written to it at the same time.
func (env *environment) edit(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Eventually(func() error {
		node := env.Node(ctx, name)
		before := node.DeepCopy()
		change(node)
		return env.There.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}).Should(Succeed())
}

// changes are what a history is about.
func changes(history simulator.History) []simulator.Power {
	var all []simulator.Power
	for _, change := range history {
		all = append(all, change.To)
	}
	return all
}
