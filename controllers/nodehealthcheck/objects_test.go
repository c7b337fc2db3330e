package nodehealthcheck

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func node(name string, labels map[string]string) *corev1.Node {
	all := map[string]string{"kubernetes.io/hostname": name}
	maps.Copy(all, labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: all, CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour))},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))},
		}},
	}
}

func workers(names ...string) []client.Object {
	var all []client.Object
	for _, name := range names {
		all = append(all, node(name, nil))
	}
	return all
}

func member(name string) *corev1.Node {
	return node(name, map[string]string{"node-role.kubernetes.io/control-plane": ""})
}

// remediationTemplate is a remediation template of one of the kinds of tests, whose remediator copes with one request for a node, or with
// several.
func template(kind, name string, several bool) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}}},
	}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: kind + remediationrequest.TemplateSuffix})
	obj.SetNamespace(namespace)
	obj.SetName(name)
	if several {
		obj.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
	}
	return obj
}

func refTo(kind, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: remediatorGroup + "/v1", Kind: kind + remediationrequest.TemplateSuffix, Namespace: namespace, Name: name}
}

// check is a check of all nodes with the default conditions and one template.
func check(name string, change ...func(*nhcv1.NodeHealthCheckSpec)) *nhcv1.NodeHealthCheck {
	ref := refTo("Reboot", "reboot")
	c := &nhcv1.NodeHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("check-" + name), Generation: 1},
		Spec: nhcv1.NodeHealthCheckSpec{
			UnhealthyConditions: []nhcv1.UnhealthyCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 300 * time.Second}},
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 300 * time.Second}},
			},
			RemediationTemplate: &ref,
		},
	}
	for _, f := range change {
		f(&c.Spec)
	}
	return c
}

// ladder replaces the one template by several, each of the given kind and with five minutes.
func ladder(steps ...corev1.ObjectReference) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) {
		s.RemediationTemplate = nil
		for i, ref := range steps {
			s.EscalatingRemediations = append(s.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: ref, Order: i, Timeout: metav1.Duration{Duration: 5 * time.Minute},
			})
		}
	}
}
