package cli

import (
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

var _ = Describe("For three workers of five whose kubelets fall silent", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("explain counts and names the machines above the limit, and says what ends the short-circuit, live and from a recording", func(ctx SpecContext) {
		check := fixture.checked(ctx, "workers", builders.Claimed, builders.Patience(drilled))
		fixture.pauseTheOwner(ctx) // so that the machines come back
		lost := fixture.WorkerNames(ctx)[:3]

		fixture.silence(lost...)

		By("too many")
		var e *cliv1.Explanation
		Eventually(func(g Gomega) {
			e = explained(ctx, "mhc/"+check.Name)
			g.Expect(e.Checks[0].Population.Unhealthy).To(Equal(3))
			// A machine whose kubelet is silent for a moment, as where nothing runs for that long, is pending, and back.
			g.Expect(e.Checks[0].NotHealthy).To(Equal([]cliv1.Group{{Class: "unhealthy", Names: lost}}))
		}).Should(Succeed())
		Expect(e.Message).To(Equal("UNHEALTHY, NOT REMEDIATED: TooManyUnhealthy (3 of 5, limit 2)"))
		Eventually(func() map[string]string { return said(fixture.stored(ctx, check.Name).Status.Conditions) }).Should(
			Equal(said(e.Checks[0].Conditions)), "the check says of itself what explain says of it")
		for _, name := range lost {
			e := explained(ctx, "machine/"+name)
			Expect(e.Next.Message).To(HaveSuffix("at most 2 of 5 are not healthy (now 3)"))
			Expect(e.Next.Time).To(BeNil())
			Expect(holdOf(targetOf(e), "TooManyUnhealthy").Message).To(ContainSubstring("3 of 5 targets are not healthy"))
			Expect(e.Checks[0].CountedByStatus).To(BeTrue())
			e = parsed[cliv1.Explanation](mend(ctx, "explain", "machine/"+name, "--full", "-o", "json"))
			Expect(e.Checks[0].NotHealthy).To(Equal([]cliv1.Group{{Class: "unhealthy", Names: lost}}))
		}
		row := parsed[cliv1.Status](mend(ctx, "status", "-o", "json")).Items
		Expect(row).To(HaveLen(1))
		Expect(row[0].Reason).To(Equal("TooManyUnhealthy"))
		Expect(row[0].Population.Healthy).To(Equal(2))
		Consistently(func(g Gomega) {
			for _, name := range lost {
				g.Expect(conditions.Has(fixture.Machine(ctx, name), clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), name)
			}
		}).Should(Succeed())

		By("printed for programs, and waited for")
		blocked := "machine.cluster.x-k8s.io/" + lost[0]
		for format, want := range map[string]string{
			"name": blocked + "\n", "jsonpath={.phase} {.reason}": "Blocked TooManyUnhealthy", "go-template={{.phase}}": "Blocked",
			"custom-columns=NAME:.subject.name,PHASE:.phase": fmt.Sprintf("%-*s   PHASE\n%s   Blocked\n", len(lost[0]), "NAME", lost[0]),
		} {
			Expect(mend(ctx, "explain", "machine", lost[0], "-o", format).out).To(Equal(want), format)
		}
		Expect(mend(ctx, "status", "-o", "custom-columns=NAME:.name,BAD:.population.notHealthy").out).To(MatchRegexp(`^NAME +BAD\n` + check.Name + ` +3\n$`))
		Expect(mend(ctx, "explain", "machine/"+lost[0], "--exit-code").code).To(Equal(12))
		Expect(mend(ctx, "wait", "machine/"+lost[0], "--for=blocked").out).To(Equal(blocked + " condition met\n"))
		late := mend(ctx, "wait", "machine/"+lost[0], "--for=healthy", "--timeout=1s")
		Expect(late.code).To(Equal(1))
		Expect(late.complaint).To(ContainSubstring("timed out waiting for healthy on machine/" + lost[0] + ": it is Blocked (TooManyUnhealthy)"))

		By("recorded")
		file := filepath.Join(GinkgoT().TempDir(), "recorded.json.gz")
		Expect(mend(ctx, "record", "-o", file).code).To(Equal(done))
		for _, asked := range [][]string{{"explain", "machine/" + lost[0], "--full"}, {"explain", "mhc/" + check.Name}, {"status"}} {
			asked = append(asked, "-o", "json")
			recorded := start(ctx, append([]string{"--kubeconfig", filepath.Join(GinkgoT().TempDir(), "none"), "-n", fixture.Namespace, "--from", file}, asked...)...)
			Expect(timeless(recorded)).To(Equal(timeless(mend(ctx, asked...))), "%v", asked)
		}

		By("one is back")
		back := lost[2]
		turned := []<-chan time.Time{fixture.ownerRequested(ctx, lost[0]), fixture.ownerRequested(ctx, lost[1])}
		fixture.Host(back).Kubelet().Start()
		for _, t := range turned {
			Eventually(t).Should(Receive())
		}
		Expect(conditions.Has(fixture.Machine(ctx, back), clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse())
		e = explained(ctx, "mhc/"+check.Name)
		Expect(e.Message).To(And(HavePrefix("UNHEALTHY, BEING REMEDIATED: "), HaveSuffix("; 2 of 5 not healthy, 2 being remediated")))

		healed := make(chan ran, 1)
		go func() {
			defer GinkgoRecover()
			healed <- mend(ctx, "wait", "machine/"+lost[0], "--for=remediated", "--timeout=2m")
		}()
		for _, name := range lost {
			fixture.Host(name).Kubelet().Start()
		}
		var waited ran
		Eventually(healed).Should(Receive(&waited))
		Expect(waited.code).To(Equal(done), waited.complaint)
		Expect(waited.out).To(Equal("machine.cluster.x-k8s.io/" + lost[0] + " condition met\n"))
		Eventually(func() string { return explained(ctx, "mhc/"+check.Name).Message }).Should(Equal("HEALTHY: 5 of 5"))
	}, SpecTimeout(specPatience))
})

// timeless is what a run has said, but for when it was asked, and what it says of itself.
func timeless(r ran) map[string]any {
	GinkgoHelper()
	all := *parsed[map[string]any](r)
	for _, name := range []string{"time", "notes"} {
		delete(all, name)
	}
	if managers, is := all["managers"].([]any); is {
		for _, m := range managers {
			delete(m.(map[string]any), "renewed")
		}
	}
	return all
}
