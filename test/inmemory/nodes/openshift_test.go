package nodes

import (
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
func onOpenShift(text string, modes []mode, body func(*environment)) {
	GinkgoHelper()
	inModes(text, modes, body, clusterVersion, theirCheck, theirMachine)
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
func (e *environment) theirCheckOf(name, kind string) *unstructured.Unstructured {
	return theirs(theirCheck, machineAPI, name, map[string]any{"spec": map[string]any{
		"selector":     map[string]any{"matchLabels": map[string]any{"machine.openshift.io/interruptible-instance": ""}},
		"maxUnhealthy": "100%", "nodeStartupTimeout": "0",
		"unhealthyConditions": []any{map[string]any{"type": kind, "status": "True", "timeout": "0s"}},
	}})
}

// progresses says that the cluster is being upgraded, or that it is not.
func (e *environment) progresses(version *unstructured.Unstructured, status string) {
	e.Helper()
	e.must(unstructured.SetNestedSlice(version.Object, []any{
		map[string]any{"type": "Available", "status": "True"}, map[string]any{"type": "Progressing", "status": status},
	}, "status", "conditions"))
	e.must(e.here.Status().Update(e.Context(), version))
}

var _ = Describe("On OpenShift", func() {
	onOpenShift("C68, W12, seed 0.4, 1.6, 2.7: nothing starts during an upgrade, and remediations under way continue", modes,
		func(s *environment) {
			version := theirs(clusterVersion, "", "version", map[string]any{})
			s.makes(version)
			s.workers(5)
			s.check("check", s.by(s.template(reboot, "soft")))
			s.reports("w1", corev1.NodeReady, corev1.ConditionUnknown)
			s.leaps(step / 2)
			s.reports("w2", corev1.NodeReady, corev1.ConditionUnknown)
			s.leaps(patience - step/2)
			req := s.request("w1")

			s.progresses(version, "True")
			s.leaps(step / 2) // less than the request of w1 may take
			Eventually(s.allowed("check")).Should(Equal("False/ClusterUpgrading"))
			Eventually(s.counts("check")).Should(Equal([]int{5, 3}), "W12: it is counted all the same")
			Eventually(s.listed("check")).Should(Equal([]string{"w1: Reboot/soft", "w2"}))
			Eventually(s.events("check", "RemediationSkipped")).Should(ConsistOf(
				"Normal [remediation] Postponing potential remediations because of ongoing cluster upgrade"))
			s.recovers("w1")
			Eventually(s.isGone(req)).Should(BeTrue())
			Eventually(s.phase("check")).Should(Equal(enabled))
			Expect(s.of("w2")).To(BeEmpty())
			s.progresses(version, "False")
			s.request("w2")
			Eventually(s.allowed("check")).Should(Equal(yes))
		})

	onOpenShift("seed 1.13, 1.14, 1.15, W25: a node that is terminating is left to the MachineHealthCheck for that, and no other node is", []mode{{}},
		func(s *environment) {
			handler := s.theirCheckOf("machine-api-termination-handler", "Terminating")
			s.makes(handler)
			s.workers(7)
			s.check("check", s.by(s.template(reboot, "soft")))
			s.reports("w1", "Terminating", corev1.ConditionTrue)
			s.reports("w2", "Terminating", corev1.ConditionFalse)
			s.reports("w3", "Terminating", corev1.ConditionUnknown)
			s.fails("w1", "w2", "w3")
			s.request("w2")
			s.request("w3")
			Eventually(s.counts("check")).Should(Equal([]int{7, 4}))
			Expect(s.of("w1")).To(BeEmpty())
			Eventually(s.phase("check")).Should(HavePrefix("Remediating"))
			Eventually(s.said(fmt.Sprintf(
				`"msg"="ignoring unhealthy Node, it is terminating and will be handled by MHC" "NodeName"=%q`, "w1"))).Should(Equal(1))
			Expect(s.said("MHCChecker ")()).To(Equal(1))

			s.deletes(handler)
			s.request("w1")
		})

	onOpenShift("C86, seed 1.16, 1.17, 1.18, 1.19, 2.5: a check is disabled while there are other MachineHealthChecks, and then enabled again", []mode{{}},
		func(s *environment) {
			handler := s.theirCheckOf("machine-api-termination-handler", "Terminating")
			s.makes(handler)
			s.workers(3)
			s.check("check", s.by(s.template(reboot, "soft")))
			Eventually(s.phase("check")).Should(Equal(enabled))
			names := fmt.Sprintf(`"NodeHealthCheck"=%q`, "/"+"check")
			Eventually(s.said(`"msg"="enabling NHC, valid config, no conflicting MHC configured in the cluster"`)).Should(Equal(1))

			another := s.theirCheckOf("another", "Terminating")
			s.makes(another)
			disabled := "Disabled: NHC is disabled: ConflictingMachineHealthCheckDetected: " +
				"Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"
			Eventually(s.phase("check")).Should(Equal(disabled))
			Expect(s.checkSays("check", nhcv1.DisabledCondition)()).To(Equal("True/ConflictingMachineHealthCheckDetected"))
			Eventually(s.events("check", "Disabled")).Should(Equal([]string{
				"Warning [remediation] Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"}))
			Eventually(s.said(`"msg"="disabling NHC in order to avoid conflict with custom MHCs configured in the cluster"`)).Should(Equal(1))
			Expect(s.said("controllers/NodeHealthCheck ")()).To(Equal(2))
			Expect(s.said(names)()).To(Equal(2))
			s.fails("w1")
			Eventually(s.listed("check")).Should(Equal([]string{"w1"}))
			Expect(s.of("w1")).To(BeEmpty())

			s.deletes(another)
			s.request("w1")
			Eventually(s.said(`"msg"="re-enabling NHC, no conflicting MHC configured in the cluster"`)).Should(Equal(1))
			Eventually(s.events("check", "Enabled")).Should(HaveLen(2))

			before := handler.DeepCopy()
			handler.Object["spec"] = s.theirCheckOf("", "Ready").Object["spec"]
			Expect(s.here.Patch(s.Context(), handler, client.MergeFrom(before))).To(Succeed())
			Eventually(s.phase("check")).Should(Equal(disabled), "the default one is changed")
		})

	onOpenShift("C70: the Machine that a node names owns its request, if it is in the namespace of the template", []mode{{}}, func(s *environment) {
		near, far := theirs(theirMachine, s.namespace, "near", map[string]any{}), theirs(theirMachine, s.elsewhere, "far", map[string]any{})
		s.makes(near)
		s.makes(far)
		s.workers(5)
		s.changeNode("w1", annotated(map[string]string{"machine.openshift.io/machine": s.namespace + "/near"}))
		s.changeNode("w2", annotated(map[string]string{"machine.openshift.io/machine": s.elsewhere + "/far"}))
		s.check("check", s.by(s.template(deletion, "delete")))
		s.fails("w1", "w2")
		Expect(s.request("w1").GetOwnerReferences()).To(ContainElement(metav1.OwnerReference{
			APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine", Name: "near", UID: near.GetUID(),
		}))
		Expect(s.request("w2").GetOwnerReferences()).To(HaveLen(1))
	})
})
