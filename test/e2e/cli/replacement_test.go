package cli

import (
	"context"
	"reflect"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// late is how long after the announced moment a busy machine may take until the announced event is seen. What is announced is further away than that, and the
// report entries of the specs say by how much it was late.
const late = 45 * time.Second

// asAnnounced matches a moment that is not before the announced one, which may be rounded to whole seconds, and soon after it.
func asAnnounced(moment time.Time) types.GomegaMatcher {
	return And(BeTemporally(">=", moment.Add(-time.Second)), BeTemporally("<", moment.Add(late)))
}

var _ = Describe("For a worker whose kubelet falls silent", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("explain says at every step what happens next, and that happens", func(ctx SpecContext) {
		check := fixture.checked(ctx, "workers", builders.Claimed, builders.Patience(drilled))
		resume := fixture.pauseTheOwner(ctx)
		before := fixture.WorkerNames(ctx)
		provider.RefuseToStart(func(m client.ObjectKey) bool {
			return m.Namespace == fixture.Namespace && !slices.Contains(before, m.Name)
		})
		DeferCleanup(func() { provider.RefuseToStart(nil) })
		lost := before[0]
		owner := metav1.GetControllerOf(fixture.Machine(ctx, lost))
		Expect(explained(ctx, "machine/"+lost).Message).To(Equal("HEALTHY"))
		turned := fixture.ownerRequested(ctx, lost)

		fixture.silence(lost)

		By("pending")
		announced := announcements(ctx, lost)
		Expect(announced).NotTo(BeEmpty(), "the first question was asked while the machine was pending")
		Expect(slices.CompactFunc(announced, func(a, b cliv1.Step) bool { return reflect.DeepEqual(a, b) })).To(HaveLen(1), "nothing changes meanwhile")
		Expect(announced[0].Manual).To(BeFalse())
		Expect(announced[0].Message).To(HaveSuffix(
			"counts as unhealthy unless Ready, and kubemend asks its owner, MachineSet " + owner.Name + ", to remediate it"))
		var at time.Time
		Eventually(turned).Should(Receive(&at))
		Expect(at).To(asAnnounced(announced[0].Time.Time), "owner remediation is requested at the announced moment")
		AddReportEntry("owner remediation requested after the announced moment", at.Sub(announced[0].Time.Time).String())

		By("under way")
		e := explained(ctx, "machine/"+lost)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, BEING REMEDIATED: MachineSet " + owner.Name))
		Expect(targetOf(e).InFlight).To(BeTrue())
		Expect(targetOf(e).Blockers).To(BeEmpty())
		Expect(targetOf(e).Message).To(HavePrefix("OwnerRemediated=False (WaitingForRemediation)"))
		Expect(e.Next.Time).To(BeNil(), "it is not time that it waits for")
		Expect(e.Next.Manual).To(BeFalse())
		Expect(e.Next.Message).To(HaveSuffix(owner.Name + " replaces it, or reports in OwnerRemediated why it does not"))

		resume(ctx)

		By("replaced")
		fresh := newcomer(ctx, before)
		e = starting(ctx, fresh)
		counts := slices.IndexFunc(targetOf(e).Startup, func(s cliv1.Milestone) bool { return s.Latest })
		Expect(counts).NotTo(BeNumerically("<", 0), "%+v", targetOf(e).Startup)
		latest := slices.MaxFunc(targetOf(e).Startup, func(a, b cliv1.Milestone) int { return a.Time.Compare(b.Time.Time) })
		Expect(targetOf(e).Startup[counts].Time.Time).To(BeTemporally("==", latest.Time.Time))
		Expect(check.Spec.Checks.NodeStartupTimeoutSeconds).NotTo(BeNil())
		patience := time.Duration(*check.Spec.Checks.NodeStartupTimeoutSeconds) * time.Second
		Expect(e.Next.Time.Time).To(BeTemporally("==", latest.Time.Time.Add(patience)))
		Expect(e.Message).To(HavePrefix("STARTING: unhealthy at "))

		By("well")
		fixture.boots(ctx, fresh)
		fixture.AllWell(ctx)
		Eventually(func() string { return explained(ctx, "machine/"+fresh).Message }).Should(Equal("HEALTHY"))
		Eventually(func() string { return explained(ctx, "machine/"+lost).Message }).Should(HavePrefix("REPLACED: "+fresh), "its record outlives it")
	}, SpecTimeout(specPatience))
})

// announcements are what explain says will happen next to a machine while it is pending, each time that it is asked, until it is unhealthy.
func announcements(ctx context.Context, name string) []cliv1.Step {
	GinkgoHelper()
	var all []cliv1.Step
	Eventually(func() cliv1.State {
		e := explained(ctx, "machine/"+name)
		t := targetOf(e)
		if t.State == cliv1.StatePending {
			Expect(e.Time.Time).To(BeTemporally("<=", e.Next.Time.Time), "it is not late")
			Expect(e.Next).To(Equal(*t.Next))
			Expect(holdOf(t, "WithinTimeout").Until.Time).To(BeTemporally("==", e.Next.Time.Time))
			all = append(all, e.Next)
		}
		return t.State
	}).Should(Equal(cliv1.StateUnhealthy))
	return all
}

// newcomer waits for a worker that was not there before.
func newcomer(ctx context.Context, before []string) (name string) {
	GinkgoHelper()
	Eventually(func() bool {
		for _, name = range fixture.WorkerNames(ctx) {
			if !slices.Contains(before, name) {
				return true
			}
		}
		return false
	}).Should(BeTrue())
	return name
}

// starting is what explain says of a machine that has no node yet.
func starting(ctx context.Context, name string) *cliv1.Explanation {
	GinkgoHelper()
	var e *cliv1.Explanation
	Eventually(func() cliv1.State {
		e = explained(ctx, "machine/"+name)
		return targetOf(e).State
	}).Should(Equal(cliv1.StateStarting))
	return e
}

// boots starts the kubelet of a machine, which did not start by itself, once its host is provisioned.
func (env *environment) boots(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		m := env.Machine(ctx, name)
		g.Expect(conditions.IsTrue(m, clusterv1.MachineInfrastructureReadyCondition)).To(BeTrue())
		kubelet := provider.Kubelet(client.ObjectKeyFromObject(m))
		g.Expect(kubelet).NotTo(BeNil())
		kubelet.Start()
	}).Should(Succeed())
}
