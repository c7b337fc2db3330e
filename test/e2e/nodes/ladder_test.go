package nodes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
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

		silence(name)

		first := requested(ctx, agent, agentNamespace, name)
		Expect(first.GetOwnerReferences()).To(ContainElement(HaveField("UID", check(ctx, ladder).UID)))
		lease := &coordinationv1.Lease{}
		Expect(here.Get(ctx, client.ObjectKey{Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + name}, lease)).To(Succeed())
		Expect(ptr.Deref(lease.Spec.HolderIdentity, "")).To(Equal(nhcv1.LeaseHolderPrefix + ladder))
		second := requested(ctx, host, namespace, name)
		Expect(second.GetOwnerReferences()).
			To(And(ContainElement(HaveField("UID", identity)), ContainElement(HaveField("UID", check(ctx, ladder).UID))))
		Expect(requested(ctx, agent, agentNamespace, name).GetAnnotations()).
			To(HaveKey(nhcv1.TimedOutAnnotation), "the first one is stopped before the next one starts")
		written := recordsOf(ctx, identity)
		Expect(written).To(ConsistOf(agentNamespace+"/"+first.GetAnnotations()[mendv1.RecordAnnotation]),
			"one of both requests, in the namespace of the first one")
		Expect(second.GetAnnotations()).To(HaveKeyWithValue(mendv1.RecordAnnotation, written[0]))

		Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue))
		Eventually(none(ctx, agent, host)).Should(BeEmpty())
		Eventually(counts(ctx, ladder)).Should(Equal("4 of 4"))
		Expect(changes(metal.Host(name).History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		Expect(metal.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
		Expect(made(began)).To(Equal([]string{"selfnoderemediations " + name, "hostremediations " + name}))
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
	reboots := suite.Must(builders.Template("host-remediation-template.yaml", map[string]string{
		"CLUSTER_NAME": "itself", "NAMESPACE": namespace, "TIMEOUT_SECONDS": "100", "BOOT_TIMEOUT_SECONDS": "100",
	}))
	escalates := suite.Must(builders.Template("node-health-check-workers-escalating.yaml", map[string]string{
		"CLUSTER_NAME": "itself", "NAMESPACE": namespace, "NODE_UNHEALTHY_TIMEOUT": "2s", "SELF_NODE_REMEDIATION_TIMEOUT": "1m",
		"STORM_COOLDOWN": "20s", // nodes come back one by one
	}))
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

// A Machine owns the request too, so the garbage collector of Kubernetes deletes nothing, but takes away the reference to the check.
var _ = Describe("A check that is deleted while the host of a node's Machine is power-cycled", func() {
	BeforeEach(func(ctx SpecContext) {
		allHealthy(ctx)
		escalates(ctx)
		deletable(ctx)
	})
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	owners := func(ctx context.Context, asked *unstructured.Unstructured) func() []metav1.OwnerReference {
		return func() []metav1.OwnerReference {
			return requested(ctx, asked.GroupVersionKind(), asked.GetNamespace(), asked.GetName()).GetOwnerReferences()
		}
	}

	It("has its request deleted, and host and node released, as soon as a manager runs", func(ctx SpecContext) {
		name := metal.WorkerNames(ctx)[0]
		takesItsTime(metal.Host(name))
		silence(name)
		asked := requested(ctx, host, namespace, name)
		Eventually(metal.Host(name).Powered).Should(BeFalse())
		manager.Kill()

		Expect(here.Delete(ctx, check(ctx, ladder))).To(Succeed())
		Eventually(owners(ctx, asked)).
			Should(ConsistOf(HaveField("UID", metal.Machine(ctx, name).UID)), "the garbage collector is done with it")
		startManager(ctx)

		Eventually(none(ctx, agent, host)).Should(BeEmpty())
		Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue), "its host is released")
		nothingIsLeft(ctx)
	}, SpecTimeout(specPatience))
})

// deletable lets checks be deleted during a remediation for as long as the spec runs, as where no webhook runs.
func deletable(ctx context.Context) {
	GinkgoHelper()
	list := &admissionv1.ValidatingWebhookConfigurationList{}
	Expect(here.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		is := &list.Items[i]
		at := slices.IndexFunc(is.Webhooks, func(w admissionv1.ValidatingWebhook) bool {
			return w.Name == "delete.nodehealthcheck.remediation.medik8s.io"
		})
		if at < 0 {
			continue
		}
		asked := is.Webhooks[at].Rules[0].Operations
		set := func(ctx context.Context, operations []admissionv1.OperationType) {
			GinkgoHelper()
			before := is.DeepCopy()
			is.Webhooks[at].Rules[0].Operations = operations
			Expect(here.Patch(ctx, is, client.MergeFrom(before))).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) { set(ctx, asked) })
		set(ctx, []admissionv1.OperationType{admissionv1.Create})
		return
	}
	Fail("there is no webhook for NodeHealthChecks")
}

