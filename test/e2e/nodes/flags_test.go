package nodes

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	served   = "kubemend_kind_served"
	checkCRD = "nodehealthchecks.remediation.medik8s.io"
	// olmLabel is what the Operator Lifecycle Manager puts on the kinds that it installs, with the name of their operator.
	olmLabel = "operators.coreos.com/node-healthcheck-operator.ns"
)

var ofChecks = fmt.Sprintf("kind=%q", checkCRD)

var _ = Describe("The flag --node-health-checks", func() {
	BeforeEach(func(ctx SpecContext) {
		allHealthy(ctx)
		olm(ctx, true)
	})
	AfterEach(func(ctx SpecContext) {
		olm(ctx, false)
		restartManager(ctx)
		leaveAsFound(ctx)
	})

	It("decides whether NodeHealthChecks are acted on, and a metric says why they are not", func(ctx SpecContext) {
		By("leaving them to the operator that the Operator Lifecycle Manager installed")
		restartManager(ctx)
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason="Foreign"`)).Should(Equal("0"))
		Expect(here.Create(ctx, pointless("unseen"))).To(Succeed())
		unseen := func() []metav1.Condition { return check(ctx, "unseen").Status.Conditions }
		Consistently(unseen).Should(BeEmpty())

		By("taking them over when the kind is free")
		olm(ctx, false)
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason=""`)).Should(Equal("1"))
		Eventually(unseen).ShouldNot(BeEmpty())

		By("giving them back when it is not")
		olm(ctx, true)
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason="Foreign"`)).Should(Equal("0"))
		Expect(here.Create(ctx, pointless("left-alone"))).To(Succeed())
		leftAlone := func() []metav1.Condition { return check(ctx, "left-alone").Status.Conditions }
		Consistently(leftAlone).Should(BeEmpty())

		By("acting whichever project installed the kind")
		restartManager(ctx, "--node-health-checks=on")
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason=""`)).Should(Equal("1"))
		Eventually(leftAlone).ShouldNot(BeEmpty())

		By("not acting at all")
		restartManager(ctx, "--node-health-checks=off")
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason="Off"`)).Should(Equal("0"))
		Expect(here.Create(ctx, pointless("ignored"))).To(Succeed())
		Consistently(func() []metav1.Condition { return check(ctx, "ignored").Status.Conditions }).Should(BeEmpty())
	}, SpecTimeout(specPatience))
})

// pointless is a check with a template that does not exist, so that all it can come to is to say so.
func pointless(name string) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selector.MatchLabels = map[string]string{"none": "none"}
	c.Spec.RemediationTemplate = &corev1.ObjectReference{
		APIVersion: agent.GroupVersion().String(), Kind: agent.Kind + "Template", Namespace: metav1.NamespaceDefault, Name: "none",
	}
	return c
}

// olm labels the kind as the Operator Lifecycle Manager would, or takes the label off.
func olm(ctx context.Context, installed bool) {
	GinkgoHelper()
	value := "null"
	if installed {
		value = `""`
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName(checkCRD)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, olmLabel, value)
	Expect(here.Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

var _ = Describe("The flag --default-node-health-check-template", func() {
	const flag = "--default-node-health-check-template=SelfNodeRemediationTemplate.v1alpha1.self-node-remediation.medik8s.io/" +
		"default/self-node-remediation-automatic-strategy-template"

	BeforeEach(func(ctx SpecContext) { allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) {
		restartManager(ctx)
		leaveAsFound(ctx)
	})

	It("makes the check nhc-worker-default, once, and only if there is none (seed 1.1)", func(ctx SpecContext) {
		By("making none beside another one")
		Expect(here.Create(ctx, pointless("another"))).To(Succeed())
		restartManager(ctx, flag)
		Eventually(said(ctx, "another", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		Expect(names(ctx)).To(Equal([]string{"another"}))

		By("making it where there is none")
		Expect(here.Delete(ctx, pointless("another"))).To(Succeed())
		restartManager(ctx, flag)
		Eventually(func() []string { return names(ctx) }).Should(Equal([]string{"nhc-worker-default"}))
		Eventually(counts(ctx, "nhc-worker-default")).Should(Equal("4 of 4"))
		Eventually(said(ctx, "nhc-worker-default", nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		made := check(ctx, "nhc-worker-default")
		Expect(made.Spec.RemediationTemplate.Name).To(Equal("self-node-remediation-automatic-strategy-template"))

		By("leaving it as its owner wants it")
		Expect(here.Patch(ctx, made, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"minHealthy":3}}`)))).To(Succeed())
		restartManager(ctx, flag)
		Eventually(suite.Metric(ctx, manager, served, ofChecks, `reason=""`)).Should(Equal("1"))
		Eventually(suite.Metric(ctx, manager, "kubemend_nodehealthcheck_targets", `name="nhc-worker-default"`, `state="healthy"`)).Should(Equal("4"))
		Expect(names(ctx)).To(Equal([]string{"nhc-worker-default"}))
		kept := check(ctx, "nhc-worker-default")
		Expect(kept.UID).To(Equal(made.UID))
		Expect(kept.Spec).To(Equal(made.Spec))
	}, SpecTimeout(specPatience))
})

// names are those of all checks.
func names(ctx context.Context) []string {
	GinkgoHelper()
	list := &nhcv1.NodeHealthCheckList{}
	Expect(here.List(ctx, list)).To(Succeed())
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return all
}
