package page

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
)

// held is the annotation by which a remediation holds a host off.
func held(by types.UID) string {
	return bmov1alpha1.RebootAnnotationPrefix + "/metal3-remediation-" + string(by)
}

// powerCycled puts workers on hosts, and has the check ask for power cycles; w1's is in that state for a minute, if it is not empty.
func powerCycled(state powercycle.State, edits ...func(*bmov1alpha1.BareMetalHost, *mendv1.HostRemediation)) func(*scene) {
	return func(s *scene) {
		template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reboot"}}
		s.others = append(s.others, template)
		s.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
		}
		rem := aRemediation("w1", state)
		for _, m := range s.machines {
			host := s.onHost(m)
			if m.Name != "w1" {
				continue
			}
			if state == powercycle.PoweringOff {
				host.Annotations = map[string]string{held(rem.UID): ""}
			}
			for _, edit := range edits {
				edit(host, rem)
			}
		}
		if state != "" {
			s.others = append(s.others, rem)
		}
	}
}

// onHost puts a machine on a host of its own, that is on.
func (s *scene) onHost(m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: m.Name}
	between := &unstructured.Unstructured{}
	between.SetAPIVersion(infrav1.GroupVersion.String())
	between.SetKind("Metal3Machine")
	between.SetNamespace("default")
	between.SetName(m.Name)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "default/rack-" + m.Name})
	between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}})
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rack-" + m.Name, UID: types.UID("rack-" + m.Name)}}
	host.Spec.Online, host.Status.PoweredOn, host.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "default", Name: m.Name}
	s.others = append(s.others, between, host)
	return host
}

// aRemediation is that of a worker, in its first attempt of two.
func aRemediation(worker string, state powercycle.State) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: worker, UID: types.UID("rem-" + worker), CreationTimestamp: at(3 * time.Minute), Finalizers: []string{mendv1.HostRemediationFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: worker, UID: types.UID(worker)}},
		Labels:          map[string]string{mendv1.MadeByUIDLabel: "check"},
	}}
	rem.Spec.Strategy = &mendv1.HostRemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600}
	is := powercycle.Memory{State: state, Since: noon.Add(-time.Minute), StartedUnhealthy: true}
	if state != powercycle.Pending {
		is.Attempt, is.Began, is.Asked, is.Touched = 1, noon.Add(-2*time.Minute), noon.Add(-time.Minute), true
	}
	rem.Annotations = map[string]string{mendv1.MadeByAnnotation: "workers"}
	remembers(rem, is)
	return rem
}

// remembers writes down what a remediation remembers.
func remembers(rem *mendv1.HostRemediation, is powercycle.Memory) {
	memory, err := json.Marshal(is)
	if err != nil {
		panic(err) // a memory is made to be stored
	}
	rem.Annotations[mendv1.PowerCycleAnnotation] = string(memory)
}

// controlPlane makes w1 and w2 machines of the control plane, whose hosts are remediated one after the other: w2's is under way.
func controlPlane(s *scene) {
	for _, name := range []string{"w1", "w2"} {
		s.machines[name].Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	s.others = append(s.others, aRemediation("w2", powercycle.PoweringOff))
}

func host(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return Host(ctx, a, client.ObjectKey{Namespace: "default", Name: name})
	}
}

func remediation(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return Remediation(ctx, a, "", client.ObjectKey{Namespace: "default", Name: name})
	}
}

func node(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return Node(ctx, a, "default", "", name)
	}
}

func nodeCheck(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return NodeHealthCheck(ctx, a, name)
	}
}

// ownNodes gives the management cluster five nodes, the first of them silent for that long, and a check of them with a template.
func ownNodes(ago time.Duration, edits ...func(*nhcv1.NodeHealthCheck, []*corev1.Node)) func(*scene) {
	return func(s *scene) {
		check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "own-nodes", UID: "own-nodes"}}
		check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		}
		check.Spec.RemediationTemplate = &corev1.ObjectReference{
			APIVersion: "remediation.example.com/v1", Kind: "RebootTemplate", Namespace: "templates", Name: "reboot",
		}
		template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
		template.SetAPIVersion("remediation.example.com/v1")
		template.SetKind("RebootTemplate")
		template.SetNamespace("templates")
		template.SetName("reboot")
		var nodes []*corev1.Node
		for i := 1; i <= 5; i++ {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"pool": "own"}}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at(time.Hour)}}
			nodes = append(nodes, n)
			s.others = append(s.others, n)
		}
		nodes[0].Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: at(ago),
		}
		for _, edit := range edits {
			edit(check, nodes)
		}
		s.others = append(s.others, check, template)
		s.kinds = append(s.kinds, template.GroupVersionKind(), template.GroupVersionKind().GroupVersion().WithKind("Reboot"))
	}
}

// cooling is a storm that cools down.
func cooling(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Spec.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
	for _, kind := range []string{nhcv1.StormActiveCondition, nhcv1.StormCooldownActiveCondition} {
		check.Status.Conditions = append(check.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: nhcv1.ThresholdReason, LastTransitionTime: at(4 * time.Minute),
		})
	}
}

// leased is a node that somebody else works on.
func leased(s *scene) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: "node-n1"}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("node-maintenance"), ptr.To[int32](3600)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-10 * time.Minute)}
	s.others = append(s.others, lease)
}
