package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// pausedAs gives a check the annotation cluster.x-k8s.io/paused with a value.
func pausedAs(value string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	}
}

var _ = Describe("A manager with a filter", func() {
	It("works in the namespace of --namespace alone", func(ctx SpecContext) {
		s, elsewhere := newEnvironment(ctx, seenBy("part")), newEnvironment(ctx, seenBy("part"))
		start := func() *rig.Kubemend {
			return startManager(ctx, "part", nil, "--namespace="+s.cluster.Namespace, "--watch-filter=part", "--unclaimed-machine-health-checks=act")
		}
		m := start()
		for _, in := range []*environment{s, elsewhere} {
			in.template(ctx, "reboot")
			in.workers(ctx, "a", "b")
			in.check(ctx, "check", by("reboot"))
			in.fallsSilent(ctx, "a", "b")
		}
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")
		s.comesBack(ctx, "a")
		Eventually(s.requested(ctx)).Should(ConsistOf("b"))
		Expect(elsewhere.health(ctx, "a")()).To(Equal(nothing))

		m.Kill()
		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		start()
		Eventually(s.requested(ctx)).Should(BeEmpty(), "what is orphaned is found there too")
		Eventually(s.health(ctx, "b")).Should(Equal(nothing))
	})

	It("ignores Clusters and checks without the label of --watch-filter, also when it releases machines", func(ctx SpecContext) {
		m := ownManager(ctx, "one")
		s := newEnvironment(ctx, seenBy("one"))
		s.template(ctx, "reboot")
		s.workers(ctx, "a")
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		s.isRequested(ctx, "a")
		unlabelled := builders.MachineHealthCheck(s.cluster, "unlabelled", func(c *clusterv1.MachineHealthCheck) {
			c.Labels = map[string]string{clusterv1.WatchLabel: ""}
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
		})
		Expect(here.Create(ctx, unlabelled)).To(Succeed())
		m.Kill()

		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Consistently(s.requested(ctx)).Should(ConsistOf("a"), "the shared manager runs, and this is not its cluster")
		Expect(s.health(ctx, "a")()).To(Equal(silent))
		ownManager(ctx, "one")
		Eventually(s.requested(ctx)).Should(BeEmpty())
		Expect(s.health(ctx, "b")()).To(Equal(nothing))
		Expect(s.getCheck(ctx, "unlabelled").Status.Conditions).To(BeEmpty())
	})
})
