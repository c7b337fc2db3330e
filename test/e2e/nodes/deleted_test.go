package nodes

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
		Eventually(owners(ctx, asked)).Should(ConsistOf(HaveField("UID", metal.Machine(ctx, name).UID)), "the garbage collector is done with it")
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
