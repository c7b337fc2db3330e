package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// outlook is what warnings depend on besides the check. The zero value is of what could not be seen in time: it leads to no warning.
type outlook struct {
	// nodes is how many nodes the selector selects; nil if that is not known, or more than were counted.
	nodes *int
	// missing are the templates that do not exist.
	missing []corev1.ObjectReference
	// shared are the nodes, one for each check, that other checks watch too.
	shared []shared
}

// shared is a node that another check watches too.
type shared struct{ check, node string }

// warnings says what about a check is most likely a slip.
func warnings(check *nhcv1.NodeHealthCheck, o outlook) []string {
	spec := &check.Spec
	var texts []string
	switch {
	case len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0:
		texts = append(texts, "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane")
	case o.nodes != nil && *o.nodes == 0:
		texts = append(texts, "spec.selector selects no node now")
	}
	for i := range spec.UnhealthyConditions {
		texts = append(texts, ofStatus(i, string(spec.UnhealthyConditions[i].Status))...)
	}
	texts = append(texts, ofLimit(spec, o.nodes)...)
	for _, ref := range o.missing {
		name := ref.Kind + " " + ref.Namespace + "/" + ref.Name
		if ref.Namespace == "" {
			name = ref.Kind + " " + ref.Name + ", without a namespace,"
		}
		texts = append(texts, "remediation template "+name+" does not exist: the check will be Disabled until it does")
	}
	for _, s := range o.shared {
		texts = append(texts,
			fmt.Sprintf("NodeHealthChecks %s and %s select the same nodes, such as %s: whichever is first remediates, and "+
				"the other one waits", check.Name, s.check, s.node))
	}
	return texts
}

// ofStatus warns of a status that no condition of a node has.
func ofStatus(i int, status string) []string {
	all := []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
	if slices.Contains(all, status) {
		return nil
	}
	hint := "it is one of " + strings.Join(all, ", ")
	if at := slices.IndexFunc(all, func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(status)) }); at >= 0 {
		hint = all[at] + " is meant"
	}
	return []string{fmt.Sprintf("spec.unhealthyConditions[%d].status is %q, which no node's condition ever is: %s", i, status, hint)}
}

// unlimited and prohibitive are the values that allow all remediation and none, however many nodes there are.
var (
	unlimited   = map[string][]string{minHealthy: {"0", "0%"}, maxUnhealthy: {"100%"}}
	prohibitive = map[string][]string{minHealthy: {"100%"}, maxUnhealthy: {"0", "0%"}}
)

const (
	minHealthy   = "spec.minHealthy"
	maxUnhealthy = "spec.maxUnhealthy"
)

// ofLimit warns of a limit that limits nothing, or that allows no remediation: never, or not of so many nodes. Nodes is nil if it is not known.
func ofLimit(spec *nhcv1.NodeHealthCheckSpec, nodes *int) []string {
	field, value := minHealthy, ptr.Deref(spec.MinHealthy, intstr.FromString(budget.DefaultMinHealthy))
	if spec.MaxUnhealthy != nil {
		field, value = maxUnhealthy, *spec.MaxUnhealthy
	}
	limit := field + " " + value.String()
	if spec.MinHealthy == nil && spec.MaxUnhealthy == nil {
		limit += ", the default,"
	}
	switch {
	case slices.Contains(unlimited[field], value.String()):
		return []string{limit + " limits nothing: nodes are remediated however many are unhealthy"}
	case slices.Contains(prohibitive[field], value.String()):
		return []string{limit + " allows no remediation, not even of a single node"}
	case nodes == nil || *nodes == 0:
		return nil
	}
	if needed, ok := healthyNeeded(field, value, *nodes); ok && needed >= *nodes {
		return []string{fmt.Sprintf("%s allows no remediation with the number of nodes that are selected now, %d", limit, *nodes)}
	}
	return nil
}

// healthyNeeded is how many of a number of nodes have to be healthy for remediation. It is not ok if the value cannot be read.
func healthyNeeded(field string, value intstr.IntOrString, nodes int) (needed int, ok bool) {
	atLeast := field == minHealthy
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, nodes, atLeast)
	if err != nil {
		return 0, false
	}
	if atLeast {
		return n, true
	}
	return nodes - n, true
}
