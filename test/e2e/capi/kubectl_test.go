package capi

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

var _ = Describe("kubectl", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("runs the plugin, explains our kinds, waits for their conditions and shows their columns", func(ctx SpecContext) {
		By("claiming a check, which the plugin does")
		check := shared.check(ctx, worker)
		Expect(shared.kubectl(ctx, "plugin", "list")).To(ContainSubstring("kubectl-mend"))
		shared.kubectl(ctx, "annotate", "machinehealthchecks.cluster.x-k8s.io/workers", clusterv1.PausedAnnotation+"-")
		Expect(shared.kubectl(ctx, "mend", "claim", "mhc/workers", "--yes")).To(ContainSubstring("workers"))
		Expect(here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
		Expect(check.Annotations).To(HaveKeyWithValue(clusterv1.PausedAnnotation, builders.ClaimedBy))
		Eventually(func() string { return shared.kubectl(ctx, "mend", "status") }).Should(MatchRegexp(`workers\s+kubemend\s+3/3`))

		By("explaining fields of every kind")
		for field, says := range map[string]string{
			"hostremediations.spec.strategy":                        "retryLimit",
			"hostremediationtemplates.spec.template.spec":           "strategy",
			"metal3remediations.spec.strategy":                      "retryLimit",
			"metal3remediationtemplates.spec.template.spec":         "strategy",
			"nodehealthchecks.spec":                                 "unhealthyConditions",
			"machinehealthchecks.cluster.x-k8s.io.spec.remediation": "triggerIf",
		} {
			Expect(shared.kubectl(ctx, "explain", field)).To(And(ContainSubstring("KIND: "), ContainSubstring("DESCRIPTION:"), ContainSubstring(says)), field)
		}

		By("waiting for conditions")
		for _, object := range ofAllKinds() {
			Expect(here.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		}
		for object, condition := range map[string]string{
			"machinehealthchecks.cluster.x-k8s.io/workers": "RemediationAllowed",
			"hostremediation/of-nothing":                   "Succeeded=False",
			"nodehealthcheck/plant-workers":                "Disabled=False",
		} {
			Expect(shared.kubectl(ctx, "wait", "--for=condition="+condition, object, "--timeout=60s")).To(ContainSubstring("condition met"), object)
		}

		By("showing columns")
		for kind, columns := range map[string]string{
			"hostremediations":           "NAME HOST PHASE STEP ATTEMPT STARTED AGE",
			"hostremediationtemplates":   "NAME STRATEGY RETRY LIMIT TIMEOUT AGE",
			"nodehealthchecks":           "NAME PHASE OBSERVED HEALTHY REMEDIATING AGE",
			"metal3remediations":         "NAME RETRY LIMIT RETRY COUNT LAST REMEDIATED STRATEGY PHASE",
			"metal3remediationtemplates": "NAME AGE",
		} {
			head, _, _ := strings.Cut(shared.kubectl(ctx, "get", kind), "\n")
			Expect(strings.Join(strings.Fields(head), " ")).To(Equal(columns), kind)
		}
		Expect(shared.kubectl(ctx, "get", "hostremediations", "-o", "wide")).To(ContainSubstring("MESSAGE"))
		Expect(shared.kubectl(ctx, "get", "nodehealthchecks", "-o", "wide")).To(ContainSubstring("REASON"))
		Expect(shared.kubectl(ctx, "get", "machinehealthchecks.cluster.x-k8s.io")).To(MatchRegexp(`workers\s+plant`))
	}, SpecTimeout(specPatience))
})

// ofAllKinds are an object of each kind of ours. None of them has a machine or a node to act on.
func ofAllKinds() []client.Object {
	GinkgoHelper()
	nothing := metav1.ObjectMeta{Namespace: shared.namespace, Name: "of-nothing"}
	strategy := infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 300}
	all := []client.Object{builders.HostRemediation(nothing, strategy), builders.Metal3Remediation(nothing, strategy)}
	for _, file := range []string{"host-remediation-template.yaml", "metal3-remediation-template.yaml", "node-health-check-workers.yaml"} {
		object, err := builders.Template(file, map[string]string{"CLUSTER_NAME": shared.name, "NAMESPACE": shared.namespace})
		Expect(err).NotTo(HaveOccurred())
		all = append(all, object)
	}
	return all
}

// kubectl runs kubectl as an administrator, in the namespace of the cluster, and returns what it prints. The plugin is found as users have it: on the PATH.
func (env *environment) kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	run, err := rig.Kubectl(ctx, management.KubeconfigFile(), append([]string{args[0]}, append(args[1:], "--namespace", env.namespace)...)...)
	Expect(err).NotTo(HaveOccurred())
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	Expect(run.Run()).To(Succeed(), "kubectl %v: %s%s", args, out.String(), complaint.String())
	return out.String()
}

// explained is what kubectl mend explain says of a machine.
func (env *environment) explained(ctx context.Context, machine string) *cliv1.Explanation {
	GinkgoHelper()
	e := &cliv1.Explanation{}
	Expect(json.Unmarshal([]byte(env.kubectl(ctx, "mend", "explain", "machine/"+machine, "-o", "json")), e)).To(Succeed())
	return e
}
