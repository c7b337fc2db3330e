package nodes

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Kinds of OpenShift. They are installed by the specs that need them, since their presence alone changes what is done.
var (
	clusterVersion = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}
	theirCheck     = schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "MachineHealthCheck"}
	theirMachine   = schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}
)

// onOpenShift is a spec for which OpenShift's kinds are installed.
func onOpenShift(text string, m mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		s := newEnvironment(ctx, m)
		s.installs(ctx, clusterVersion, theirCheck, theirMachine)
		play(ctx, s, body)
	})
}

func theirs(kind schema.GroupVersionKind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// machineAPI is where OpenShift has its Machines and what it brings along for them.
const machineAPI = "openshift-machine-api"

// theirCheckOf is a MachineHealthCheck as OpenShift brings one along, but for its name and the type of its condition.
func (s *environment) theirCheckOf(name, kind string) *unstructured.Unstructured {
	return theirs(theirCheck, machineAPI, name, map[string]any{"spec": map[string]any{
		"selector":     map[string]any{"matchLabels": map[string]any{"machine.openshift.io/interruptible-instance": ""}},
		"maxUnhealthy": "100%", "nodeStartupTimeout": "0",
		"unhealthyConditions": []any{map[string]any{"type": kind, "status": "True", "timeout": "0s"}},
	}})
}

// progresses says that the cluster is being upgraded, or that it is not.
func (s *environment) progresses(ctx context.Context, version *unstructured.Unstructured, status string) {
	GinkgoHelper()
	before := version.DeepCopy()
	Expect(unstructured.SetNestedSlice(version.Object, []any{
		map[string]any{"type": "Available", "status": "True"}, map[string]any{"type": "Progressing", "status": status},
	}, "status", "conditions")).To(Succeed())
	Expect(s.here.Status().Patch(ctx, version, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("On OpenShift", func() {
	for _, m := range modes {
		onOpenShift(fmt.Sprintf("C68, W12, seed 0.4, 1.6, 2.7: nothing starts during an upgrade, and remediations under way continue (%s)", m), m,
			func(ctx context.Context, s *environment) {
				version := theirs(clusterVersion, "", "version", map[string]any{})
				Expect(s.here.Create(ctx, version)).To(Succeed())
				s.workers(ctx, 5)
				s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
				s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionUnknown)
				s.clock.Step(step / 2)
				s.reports(ctx, "w2", corev1.NodeReady, corev1.ConditionUnknown)
				s.clock.Step(patience - step/2)
				req := s.request(ctx, "w1")

				s.progresses(ctx, version, "True")
				s.clock.Step(step / 2) // less than the request of w1 may take
				Eventually(s.allowed(ctx, "check")).Should(Equal("False/ClusterUpgrading"))
				Eventually(s.counts(ctx, "check")).Should(Equal([]int{5, 3}), "W12: it is counted all the same")
				Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft", "w2"}))
				Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ConsistOf(
					"Normal [remediation] Postponing potential remediations because of ongoing cluster upgrade"))
				s.recovers(ctx, "w1")
				Eventually(s.isGone(ctx, req)).Should(BeTrue())
				Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
				Expect(s.about(ctx, "w2")).To(BeEmpty())
				s.progresses(ctx, version, "False")
				s.request(ctx, "w2")
				Eventually(s.allowed(ctx, "check")).Should(Equal(yes))
			})
	}

	onOpenShift("seed 1.13, 1.14, 1.15, W25: a node that is terminating is left to the MachineHealthCheck for that, and no other node is", mode{},
		func(ctx context.Context, s *environment) {
			handler := s.theirCheckOf("machine-api-termination-handler", "Terminating")
			Expect(s.here.Create(ctx, handler)).To(Succeed())
			s.workers(ctx, 7)
			s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
			s.reports(ctx, "w1", "Terminating", corev1.ConditionTrue)
			s.reports(ctx, "w2", "Terminating", corev1.ConditionFalse)
			s.reports(ctx, "w3", "Terminating", corev1.ConditionUnknown)
			s.fails(ctx, "w1", "w2", "w3")
			s.request(ctx, "w2")
			s.request(ctx, "w3")
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{7, 4}))
			Expect(s.about(ctx, "w1")).To(BeEmpty())
			Eventually(s.phase(ctx, "check")).Should(HavePrefix("Remediating"))
			Eventually(s.said(fmt.Sprintf(
				`"msg"="ignoring unhealthy Node, it is terminating and will be handled by MHC" "NodeName"=%q`, s.called("w1")))).Should(Equal(1))
			Expect(s.said("MHCChecker ")()).To(Equal(1))

			Expect(s.here.Delete(ctx, handler)).To(Succeed())
			s.request(ctx, "w1")
		})

	onOpenShift("C86, seed 1.16, 1.17, 1.18, 1.19, 2.5: a check is disabled while there are other MachineHealthChecks, and then enabled again", mode{},
		func(ctx context.Context, s *environment) {
			handler := s.theirCheckOf("machine-api-termination-handler", "Terminating")
			Expect(s.here.Create(ctx, handler)).To(Succeed())
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
			names := fmt.Sprintf(`"NodeHealthCheck"=%q`, "/"+s.called("check"))
			Eventually(s.said(`"msg"="enabling NHC, valid config, no conflicting MHC configured in the cluster"`)).Should(Equal(1))

			another := s.theirCheckOf("another", "Terminating")
			Expect(s.here.Create(ctx, another)).To(Succeed())
			disabled := "Disabled: NHC is disabled: ConflictingMachineHealthCheckDetected: " +
				"Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"
			Eventually(s.phase(ctx, "check")).Should(Equal(disabled))
			Expect(s.of(ctx, "check", nhcv1.DisabledCondition)()).To(Equal("True/ConflictingMachineHealthCheckDetected"))
			Eventually(s.events(ctx, "check", "Disabled")).Should(Equal([]string{
				"Warning [remediation] Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"}))
			Eventually(s.said(`"msg"="disabling NHC in order to avoid conflict with custom MHCs configured in the cluster"`)).Should(Equal(1))
			Expect(s.said("controllers/NodeHealthCheck ")()).To(Equal(2))
			Expect(s.said(names)()).To(Equal(2))
			s.fails(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
			Expect(s.about(ctx, "w1")).To(BeEmpty())

			Expect(s.here.Delete(ctx, another)).To(Succeed())
			s.request(ctx, "w1")
			Eventually(s.said(`"msg"="re-enabling NHC, no conflicting MHC configured in the cluster"`)).Should(Equal(1))
			Eventually(s.events(ctx, "check", "Enabled")).Should(HaveLen(2))

			before := handler.DeepCopy()
			handler.Object["spec"] = s.theirCheckOf("", "Ready").Object["spec"]
			Expect(s.here.Patch(ctx, handler, client.MergeFrom(before))).To(Succeed())
			Eventually(s.phase(ctx, "check")).Should(Equal(disabled), "the default one is changed")
		})

	onOpenShift("C70: the Machine that a node names owns its request, if it is in the namespace of the template", mode{}, func(ctx context.Context, s *environment) {
		near, far := theirs(theirMachine, s.name, "near", map[string]any{}), theirs(theirMachine, s.elsewhere, "far", map[string]any{})
		Expect(s.here.Create(ctx, near)).To(Succeed())
		Expect(s.here.Create(ctx, far)).To(Succeed())
		s.workers(ctx, 5)
		s.changeNode(ctx, "w1", annotated(map[string]string{"machine.openshift.io/machine": s.name + "/near"}))
		s.changeNode(ctx, "w2", annotated(map[string]string{"machine.openshift.io/machine": s.elsewhere + "/far"}))
		s.check(ctx, "check", s.by(s.template(ctx, deletion, "delete")))
		s.fails(ctx, "w1", "w2")
		Expect(s.request(ctx, "w1").GetOwnerReferences()).To(ContainElement(metav1.OwnerReference{
			APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine", Name: "near", UID: near.GetUID(),
		}))
		Expect(s.request(ctx, "w2").GetOwnerReferences()).To(HaveLen(1))
	})
})
