package conformance

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// observing are the flags of a manager that acts on claimed checks alone, beside Cluster API core.
const observing = "--unclaimed-machine-health-checks=observe"

// asks gives an object the label that claims its checks, with a value; without one it removes it.
func asks(ctx context.Context, obj client.Object, value ...string) {
	GinkgoHelper()
	label := "null"
	if len(value) > 0 {
		label = fmt.Sprintf("%q", value[0])
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, mendv1.ClaimLabel, label)
	Expect(here.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// namespace is the Namespace of an environment.
func (s *environment) namespace() client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.cluster.Namespace}}
}

// claim is the value of the annotation cluster.x-k8s.io/paused of a check, its mark, and the field managers that own the annotation.
func (s *environment) claim(ctx context.Context, name string) func() string {
	return func() string {
		c := &clusterv1.MachineHealthCheck{}
		if err := here.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, c); err != nil {
			return err.Error()
		}
		parts := []string{c.Annotations[clusterv1.PausedAnnotation], c.Annotations[mendv1.ClaimedByAnnotation]}
		for _, entry := range c.ManagedFields {
			if strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:`+clusterv1.PausedAnnotation+`"`) {
				parts = append(parts, entry.Manager)
			}
		}
		return strings.Join(parts, " ")
	}
}

const (
	unclaimed   = " "
	byCluster   = "kubemend Cluster kubemend-claims"
	byNamespace = "kubemend Namespace kubemend-claims"
	byHand      = "kubemend  kubectl-annotate"
)

// byPerson applies the annotation of a check, as somebody else does.
func (s *environment) byPerson(ctx context.Context, name, value string, more ...client.ApplyOption) error {
	return here.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck",
		"metadata": map[string]any{"namespace": s.cluster.Namespace, "name": name, "annotations": map[string]any{clusterv1.PausedAnnotation: value}},
	}}), append(more, client.FieldOwner("kubectl-annotate"))...)
}

