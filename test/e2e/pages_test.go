package e2e

import (
	"context"
	"path/filepath"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/fences"
	"github.com/kubemend/kubemend/test/suite"
)

// limited creates a policy that limits the remediations in flight, until the spec ends.
func limited(ctx context.Context, name string, most int32) {
	GinkgoHelper()
	policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.Namespace, Name: name}}
	policy.Spec.Limits = []mendv1.PolicyLimit{{Name: name, MaxInFlight: new(intstr.FromInt32(most))}}
	Expect(here.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, policy)).To(Succeed()) })
}

var _ = Describe("The commands of the page", fencing, func() {
	BeforeEach(func(ctx SpecContext) {
		mayFence(ctx)
		fixture.AllWell(ctx)
	})

	DescribeTable("about one check claim it and release it", func(ctx SpecContext, page string) {
		check := checked(ctx, "my-check")
		out := aUser(ctx, map[string]string{"NAME": nodesChecked(ctx)}).follows(ctx, page)
		Expect(out).To(And(MatchRegexp(`mhc/my-check .*claimed`), MatchRegexp(`mhc/my-check .*released`)))
		Expect(stored(ctx, Default, check).Annotations).NotTo(HaveKey(clusterv1.PausedAnnotation))
		Eventually(func(g Gomega) {
			g.Expect(conditions.IsFalse(stored(ctx, g, check), clusterv1.PausedCondition)).To(BeTrue(), "Cluster API acts on it again")
		}).Should(Succeed())
	},
		Entry(nil, SpecTimeout(specPatience), "docs/coexistence.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/choose-your-setup.md"),
	)

	DescribeTable("about what there is run, and print it", func(ctx SpecContext, page string, prints ...string) {
		checked(ctx, "my-check", builders.Claimed)
		machine := fixture.WorkerNames(ctx)[0]
		meant := map[string]string{
			"NAMESPACE|NS": fixture.Namespace, "CLUSTER": fixture.Name, "MACHINE": machine, "CHECK": "my-check", "NAME": "my-check",
			"REASON": "Fenced", "TEMPLATE": "reboot",
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
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendMaintenanceOverdue.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNoLeader.md", "manager.kubemend.io"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNodeHealthCheckShortCircuited.md", "nodes"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendNodeRemediationStuck.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendPolicyBlocksLong.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendPolicyInvalid.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendRemediationLoop.md"),
		Entry(nil, SpecTimeout(specPatience), "docs/runbooks/KubemendWorkloadClusterUnreachable.md", "ok"),
	)

	It("docs/faq.md skip a machine, and mark it", func(ctx SpecContext) {
		checked(ctx, "my-check", builders.Claimed)
		limited(ctx, "none", 0)
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
		reader.after = func(fences.Block) { // once by the plugin, and once by kubectl
			Expect(fixture.Machine(ctx, machine.Name).Annotations).To(HaveKey(clusterv1.RemediateMachineAnnotation))
			unmark(ctx)
			marked++
		}
		reader.follows(ctx, "docs/faq.md#How do I have one machine remediated now?")
		Expect(marked).To(Equal(2))
	}, SpecTimeout(specPatience))

	It("docs/too-many-unhealthy.md power-cycle one machine, and allow more for an hour", func(ctx SpecContext) {
		machine, check := fixture.WorkerNames(ctx)[0], checked(ctx, "workers", builders.Claimed)
		rem := &mendv1.HostRemediation{}
		rem.Namespace, rem.Name = fixture.Namespace, machine+"-by-hand"
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, rem))).To(Succeed()) })
		aUser(ctx, map[string]string{"NAMESPACE": fixture.Namespace, "MACHINE": machine, "NAME": check.Name}).
			follows(ctx, "docs/too-many-unhealthy.md")
		DeferCleanup(func(ctx SpecContext) {
			Expect(here.DeleteAllOf(ctx, &mendv1.RemediationOverride{}, client.InNamespace(fixture.Namespace))).To(Succeed())
		})
		Eventually(func(g Gomega) {
			allowed := conditions.Get(stored(ctx, g, check), clusterv1.MachineHealthCheckRemediationAllowedCondition)
			g.Expect(allowed.Message).To(MatchRegexp(`RemediationOverride .*/allow-.* allows 3 to be unhealthy until`))
		}).Should(Succeed())
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

// marked marks a host as unhealthy, as kubemend does after the last attempt. The mark is removed at the end of the spec at the latest.
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

var _ = Describe("The commands of the page", fencing, func() {
	BeforeEach(func(ctx SpecContext) {
		mayFence(ctx)
		fixture.AllWell(ctx)
	})

	It("of kubectl mend run for every kind of object", func(ctx SpecContext) {
		checked(ctx, "my-check", builders.Claimed)
		limited(ctx, "all", 100)
		machine := fixture.WorkerNames(ctx)[0]
		reader := aUser(ctx, map[string]string{
			"policy/NAME":  "policy/all",
			"machine/NAME": "machine/" + machine, "node/NAME": "node/" + machine, "host/NAME": "host/" + hostOf(ctx, machine),
			"cluster/NAME": "cluster/" + fixture.Name, "md/NAME": "md/" + fixture.Pool(),
			"mhc/NAME": "mhc/my-check", "nhc/NAME": "nhc/" + nodesChecked(ctx), "hrem/NAME": "hrem/" + powerCycled(ctx, machine),
			"edge-3": fixture.Name,
		})
		for page, prints := range map[string][]string{
			"docs/cli/README.md":  {"machine.*/prod-.* condition met", "baremetalhost.*/host-\\d+ condition met"},
			"docs/cli/explain.md": {"Machine: ", "BareMetalHost: ", "MachineHealthCheck: ", "NodeHealthCheck: ", "HostRemediation", "Policy: "},
			"docs/cli/history.md": {"PoweredOn", "Created"},
			"docs/cli/output.md":  {"(?m)^Healthy ", "(?m)Z Healed$"},
			"docs/cli/record.md":  {"TooManyUnhealthy", "MachineMarkedUnhealthy", "None of 5 machines would be remediated"},
			"docs/cli/status.md":  {"my-check"},
		} {
			out := reader.follows(ctx, page)
			for _, want := range prints {
				Expect(out).To(MatchRegexp(want), page)
			}
		}
	}, SpecTimeout(specPatience))

	It("docs/metal3remediation-api.md have clusterctl move the kinds", func(ctx SpecContext) {
		reader := aUser(ctx, nil)
		// as CRDs of an old release
		reader.types(ctx, "kubectl label crd hostremediations.kubemend.io hostremediationtemplates.kubemend.io "+
			"clusterctl.cluster.x-k8s.io-")
		Expect(reader.follows(ctx, "docs/metal3remediation-api.md")).To(ContainSubstring("hostremediationtemplates.kubemend.io labeled"))
	}, SpecTimeout(specPatience))

	It("docs/security.md enforce the policy for tenants", func(ctx SpecContext) {
		tenant := builders.Namespace("team-a")
		Expect(here.Create(ctx, tenant)).To(Succeed())
		reader := aUser(ctx, nil)
		DeferCleanup(func(ctx SpecContext) { reader.types(ctx, "kubectl delete -f docs/examples/limits-policy.yaml") })
		reader.follows(ctx, "docs/security.md")
		greedy := builders.MachineHealthCheck(fixture.Cluster, "greedy")
		greedy.Namespace = tenant.Name
		Eventually(func() error { return here.Create(ctx, greedy.DeepCopy(), client.DryRunAll) }).
			Should(MatchError(ContainSubstring("kubemend-limits")))
	}, SpecTimeout(specPatience))

	It("docs/sharding.md put clusters into a shard", func(ctx SpecContext) {
		aUser(ctx, map[string]string{"NS": fixture.Namespace}).follows(ctx, "docs/sharding.md#Labels")
		cluster := &clusterv1.Cluster{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(fixture.Cluster), cluster)).To(Succeed())
		Expect(cluster.Labels).To(HaveKeyWithValue(clusterv1.WatchLabel, "east"))
		Expect(here.Patch(ctx, cluster,
			patch(map[string]any{"metadata": map[string]any{"labels": map[string]any{clusterv1.WatchLabel: nil}}}))).To(Succeed())
	}, SpecTimeout(specPatience))

	It("docs/runbooks/KubemendTaintLeft.md find and remove a fence", func(ctx SpecContext) {
		node := ownNode(ctx, "worker-3", func(n *corev1.Node) {
			n.Annotations = map[string]string{"kubemend.io/fenced-by": "uid"}
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute, Value: "nodeshutdown"}}
		})
		Expect(aUser(ctx, map[string]string{"NODE": node.Name}).follows(ctx, "docs/runbooks/KubemendTaintLeft.md")).
			To(ContainSubstring("worker-3\tuid"))
		Expect(here.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", corev1.TaintNodeOutOfService)))
		Expect(node.Annotations).NotTo(HaveKey("kubemend.io/fenced-by"))
	}, SpecTimeout(specPatience))

	It("docs/development.md run a manager outside of the cluster", func(ctx SpecContext) {
		out := aUser(ctx, nil).follows(ctx, "docs/development.md#Outside of the cluster")
		Expect(out).To(ContainSubstring("exec bin/manager --health-addr=127.0.0.1:"))
	}, SpecTimeout(specPatience))
})

