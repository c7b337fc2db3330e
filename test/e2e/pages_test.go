package e2e

import (
	"context"
	"path/filepath"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/fences"
)

var _ = Describe("The commands of the page", fencing, func() {
	BeforeEach(func(ctx SpecContext) {
		mayFence(ctx)
		fixture.AllWell(ctx)
	})

	It("docs/claim-by-policy.md claim the checks by a label, and release them", func(ctx SpecContext) {
		check := checked(ctx, "labelled")
		reader := aUser(ctx, nil)
		claimed := false
		reader.after = func(fences.Block) { // a later block removes the labels
			if !claimed {
				Eventually(func(g Gomega) { g.Expect(stored(ctx, g, check).Annotations).To(HaveKey(clusterv1.PausedAnnotation)) }).Should(Succeed())
			}
			claimed = true
		}
		Expect(reader.follows(ctx, "docs/claim-by-policy.md")).To(And(ContainSubstring(" labeled"), ContainSubstring(" unlabeled")))
		Eventually(func(g Gomega) {
			var seen []string
			events := &eventsv1.EventList{}
			g.Expect(here.List(ctx, events, client.InNamespace(fixture.Namespace))).To(Succeed())
			for _, e := range events.Items {
				if e.Regarding.Name == check.Name {
					seen = append(seen, e.Reason)
				}
			}
			g.Expect(seen).To(ContainElements("CheckClaimed", "CheckReleased"))
			g.Expect(stored(ctx, g, check).Annotations).NotTo(HaveKey(clusterv1.PausedAnnotation))
		}).Should(Succeed())
	}, SpecTimeout(specPatience))

	DescribeTable("about one check claim it and release it", func(ctx SpecContext, page string) {
		check := checked(ctx, "my-check")
		out := aUser(ctx, map[string]string{"NAME": nodesChecked(ctx)}).follows(ctx, page)
		Expect(out).To(And(MatchRegexp(`mhc/my-check .*claimed`), MatchRegexp(`mhc/my-check .*released`)))
		Expect(stored(ctx, Default, check).Annotations).NotTo(HaveKey(clusterv1.PausedAnnotation))
	},
		Entry(nil, SpecTimeout(specPatience), "docs/coexistence.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/choose-your-setup.md"),
	)

	DescribeTable("about what there is run, and print it", func(ctx SpecContext, page string, prints ...string) {
		checked(ctx, "my-check", builders.Claimed)
		machine := fixture.WorkerNames(ctx)[0]
		meant := map[string]string{
			"NAMESPACE|NS": fixture.Namespace, "CLUSTER": fixture.Name, "MACHINE": machine, "CHECK": "my-check", "NAME": "my-check", "REASON": "Fenced", "TEMPLATE": "reboot",
		}
		switch filepath.Base(page) {
		case "KubemendHostExhausted.md":
			meant["NAME"] = "host-0"
			marked(ctx, "host-0")
		case "KubemendNodeHealthCheckShortCircuited.md", "KubemendNodeRemediationStuck.md":
			meant["NAME"] = nodesChecked(ctx)
		}
		out := aUser(ctx, meant).follows(ctx, page)
		for _, want := range prints {
			Expect(out).To(ContainSubstring(want))
		}
	},
		Entry(nil, SpecTimeout(specPatience), "docs/high-availability.md", `"unclaimed": "observe"`),
		Entry(nil, SpecTimeout(specPatience), "docs/migrating-from-capm3.md", "my-check patched"),
		Entry(nil, SpecTimeout(specPatience), "docs/uninstall.md#See that nothing is left", "fleet/my-check", "manager.kubemend.io"),
		Entry(nil, SpecTimeout(specPatience), "docs/upgrade.md#The version that objects are stored in", `["v1beta2"]`),
		Entry(nil, SpecTimeout(specPatience), "docs/upgrade.md#Rights that stay", "kubemend-manager-role"),
		Entry(nil, SpecTimeout(specPatience), "docs/upgrade.md#What happens meanwhile"),
		Entry(nil, SpecTimeout(specPatience), "docs/recipes/spares.md", "host-"),
		Entry(nil, SpecTimeout(specPatience), "docs/troubleshooting.md", "my-check", "HealthCheckSucceeded"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendClusterPartlyClaimed.md", "my-check"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendFencingImpossible.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendHostExhausted.md", "host/host-0 in fleet reset"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendHostKeptOffTooLong.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendHostNeedsPerson.md", "HEALTHY"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendCapacityNotBack.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendHostRemediationStuck.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendMachineHealthCheckShortCircuited.md", "my-check"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendMachineHealthCheckUnattended.md", "my-check"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendMachineRemediationStuck.md", "True"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNoLeader.md", "manager.kubemend.io"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNodeHealthCheckShortCircuited.md", "nodes"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNodeRemediationStuck.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendRemediationLoop.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendWorkloadClusterUnreachable.md", "ok"),
	)

	It("docs/faq.md skip a machine, and mark it", func(ctx SpecContext) {
		checked(ctx, "my-check", builders.Claimed, func(c *clusterv1.MachineHealthCheck) { c.Annotations[mendv1.MaxInFlightAnnotation] = "0" })
		machine := fixture.Machine(ctx, fixture.WorkerNames(ctx)[0])
		unmark := func(ctx context.Context) {
			none := map[string]any{clusterv1.MachineSkipRemediationAnnotation: nil, clusterv1.RemediateMachineAnnotation: nil}
			Expect(here.Patch(ctx, machine, patch(map[string]any{"metadata": map[string]any{"annotations": none}}))).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) { unmark(ctx) })
		reader := aUser(ctx, map[string]string{"my-machine": machine.Name})
		reader.follows(ctx, "docs/faq.md#How do I keep one machine from being remediated?")
		Expect(fixture.Machine(ctx, machine.Name).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		unmark(ctx)
		marked := 0
		reader.after = func(fences.Block) { // by the plugin, and without it
			Expect(fixture.Machine(ctx, machine.Name).Annotations).To(HaveKey(clusterv1.RemediateMachineAnnotation))
			unmark(ctx)
			marked++
		}
		reader.follows(ctx, "docs/faq.md#How do I have one machine remediated now?")
		Expect(marked).To(Equal(2))
	}, SpecTimeout(specPatience))

	It("docs/too-many-unhealthy.md power-cycle one machine, and raise the limit together with one in flight", func(ctx SpecContext) {
		machine, check := fixture.WorkerNames(ctx)[0], checked(ctx, "workers", builders.Claimed)
		rem := &mendv1.HostRemediation{}
		rem.Namespace, rem.Name = fixture.Namespace, machine+"-by-hand"
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, rem))).To(Succeed()) })
		aUser(ctx, map[string]string{"NAMESPACE": fixture.Namespace, "MACHINE": machine, "NAME": check.Name}).follows(ctx, "docs/too-many-unhealthy.md")
		now := stored(ctx, Default, check)
		Expect(now.Annotations).To(HaveKeyWithValue(mendv1.MaxInFlightAnnotation, "1"))
		Expect(now.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.IntValue()).To(Equal(3))
		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			g.Expect(succeeded(rem.Status.Conditions)).To(BeTrue())
		}).Should(Succeed(), "its machine was healthy and is again")
	}, SpecTimeout(specPatience))

	It("docs/tutorial-a-node-went-bad-at-night.md explain a short-circuit, record it, and simulate another limit", func(ctx SpecContext) {
		checked(ctx, "workers", builders.Claimed, builders.Patience(3*time.Second))
		pauseTheOwner(ctx)
		names := fixture.WorkerNames(ctx)
		silence(names[:3]...)
		reader := aUser(ctx, map[string]string{"node-w1": names[0], "w1": names[0], "w2": names[1], "w3": names[2]})
		Eventually(func(g Gomega) {
			for _, name := range names[:3] {
				g.Expect(fixture.Machine(ctx, name).Status.Conditions).To(ContainElement(And(
					HaveField("Type", clusterv1.MachineHealthCheckSucceededCondition), HaveField("Status", BeEquivalentTo("False")))))
			}
		}).Should(Succeed())
		out := reader.follows(ctx, "docs/tutorial-a-node-went-bad-at-night.md")
		Expect(out).To(And(ContainSubstring("TooManyUnhealthy"), ContainSubstring("MachineMarkedUnhealthy")))
		Expect(filepath.Join(reader.folder, "night.json")).To(BeAnExistingFile())
	}, SpecTimeout(specPatience))
})

// marked marks a host, as after the last attempt; until the spec ends, at the latest.
func marked(ctx context.Context, name string) {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name = fixture.Namespace, name
	mark := func(value any) client.Patch {
		return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"capm3.metal3.io/unhealthy": value}}})
	}
	Expect(here.Patch(ctx, host, mark("kubemend"))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Patch(ctx, host, mark(nil))).To(Succeed()) })
}
