package kubemend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// agent is the kind of the requests to an agent on the node, which does nothing in these tests.
var agent = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}

// itself makes the management cluster also the workload cluster of c1. It has three nodes, one of which is that of Machine "a".
func (e *environment) itself(ctx context.Context) {
	e.there = e.here
	for _, name := range []string{"ns", metav1.NamespaceSystem, nhcv1.DefaultLeaseNamespace} {
		Expect(e.here.Create(ctx, builders.Namespace(name))).To(Succeed())
	}
	e.stands(ctx, kubemend.Host)
	for _, name := range []string{"a", "b", "c"} {
		e.node(ctx, name)
	}
	e.worker(ctx, "a")
	of := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"a",%q:"ns",%q:"c1"}}}`,
		clusterv1.MachineAnnotation, clusterv1.ClusterNamespaceAnnotation, clusterv1.ClusterNameAnnotation)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	Expect(e.here.Patch(ctx, node, client.RawPatch(client.Merge.Type(), of))).To(Succeed())
}

// ladder creates a check whose first step requests a remediation by the agent, and whose second step, a minute later, a power cycle.
func (e *environment) ladder(ctx context.Context) *nhcv1.NodeHealthCheck {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "ladder"}}
	check.Spec.MinHealthy = new(intstr.FromInt32(1))
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: time.Minute}},
	}
	for i, kind := range []schema.GroupVersionKind{agent, remediation.Own.GroupVersionKind} {
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			Order: i, Timeout: metav1.Duration{Duration: time.Minute}, RemediationTemplate: corev1.ObjectReference{
				APIVersion: kind.GroupVersion().String(), Kind: kind.Kind + "Template", Namespace: "ns", Name: "reboot",
			},
		})
	}
	Expect(e.here.Create(ctx, check)).To(Succeed())
	return check
}

// requested waits for a request and returns it.
func (e *environment) requested(ctx context.Context, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	Eventually(func() error { return e.here.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, u) }).
		WithTimeout(10 * time.Minute).Should(Succeed())
	return u
}

func TestALadderWhoseFirstStepFailsHasTheHostOfTheNodesMachinePowerCycledAndCleansUp(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		e.nodeChecks(ctx)
		for _, kind := range []string{agent.Kind, agent.Kind + "Template"} {
			served := kubemend.Kind(agent.Group, agent.Version, kind)
			e.management.Serve(served, kubemend.Global("storage.k8s.io", "v1", "VolumeAttachment"))
			Expect(e.here.Create(ctx, kubemend.CRD(served))).To(Succeed())
		}
		defer e.start(t).Kill()
		e.itself(ctx)
		host, machine := e.host(ctx), e.machine(ctx, "a")
		e.rebootTemplate(ctx)
		embedded := map[string]any{"spec": map[string]any{}}
		ofAgent := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": embedded}}}
		ofAgent.SetGroupVersionKind(agent.GroupVersion().WithKind(agent.Kind + "Template"))
		ofAgent.SetNamespace("ns")
		ofAgent.SetName("reboot")
		Expect(e.here.Create(ctx, ofAgent)).To(Succeed())
		check := e.ladder(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)

		first := e.requested(ctx, agent, "node-a")
		Expect(first.GetOwnerReferences()).To(ContainElement(HaveField("UID", check.UID)))
		second := e.requested(ctx, remediation.Own.GroupVersionKind, "a")
		Expect(second.GetOwnerReferences()).
			To(And(ContainElement(HaveField("UID", machine.UID)), ContainElement(HaveField("UID", check.UID))))
		Expect(e.requested(ctx, agent, "node-a").GetAnnotations()).
			To(HaveKey(nhcv1.TimedOutAnnotation), "the first one is stopped before the next one starts")
		Expect(second.GetAnnotations()[mendv1.RecordAnnotation]).To(Equal(first.GetAnnotations()[mendv1.RecordAnnotation]))
		Expect(e.record(ctx).Spec.Target.Machine.UID).To(BeEquivalentTo(machine.UID))

		e.switchOff(ctx, host)
		is := e.state(ctx, second)
		Eventually(is).WithTimeout(20 * time.Minute).Should(Equal(powercycle.PoweringOn))
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		host.Status.PoweredOn = true
		Expect(e.here.Status().Update(ctx, host)).To(Succeed())
		e.reports(ctx, "a", corev1.ConditionTrue)
		for _, request := range []client.Object{first, second} {
			Eventually(func() error { return e.here.Get(ctx, client.ObjectKeyFromObject(request), request) }).ShouldNot(Succeed())
		}
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		Expect(host.Annotations).NotTo(HaveKey(HavePrefix("reboot.metal3.io")))
		node := &corev1.Node{}
		Expect(e.here.Get(ctx, client.ObjectKey{Name: "node-a"}, node)).To(Succeed())
		Expect(node.Spec.Taints).To(BeEmpty())
		Expect(e.machine(ctx, "a").UID).To(Equal(machine.UID), "the machine was not replaced")
	})
}