var _ = Describe("A claim by a label", func() {
	It("of a Cluster is of all its checks, also those that are made later or anew, and is released with the label", func(ctx SpecContext) {
		m := ownManager(ctx, "claims", observing)
		s := newEnvironment(ctx, seenBy("claims"))
		s.worker(ctx, "a")
		s.check(ctx, "check")
		s.check(ctx, "hand")
		Expect(s.byPerson(ctx, "hand", mendv1.Claim)).To(Succeed())
		Consistently(s.claim(ctx, "check")).Should(Equal(unclaimed))

		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		Eventually(s.claim(ctx, "check")).WithTimeout(quick).Should(Equal(byCluster))
		Expect(s.claim(ctx, "hand")()).To(Equal(byHand))
		Eventually(s.note(ctx, "check", mendv1.EventCheckClaimed)).Should(HavePrefix("Normal: Claimed, since Cluster c1 has the label"))
		s.fallsSilent(ctx, "a")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested), "it acts on what it has claimed")
		s.comesBack(ctx, "a")

		By("deleting the check, and making it anew, as the controller of a topology does")
		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Consistently(s.claim(ctx, "check")).Should(ContainSubstring("not found"), "what is gone is not made by a claim")
		s.check(ctx, "check")
		s.check(ctx, "later")
		Eventually(s.claim(ctx, "check")).WithTimeout(quick).Should(Equal(byCluster))
		Eventually(s.claim(ctx, "later")).WithTimeout(quick).Should(Equal(byCluster))

		By("removing the label while no manager runs")
		m.Kill()
		asks(ctx, s.cluster)
		ownManager(ctx, "claims", observing)
		Eventually(s.claim(ctx, "check")).Should(Equal(unclaimed))
		Eventually(s.claim(ctx, "later")).Should(Equal(unclaimed))
		Expect(s.claim(ctx, "hand")()).To(Equal(byHand))
		Eventually(s.note(ctx, "check", mendv1.EventCheckReleased)).Should(HavePrefix("Normal: Released, since neither Cluster c1 nor Namespace"))
	})

	It("of a Namespace is of the checks of all Clusters in it, and that of a Cluster counts beside it", func(ctx SpecContext) {
		ownManager(ctx, "claims-namespace", observing)
		one := newEnvironment(ctx, seenBy("claims-namespace"))
		two := newEnvironmentIn(ctx, one.cluster.Namespace, "c2", seenBy("claims-namespace"))
		one.check(ctx, "one")
		two.check(ctx, "two")
		asks(ctx, one.namespace(), mendv1.ClaimLabelAct)
		Eventually(one.claim(ctx, "one")).WithTimeout(quick).Should(Equal(byNamespace))
		Eventually(two.claim(ctx, "two")).WithTimeout(quick).Should(Equal(byNamespace))

		asks(ctx, one.cluster, mendv1.ClaimLabelAct)
		asks(ctx, one.namespace())
		Eventually(two.claim(ctx, "two")).WithTimeout(quick).Should(Equal(unclaimed))
		// A manager that hears of the Namespace before the Cluster claims it anew.
		Eventually(one.claim(ctx, "one")).Should(Or(Equal(byNamespace), Equal(byCluster)))
		Consistently(one.claim(ctx, "one")).Should(Or(Equal(byNamespace), Equal(byCluster)), "its Cluster asks for it")
		asks(ctx, one.cluster)
		Eventually(one.claim(ctx, "one")).WithTimeout(quick).Should(Equal(unclaimed))
	})

	It("takes nothing from others: neither a pause, nor a claim that somebody else applies as well", func(ctx SpecContext) {
		ownManager(ctx, "claims-others", observing)
		s := newEnvironment(ctx, seenBy("claims-others"))
		s.check(ctx, "paused", pausedAs("maintenance"))
		s.check(ctx, "shared")
		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		Eventually(s.claim(ctx, "shared")).Should(Equal(byCluster))
		Eventually(s.events(ctx, "paused", mendv1.EventCheckNotClaimed)).ShouldNot(BeZero())
		Expect(s.claim(ctx, "paused")()).To(HavePrefix("maintenance "))
		Eventually(s.note(ctx, "paused", mendv1.EventCheckNotClaimed)).Should(ContainSubstring(`cluster.x-k8s.io/paused is "maintenance"`))

		Expect(s.byPerson(ctx, "shared", mendv1.Claim)).To(Succeed())
		Expect(s.byPerson(ctx, "shared", "true")).NotTo(Succeed(), "two field managers own it")
		asks(ctx, s.cluster)
		Eventually(s.claim(ctx, "shared")).Should(Equal(byHand))

		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		s.changeCheck(ctx, "paused", func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) })
		Eventually(s.claim(ctx, "paused")).WithTimeout(quick).Should(Equal(byCluster), "who has paused it has ended that")
		Expect(s.byPerson(ctx, "paused", "true", client.ForceOwnership)).To(Succeed())
		Consistently(s.claim(ctx, "paused")).Should(HavePrefix("true Cluster"), "somebody has paused it again")
	})

	It("is released also where clusterctl move or a backup has copied it, and survives until the Cluster is there", func(ctx SpecContext) {
		s := newEnvironment(ctx, seenBy("claims-moved"))
		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		copied := func(name string) {
			s.check(ctx, name, builders.Claimed, func(c *clusterv1.MachineHealthCheck) { c.Annotations[mendv1.ClaimedByAnnotation] = "Cluster" })
		}
		copied("moved")
		s.check(ctx, "hand", builders.Claimed)
		before := s.claim(ctx, "moved")()
		ownManager(ctx, "claims-moved", observing)
		early := builders.MachineHealthCheck(s.cluster, "early", builders.Claimed, func(c *clusterv1.MachineHealthCheck) {
			c.Labels = map[string]string{clusterv1.WatchLabel: "claims-moved"}
			c.Spec.ClusterName, c.Annotations[mendv1.ClaimedByAnnotation] = "not-there-yet", "Cluster"
		})
		Expect(here.Create(ctx, early)).To(Succeed())
		Consistently(s.claim(ctx, "early")).Should(HavePrefix("kubemend Cluster"))
		Expect(s.claim(ctx, "moved")()).To(Equal(before))

		asks(ctx, s.cluster)
		Eventually(s.claim(ctx, "moved")).WithTimeout(quick).Should(Equal(unclaimed))
		Expect(s.claim(ctx, "hand")()).To(HavePrefix("kubemend  "))
	})

	It("changes nothing for a value that is not defined, and names the label", func(ctx SpecContext) {
		ownManager(ctx, "claims-invalid", observing)
		s := newEnvironment(ctx, seenBy("claims-invalid"))
		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		s.check(ctx, "check")
		Eventually(s.claim(ctx, "check")).Should(Equal(byCluster))
		asks(ctx, s.cluster, "Act")
		Eventually(s.events(ctx, "c1", mendv1.EventInvalidClaimLabel)).ShouldNot(BeZero())
		Eventually(s.note(ctx, "c1", mendv1.EventInvalidClaimLabel)).Should(HavePrefix(
			`Warning: metadata.labels[kubemend.io/machine-health-checks] of Cluster c1 is "Act": expected "act"`))
		s.check(ctx, "later")
		Consistently(s.claim(ctx, "later")).Should(Equal(unclaimed))
		Expect(s.claim(ctx, "check")()).To(Equal(byCluster))
	})

	It("is made by the manager of the shard alone, and with --namespace in that one", func(ctx SpecContext) {
		s, elsewhere := newEnvironment(ctx, seenBy("claims-east")), newEnvironment(ctx, seenBy("claims-east"))
		ownManager(ctx, "claims-west", observing)
		for _, in := range []*environment{s, elsewhere} {
			in.check(ctx, "check")
			asks(ctx, in.namespace(), mendv1.ClaimLabelAct)
		}
		Consistently(s.claim(ctx, "check")).Should(Equal(unclaimed))
		ownManager(ctx, "claims-east", observing, "--namespace="+s.cluster.Namespace)
		Eventually(s.claim(ctx, "check")).Should(Equal(byNamespace))
		Consistently(elsewhere.claim(ctx, "check")).Should(Equal(unclaimed))
		asks(ctx, s.namespace())
		Eventually(s.claim(ctx, "check")).Should(Equal(unclaimed), "it reads its Namespace every 30 s")
	})

	It("does not make a check that is gone, since it names its UID", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		err := here.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck", "metadata": map[string]any{
				"namespace": s.cluster.Namespace, "name": "gone", "uid": string(uuid.NewUUID()), "annotations": map[string]any{clusterv1.PausedAnnotation: mendv1.Claim},
			},
			"spec": builderSpec(s),
		}}), client.FieldOwner(mendv1.ClaimFieldOwner))
		Expect(err).To(MatchError(ContainSubstring("uid mismatch")))
	})

	It("is removed by a teardown, and not made again", func(ctx SpecContext) {
		m := ownManager(ctx, "claims-teardown", observing)
		s := newEnvironment(ctx, seenBy("claims-teardown"))
		asks(ctx, s.cluster, mendv1.ClaimLabelAct)
		s.check(ctx, "check")
		Eventually(s.claim(ctx, "check")).Should(Equal(byCluster))
		m.Kill()
		leaving, err := management.Leaving(ctx, "claims-teardown", nil, "--watch-filter=claims-teardown")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { leaving.Kill() })
		Eventually(s.claim(ctx, "check")).Should(Equal(unclaimed))
		s.check(ctx, "later")
		Consistently(s.claim(ctx, "later")).Should(Equal(unclaimed))
		Expect(s.claim(ctx, "check")()).To(Equal(unclaimed))
	})
})

// builderSpec is a spec that is valid.
func builderSpec(s *environment) map[string]any {
	return map[string]any{"clusterName": s.cluster.Name, "selector": map[string]any{"matchLabels": map[string]any{"pool": "workers"}}}
}
