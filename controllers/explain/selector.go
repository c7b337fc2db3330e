package explain

import (
	"fmt"
	"slices"
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

// failing says how a requirement fails on the labels.
func failing(r *labels.Requirement, is map[string]string) string {
	wants := r.Values().UnsortedList()
	slices.Sort(wants)
	for i := range wants {
		wants[i] = value(wants[i])
	}
	wanted := strings.Join(wants, ", ")
	if len(wants) > 1 {
		wanted = "one of " + wanted
	}
	had, has := is[r.Key()]
	switch {
	case r.Operator() == selection.DoesNotExist:
		return fmt.Sprintf("has label %s, which it must not have", r.Key())
	case r.Operator() == selection.Exists:
		return "has no label " + r.Key()
	case r.Operator() == selection.NotIn:
		return fmt.Sprintf("label %s is %s, and must not be %s", r.Key(), value(had), wanted)
	case !has:
		return fmt.Sprintf("has no label %s, which has to be %s", r.Key(), wanted)
	default:
		return fmt.Sprintf("label %s is %s, and has to be %s", r.Key(), value(had), wanted)
	}
}

// value is that of a label for people: the labels of roles have none.
func value(v string) string {
	if v == "" {
		return "empty"
	}
	return v
}
