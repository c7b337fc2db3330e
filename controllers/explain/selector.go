package explain

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Unmatched says which requirements of selector fail on which of the labels, separated by semicolons: those of matchLabels first, sorted,
// and then the expressions in their order. It is empty if the labels match, as any do an empty selector. A selector that cannot be read
// matches nothing.
func Unmatched(selector metav1.LabelSelector, is map[string]string) string {
	all := make([]metav1.LabelSelector, 0, 1+len(selector.MatchExpressions))
	all = append(all, metav1.LabelSelector{MatchLabels: selector.MatchLabels})
	for _, expression := range selector.MatchExpressions { // Kubernetes sorts them; people find them in their order
		all = append(all, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{expression}})
	}
	var failed []string
	for i := range all {
		parsed, err := metav1.LabelSelectorAsSelector(&all[i])
		if err != nil {
			return "the selector is invalid: " + err.Error()
		}
		requirements, _ := parsed.Requirements()
		for j := range requirements {
			if r := &requirements[j]; !r.Matches(labels.Set(is)) {
				failed = append(failed, failing(r, is))
			}
		}
	}
	return strings.Join(failed, "; ")
}

// failing is the requirement that fails on the labels, and what these have.
func failing(r *labels.Requirement, is map[string]string) string {
	had, has := is[r.Key()]
	switch {
	case r.Operator() == selection.DoesNotExist:
		return "has label " + r.Key() + ", which it must not have"
	case !has:
		return "has no label " + r.Key() + ": needs " + r.String()
	}
	return fmt.Sprintf("label %s is %q: needs %s", r.Key(), had, r)
}
