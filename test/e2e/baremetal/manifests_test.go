package baremetal

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// The manifests are those of Metal3's documentation, as printed: in v1beta1, for checks and for templates.
var _ = Describe("The manifests of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("have a worker power-cycled, with the retries and the timeout that they ask for", func(ctx SpecContext) {
		applied(ctx, "003/workers.yaml")
		name := fixture.WorkerNames(ctx)[0]
		identity, host, began := fixture.Machine(ctx, name).UID, fixture.Host(name), time.Now()
		host.Take(simulator.Times{PowerOff: 2 * time.Second}) // so that the request can be observed
		DeferCleanup(func() { host.Take(simulator.Times{}) })

		fixture.silence(ctx, name)

		asked := &infrav1beta1.Metal3Remediation{}
		Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, asked) }).Should(Succeed())
		Expect(asked.Spec.Strategy).NotTo(BeNil())
		Expect(asked.Spec.Strategy.RetryLimit).To(Equal(2))
		Expect(asked.Spec.Strategy.Timeout).NotTo(BeNil())
		Expect(asked.Spec.Strategy.Timeout.Duration).To(Equal(5 * time.Minute))
		fixture.cycled(ctx, name, identity, began)
		Eventually(fixture.recordedEvents(ctx, theirs.name, name, began)).Should(And(HaveKey("Fenced"), freed))
	}, SpecTimeout(specPatience))
})

// cycled waits until a silenced machine was power-cycled once and is healthy, and nothing of its remediation is left.
func (env *environment) cycled(ctx context.Context, name string, identity types.UID, began time.Time) {
	GinkgoHelper()
	host := env.Host(name)
	Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
	Eventually(func() corev1.ConditionStatus { return env.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
	Eventually(func() bool { return env.gone(ctx, theirs, name) }).Should(BeTrue())
	env.nothingIsLeft(ctx, host, name)
	Expect(env.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
}

// applied creates the objects of a printed manifest as they are, and then claims the check for kubemend, until the spec ends.
func applied(ctx context.Context, file string) {
	GinkgoHelper()
	for _, object := range suite.Seed(file) {
		Expect(here.Create(ctx, object, client.FieldValidation("Strict"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		if object.GetKind() != "MachineHealthCheck" {
			continue
		}
		check := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(object), check)).To(Succeed())
		before := check.DeepCopy()
		builders.Claimed(check)
		Expect(here.Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
	}
}

// The recipe docs/recipes/power-cycle-only.md, as it is printed, but for names and a timeout of two seconds.
var _ = Describe("A check that stays with Cluster API core and names a HostRemediationTemplate", func() {
	It("has a host power-cycled by kubemend, which writes nothing to the check", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		name := fixture.WorkerNames(ctx)[0]
		identity, host, began := fixture.Machine(ctx, name).UID, fixture.Host(name), time.Now()
		host.Take(simulator.Times{Boot: 5 * time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		check := fixture.follows(ctx, "power-cycle-only")

		host.Kubelet().Stop()

		Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).Should(BeTrue(), "core deletes its request when the machine is healthy")
		fixture.nothingIsLeft(ctx, host, name)
		Expect(fixture.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
		Eventually(fixture.recordedEvents(ctx, ours.name, name, began)).Should(And(freed, HaveKey("Fenced")))

		now := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
		Expect(now.Annotations).NotTo(HaveKey(clusterv1.PausedAnnotation))
		Expect(suite.Written(management, "machinehealthchecks", began, "")).NotTo(ContainElement(check.GetName()), "the check is core's")
	}, SpecTimeout(specPatience))
})

// follows applies the manifests of a recipe to the workers of the environment, for as long as the spec runs, and returns the check.
func (env *environment) follows(ctx context.Context, recipe string) *unstructured.Unstructured {
	GinkgoHelper()
	var check *unstructured.Unstructured
	for _, o := range suite.Printed(filepath.Join("..", "..", "..", "docs", "recipes", recipe+".md")) {
		o.SetNamespace(env.Namespace)
		if o.GetKind() == "MachineHealthCheck" {
			check = o
			Expect(unstructured.SetNestedField(o.Object, env.Name, "spec", "clusterName")).To(Succeed())
			pool := map[string]string{clusterv1.MachineDeploymentNameLabel: env.Pool()}
			Expect(unstructured.SetNestedStringMap(o.Object, pool, "spec", "selector", "matchLabels")).To(Succeed())
			rules, _, err := unstructured.NestedSlice(o.Object, "spec", "checks", "unhealthyNodeConditions")
			Expect(err).NotTo(HaveOccurred())
			for _, rule := range rules {
				rule.(map[string]any)["timeoutSeconds"] = int64(2)
			}
			Expect(unstructured.SetNestedSlice(o.Object, rules, "spec", "checks", "unhealthyNodeConditions")).To(Succeed())
		}
		Expect(here.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(here.Delete(ctx, o, &client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))).To(Succeed())
		})
	}
	Expect(check).NotTo(BeNil())
	return check
}