// ownNode creates a Ready node of the management cluster, until the spec ends.
func ownNode(ctx context.Context, name string, edits ...func(*corev1.Node)) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	node.Name = name
	for _, edit := range edits {
		edit(node)
	}
	Expect(here.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, node))).To(Succeed()) })
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	Expect(here.Status().Update(ctx, node)).To(Succeed())
	return node
}

func hostOf(ctx context.Context, machine string) string {
	GinkgoHelper()
	hosts := &bmov1alpha1.BareMetalHostList{}
	Expect(here.List(ctx, hosts, client.InNamespace(fixture.Namespace))).To(Succeed())
	for i := range hosts.Items {
		if ref := hosts.Items[i].Spec.ConsumerRef; ref != nil && ref.Name == fixture.Machine(ctx, machine).Spec.InfrastructureRef.Name {
			return hosts.Items[i].Name
		}
	}
	Fail("no host has the machine " + machine)
	return ""
}

// powerCycled has a machine's host power-cycled, and returns the name of the remediation, which is deleted at the end of the spec.
func powerCycled(ctx context.Context, machine string) string {
	GinkgoHelper()
	m := fixture.Machine(ctx, machine)
	rem := suite.Objects([]byte(`
apiVersion: kubemend.io/v1alpha1
kind: HostRemediation
spec: {strategy: {type: Reboot, retryLimit: 1, timeoutSeconds: 600}}
`))[0]
	rem.SetNamespace(m.Namespace)
	rem.SetName(machine + "-by-hand")
	Expect(unstructured.SetNestedSlice(rem.Object, []any{map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine", "name": m.Name, "uid": string(m.UID),
	}}, "metadata", "ownerReferences")).To(Succeed())
	Expect(here.Create(ctx, rem)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, rem))).To(Succeed()) })
	Eventually(func(g Gomega) {
		list, of := &mendv1.RemediationRecordList{}, client.MatchingLabels{mendv1.RecordTargetLabel: string(m.UID)}
		g.Expect(here.List(ctx, list, client.InNamespace(m.Namespace), of)).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And( // earlier specs have left records of the same Machine
			HaveField("Status.Outcome", mendv1.RecordHealed),
			HaveField("Status.Requests", ContainElement(HaveField("UID", string(rem.GetUID())))),
		)))
	}).Should(Succeed())
	return rem.GetName()
}