const sample = "nodehealthcheck-sample"

// The manifests are those of medik8s' and OKD's documentation. Their remediators know nothing of kubemend, and bring their own rights.
var _ = Describe("The manifests of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("of OKD begin nothing while they are paused, and then have a worker remediated by Poison Pill (seed 001)", func(ctx SpecContext) {
		createObjects(ctx, suite.Seed("001/nodehealthcheck.yaml"))
		Eventually(said(ctx, sample, nhcv1.DisabledCondition)).
			Should(Equal("True/RemediationTemplateForbidden"), "its remediator has not come yet, with its rights")
		create(ctx, filepath.Join("testdata", "seed-001-remediator.yaml"))
		create(ctx, filepath.Join("..", "..", "..", "controllers", "nodehealthcheck", "testdata", "roles", "poison-pill-0.1.yaml"))
		Eventually(said(ctx, sample, nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Eventually(counts(ctx, sample)).Should(Equal("4 of 4"), "the control plane is not selected")
		name := metal.WorkerNames(ctx)[1]

		longSilent(ctx, name, sample)

		Eventually(counts(ctx, sample)).Should(Equal("3 of 4"))
		Expect(check(ctx, sample).Status.Phase).To(Equal(nhcv1.PhasePaused))
		Expect(none(ctx, pill)()).To(BeEmpty())
		unpause := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"pauseRequests":null}}`))
		Expect(here.Patch(ctx, check(ctx, sample), unpause)).To(Succeed())
		asked := requested(ctx, pill, "openshift-operators", name)
		Expect(asked.Object["spec"]).To(Equal(map[string]any{"remediationStrategy": "NodeDeletion"}))
		ownedByCheck(ctx, asked)
		comesBack(ctx, name)
	}, SpecTimeout(specPatience))
})

// ownedByCheck checks that a request says who made it, as the documentation shows it.
func ownedByCheck(ctx context.Context, asked *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(asked.GetOwnerReferences()).To(ContainElement(And(
		HaveField("APIVersion", nhcv1.GroupVersion.String()), HaveField("Kind", "NodeHealthCheck"),
		HaveField("Name", sample), HaveField("UID", check(ctx, sample).UID))))
}

// comesBack waits until a node is healthy and the requests for it are gone. None of it needed a right that the manager does not have.
func comesBack(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue))
	Eventually(none(ctx, pill)).Should(BeEmpty())
	Eventually(func() []nhcv1.UnhealthyNode { return check(ctx, sample).Status.UnhealthyNodes }).Should(BeEmpty())
	Eventually(told(ctx, sample, nhcv1.EventRemediationCreated)).Should(BeTrue())
	Eventually(told(ctx, sample, nhcv1.EventRemediationRemoved)).Should(BeTrue())
	Eventually(func() nhcv1.Phase { return check(ctx, sample).Status.Phase }).Should(Equal(nhcv1.PhaseEnabled))
	log := suite.Must(os.ReadFile(manager.Log))
	Expect(string(log)).NotTo(MatchRegexp(`cannot (create|update|patch|delete)`))
}
