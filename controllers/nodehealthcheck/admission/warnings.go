package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// counted is up to how many nodes are counted. Of more, every percentage but 0% and 100% allows something and not everything.
const counted = 100

// warnings says what about a check is most likely a slip. What cannot be read in time leads to none: no write waits for a warning.
func (v NodeHealthCheck) warnings(ctx context.Context, check *nhcv1.NodeHealthCheck) []string {
	spec := &check.Spec
	missing := v.missingTemplates(ctx, spec)
	nodes, known := 0, false
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err == nil { // else it was stored before it was refused
		nodes, known = v.count(ctx, selector)
	}
	var texts []string
	switch {
	case len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0:
		texts = append(texts, "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane")
	case known && nodes == 0:
		texts = append(texts, "spec.selector selects no node now")
	}
	for i := range spec.UnhealthyConditions {
		if hint := meantStatus(string(spec.UnhealthyConditions[i].Status)); hint != "" {
			texts = append(texts, fmt.Sprintf("spec.unhealthyConditions[%d].status is %q, which no node's condition ever is: %s",
				i, spec.UnhealthyConditions[i].Status, hint))
		}
	}
	if text := ofLimit(spec, nodes); text != "" {
		texts = append(texts, text)
	}
	texts = append(texts, missing...)
	if err != nil {
		return texts
	}
	return append(texts, v.sharedNodes(ctx, check.Name, selector)...)
}

// meantStatus is what may be meant by a status that no condition of a node has; empty if one has it.
func meantStatus(status string) string {
	valid := []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
	if slices.Contains(valid, status) {
		return ""
	}
	if i := slices.IndexFunc(valid, func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(status)) }); i >= 0 {
		return valid[i] + " is meant"
	}
	return "it is one of " + strings.Join(valid, ", ")
}

// ofLimit warns of a limit that limits nothing, or that allows no remediation of so many nodes; zero if it is not known how many there are.
func ofLimit(spec *nhcv1.NodeHealthCheckSpec, nodes int) string {
	field, value := "spec.minHealthy", ptr.Deref(spec.MinHealthy, intstr.FromString(budget.DefaultMinHealthy))
	everything, nothing := []string{"0", "0%"}, []string{"100%"}
	if spec.MaxUnhealthy != nil {
		field, value = "spec.maxUnhealthy", *spec.MaxUnhealthy
		everything, nothing = nothing, everything
	}
	limit := field + " " + value.String()
	if spec.MinHealthy == nil && spec.MaxUnhealthy == nil {
		limit += ", the default,"
	}
	switch {
	case slices.Contains(everything, value.String()):
		return limit + " limits nothing: nodes are remediated however many are unhealthy"
	case slices.Contains(nothing, value.String()):
		return limit + " allows no remediation, not even of a single node"
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&value, nodes, spec.MaxUnhealthy == nil)
	if err != nil || nodes == 0 || spec.MaxUnhealthy != nil && scaled > 0 || spec.MaxUnhealthy == nil && scaled < nodes {
		return ""
	}
	return fmt.Sprintf("%s allows no remediation with the number of nodes that are selected now, %d", limit, nodes)
}

func (v NodeHealthCheck) missingTemplates(ctx context.Context, spec *nhcv1.NodeHealthCheckSpec) []string {
	var refs []corev1.ObjectReference
	if spec.RemediationTemplate != nil {
		refs = append(refs, *spec.RemediationTemplate)
	}
	for _, step := range inOrder(spec.EscalatingRemediations) {
		if !slices.Contains(refs, step.RemediationTemplate) {
			refs = append(refs, step.RemediationTemplate)
		}
	}
	var texts []string
	for i := range refs {
		ref, template := &refs[i], &remediationrequest.Metadata{}
		template.SetGroupVersionKind(ref.GroupVersionKind())
		if !remediationrequest.Missing(v.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, template)) {
			continue
		}
		name := ref.Kind + " " + nameOf(ref)
		if ref.Namespace == "" {
			name += ", without a namespace,"
		}
		texts = append(texts, "remediation template "+name+" does not exist: the check will be Disabled until it does")
	}
	return texts
}

// count is how many nodes are selected. It is not known if there are more than counted.
func (v NodeHealthCheck) count(ctx context.Context, selector labels.Selector) (nodes int, known bool) {
	found := nodeList()
	err := v.Live.List(ctx, found, client.MatchingLabelsSelector{Selector: selector}, client.Limit(counted))
	if err != nil || found.Continue != "" {
		return 0, false
	}
	return len(found.Items), true
}

func (v NodeHealthCheck) sharedNodes(ctx context.Context, name string, selector labels.Selector) []string {
	others := &nhcv1.NodeHealthCheckList{}
	if err := v.Live.List(ctx, others); err != nil {
		return nil
	}
	var texts []string
	for i := range others.Items {
		other := &others.Items[i]
		second, err := metav1.LabelSelectorAsSelector(&other.Spec.Selector)
		if err != nil || other.Name == name || other.DeletionTimestamp != nil {
			continue
		}
		requirements, _ := second.Requirements()
		found := nodeList()
		err = v.Live.List(ctx, found, client.MatchingLabelsSelector{Selector: selector.Add(requirements...)}, client.Limit(1))
		if err == nil && len(found.Items) > 0 {
			texts = append(texts, fmt.Sprintf("NodeHealthChecks %s and %s select the same nodes, such as %s: whichever is first remediates, and "+
				"the other one waits", name, other.Name, found.Items[0].Name))
		}
	}
	return texts
}

func nodeList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}
