package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// ladder is the check of templates/, which asks the agent on the node first and then has the host power-cycled.
const ladder = "itself-workers"

var _ = Describe("A ladder", func() {
	BeforeEach(func(ctx SpecContext) {
		allHealthy(ctx)
		escalates(ctx)
		noRecords(ctx)
	})
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("whose first step fails continues with the host of the node's Machine, and cleans up", func(ctx SpecContext) {
		name := metal.WorkerNames(ctx)[0]
		takesItsTime(metal.Host(name))
		identity, began := metal.Machine(ctx, name).UID, time.Now()
		seen := follow(ctx, agent, host)

		silence(name)

		first := requested(ctx, agent, agentNamespace, name)
		Expect(first.GetOwnerReferences()).To(ContainElement(HaveField("UID", check(ctx, ladder).UID)))
		lease := &coordinationv1.Lease{}
		Expect(here.Get(ctx, client.ObjectKey{Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + name}, lease)).To(Succeed())
		Expect(ptr.Deref(lease.Spec.HolderIdentity, "")).To(Equal(nhcv1.LeaseHolderPrefix + ladder))
		second := requested(ctx, host, namespace, name)
		Expect(second.GetOwnerReferences()).To(And(ContainElement(HaveField("UID", identity)), ContainElement(HaveField("UID", check(ctx, ladder).UID))))
		Expect(requested(ctx, agent, agentNamespace, name).GetAnnotations()).To(HaveKey(nhcv1.TimedOutAnnotation), "the first one is stopped before the next one starts")
		written := recordsOf(ctx, identity)
		Expect(written).To(ConsistOf(agentNamespace+"/"+first.GetAnnotations()[mendv1.RecordAnnotation]), "one of both requests, in the namespace of the first one")
		Expect(second.GetAnnotations()).To(HaveKeyWithValue(mendv1.RecordAnnotation, written[0]))

		Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue))
		Eventually(none(ctx, agent, host)).Should(BeEmpty())
		Eventually(counts(ctx, ladder)).Should(Equal("4 of 4"))
		Expect(changes(metal.Host(name).History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		Expect(metal.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
		Eventually(seen.all).Should(Equal([]string{"SelfNodeRemediation " + name, "HostRemediation " + name}))
		nothingIsLeft(ctx)
	}, SpecTimeout(specPatience))
})

// recordsOf are the records of a Machine's remediations, as namespace/name.
func recordsOf(ctx context.Context, machine types.UID) (found []string) {
	GinkgoHelper()
	all := &mendv1.RemediationRecordList{}
	Expect(here.List(ctx, all, client.MatchingLabels{mendv1.RecordTargetLabel: string(machine)})).To(Succeed())
	for i := range all.Items {
		found = append(found, records.Carried(&all.Items[i], ""))
	}
	return found
}

// noRecords removes all records: one that is open still would be taken for the next remediation of its Machine.
func noRecords(ctx context.Context) {
	GinkgoHelper()
	all := &mendv1.RemediationRecordList{}
	Expect(here.List(ctx, all)).To(Succeed())
	for i := range all.Items {
		Expect(client.IgnoreNotFound(here.Delete(ctx, &all.Items[i]))).To(Succeed())
	}
}

// agentNamespace is where the agent's template is.
const agentNamespace = "default"

// escalates makes the check of templates/ with the template of its last step, and waits until it has observed all workers.
func escalates(ctx context.Context) {
	GinkgoHelper()
	reboots, err := builders.Template("host-remediation-template.yaml", map[string]string{
		"CLUSTER_NAME": "itself", "NAMESPACE": namespace, "TIMEOUT_SECONDS": "100", "BOOT_TIMEOUT_SECONDS": "100",
	})
	Expect(err).NotTo(HaveOccurred())
	escalates, err := builders.Template("node-health-check-workers-escalating.yaml", map[string]string{
		"CLUSTER_NAME": "itself", "NAMESPACE": namespace, "NODE_UNHEALTHY_TIMEOUT": "2s", "SELF_NODE_REMEDIATION_TIMEOUT": "1m",
		"STORM_COOLDOWN": "20s", // nodes come back one by one
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(builders.Apply(ctx, here, reboots, escalates)).To(Succeed())
	Eventually(counts(ctx, ladder)).Should(Equal("4 of 4"))
	Eventually(said(ctx, ladder, nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
}

// takesItsTime slows a host down for as long as the spec runs, so that the remediation can be observed.
func takesItsTime(h *simulator.Host) {
	h.Take(simulator.Times{PowerOff: time.Second, PowerOn: time.Second, Boot: time.Second})
	DeferCleanup(func() { h.Take(simulator.Times{}) })
}

func changes(history simulator.History) []simulator.Power {
	var all []simulator.Power
	for _, change := range history {
		all = append(all, change.To)
	}
	return all
}