var _ = Describe("The commands about NodeHealthChecks of the page", func() {
	It("docs/nodehealthcheck.md drill a check on a node", func(ctx SpecContext) {
		ownNode(ctx, "worker-3")
		reader := aUser(ctx, nil)
		requests := &unstructured.UnstructuredList{}
		requests.SetGroupVersionKind(schema.GroupVersionKind{Group: "remediation.example.org", Version: "v1alpha1",
			Kind: "RebootRemediationList"})
		seen := false
		reader.after = func(b fences.Block) {
			if !endless.MatchString(b.Text) {
				return
			}
			Eventually(func(g Gomega) {
				g.Expect(here.List(ctx, requests, client.InNamespace("default"))).To(Succeed())
				g.Expect(requests.Items).To(ConsistOf(HaveField("GetName()", "worker-3")))
			}).Should(Succeed())
			seen = true
		}
		Expect(reader.follows(ctx, "docs/nodehealthcheck.md#A first check")).To(ContainSubstring("drill"))
		Expect(seen).To(BeTrue())
		node := &corev1.Node{}
		Expect(here.Get(ctx, client.ObjectKey{Name: "worker-3"}, node)).To(Succeed())
		Expect(node.Status.Conditions).To(ConsistOf(HaveField("Type", corev1.NodeReady)))
	}, SpecTimeout(specPatience))

	It("docs/nodehealthcheck.md bind the rights to remediators", func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(here.Get(ctx, client.ObjectKey{Name: "kubemend-ext-remediation"}, binding)).To(Succeed())
		Expect(here.Delete(ctx, binding)).To(Succeed())
		subject := binding.Subjects[0]
		aUser(ctx, map[string]string{"NAMESPACE:NAME": subject.Namespace + ":" + subject.Name}).
			follows(ctx, "docs/nodehealthcheck.md#Rights")
		now := &rbacv1.ClusterRoleBinding{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(binding), now)).To(Succeed())
		Expect(now.Subjects).To(Equal(binding.Subjects))
	}, SpecTimeout(specPatience))

	It("docs/nodehealthcheck.md confirm a node, and start a check that is paused", func(ctx SpecContext) {
		ownNode(ctx, "worker-3")
		reader := aUser(ctx, map[string]string{"nodehealthcheck-sample": nodesChecked(ctx)})
		Expect(reader.follows(ctx, "docs/nodehealthcheck.md#Keep the request for a while")).To(ContainSubstring("worker-3 annotated"))
		Expect(reader.follows(ctx, "docs/nodehealthcheck.md#Leave a node or a check alone")).To(ContainSubstring("nodes patched"))
	}, SpecTimeout(specPatience))

	It("docs/nodehealthcheck.md list what was tried, and forget it", func(ctx SpecContext) {
		reader := aUser(ctx, map[string]string{"workers": nodesChecked(ctx)})
		Expect(reader.follows(ctx, "docs/nodehealthcheck.md#When nothing has helped")).To(ContainSubstring("nodes patched"))
	}, SpecTimeout(specPatience))
})
