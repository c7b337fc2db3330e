package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// warnings says what of a check is most likely a slip, and shows neither in its status nor in an event.
func (v NodeHealthCheck) warnings(ctx context.Context, check *nhcv1.NodeHealthCheck) []string {
	var texts []string
	if len(check.Spec.Selector.MatchLabels)+len(check.Spec.Selector.MatchExpressions) == 0 {
		texts = append(texts, "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane")
	} else if v.selectsNone(ctx, check.Spec.Selector) {
		texts = append(texts, "spec.selector selects no node now")
	}
	valid := []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
	for i := range check.Spec.UnhealthyConditions {
		if status := string(check.Spec.UnhealthyConditions[i].Status); !slices.Contains(valid, status) {
			texts = append(texts, fmt.Sprintf("spec.unhealthyConditions[%d].status is %q, which no node's condition ever is: it is one of %s",
				i, status, strings.Join(valid, ", ")))
		}
	}
	return append(texts, ofLimit(&check.Spec)...)
}

// ofLimit warns of a limit that limits nothing, or that allows no remediation.
func ofLimit(spec *nhcv1.NodeHealthCheckSpec) []string {
	field, value, everything, nothing := "spec.minHealthy", spec.MinHealthy, []string{"0", "0%"}, []string{"100%"}
	if spec.MaxUnhealthy != nil {
		field, value, everything, nothing = "spec.maxUnhealthy", spec.MaxUnhealthy, nothing, everything
	}
	switch {
	case value == nil:
	case slices.Contains(everything, value.String()):
		return []string{field + " " + value.String() + " limits nothing: nodes are remediated however many are unhealthy"}
	case slices.Contains(nothing, value.String()):
		return []string{field + " " + value.String() + " allows no remediation, not even of a single node"}
	}
	return nil
}

// selectsNone reports whether no node has the labels. What cannot be read in time leads to no warning: no write waits for one.
func (v NodeHealthCheck) selectsNone(ctx context.Context, labels metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(&labels)
	if err != nil { // it was stored before it was refused
		return false
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	err = v.Live.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.Limit(1))
	return err == nil && len(list.Items) == 0
}
