package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// counted is up to how many nodes are counted. Of more, every percentage but 0% and 100% allows something and not everything.
const counted = 100

// lookOut sees what warnings depend on. What it cannot read, or not in time, is missing: no write waits for a warning, or fails.
func (v NodeHealthCheck) lookOut(ctx context.Context, check *nhcv1.NodeHealthCheck) outlook {
	o := outlook{missing: v.missing(ctx, &check.Spec)}
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err != nil {
		return o // stored before it was refused
	}
	o.nodes = v.count(ctx, selector)
	o.shared = v.shared(ctx, check.Name, selector)
	return o
}

func (v NodeHealthCheck) missing(ctx context.Context, spec *nhcv1.NodeHealthCheckSpec) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	if spec.RemediationTemplate != nil {
		refs = append(refs, *spec.RemediationTemplate)
	}
	for _, step := range inOrder(spec.EscalatingRemediations) {
		if !slices.Contains(refs, step.RemediationTemplate) {
			refs = append(refs, step.RemediationTemplate)
		}
	}
	return slices.DeleteFunc(refs, func(ref corev1.ObjectReference) bool {
		template := &remediationrequest.Metadata{}
		template.SetGroupVersionKind(ref.GroupVersionKind())
		return !remediationrequest.Missing(v.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, template))
	})
}

// count is how many nodes are selected, and nil if there are more than counted.
func (v NodeHealthCheck) count(ctx context.Context, selector labels.Selector) *int {
	found := nodes()
	err := v.Live.List(ctx, found, client.MatchingLabelsSelector{Selector: selector}, client.Limit(counted))
	if err != nil || found.Continue != "" {
		return nil
	}
	return ptr.To(len(found.Items))
}

// shared looks for a node in common with each of the other checks.
func (v NodeHealthCheck) shared(ctx context.Context, name string, selector labels.Selector) []shared {
	others := &nhcv1.NodeHealthCheckList{}
	if err := v.Live.List(ctx, others); err != nil {
		return nil
	}
	var found []shared
	for i := range others.Items {
		other := &others.Items[i]
		if other.Name == name || other.DeletionTimestamp != nil {
			continue
		}
		if node, ok := v.common(ctx, selector, &other.Spec.Selector); ok {
			found = append(found, shared{check: other.Name, node: node})
		}
	}
	return found
}

// common returns a node that both selectors select.
func (v NodeHealthCheck) common(ctx context.Context, selector labels.Selector, other *metav1.LabelSelector) (string, bool) {
	second, err := metav1.LabelSelectorAsSelector(other)
	if err != nil {
		return "", false
	}
	requirements, _ := second.Requirements()
	found := nodes()
	err = v.Live.List(ctx, found, client.MatchingLabelsSelector{Selector: selector.Add(requirements...)}, client.Limit(1))
	if err != nil || len(found.Items) == 0 {
		return "", false
	}
	return found.Items[0].Name, true
}

func nodes() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}
