package baremetal

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

	It("have three control-plane hosts that fail at once power-cycled in turn", func(ctx SpecContext) {
		applied(ctx, "003/control-plane.yaml")
		names := fixture.ControlPlaneNames(ctx)
		identities, began := map[string]types.UID{}, time.Now()
		for _, name := range names {
			identities[name] = fixture.Machine(ctx, name).UID
			fixture.Host(name).Take(simulator.Times{PowerOff: 500 * time.Millisecond, PowerOn: 500 * time.Millisecond, Boot: 500 * time.Millisecond})
		}
		DeferCleanup(func() {
			for _, name := range names {
				fixture.Host(name).Take(simulator.Times{})
			}
		})

		for _, name := range names {
			fixture.silence(ctx, name)
		}

		var histories []simulator.History
		for _, name := range names {
			fixture.cycled(ctx, name, identities[name], began)
			histories = append(histories, fixture.Host(name).History().Since(began))
		}
		Expect(simulator.MostOff(histories...)).To(Equal(1), "off at the same time")
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
