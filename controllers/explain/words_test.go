package explain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

func TestASentenceGoesOnInAnotherOne(t *testing.T) {
	for sentence, want := range map[string]string{
		"":                            "",
		"The check is being deleted":  "the check is being deleted",
		"No request can be made":      "no request can be made",
		"Cluster c1 is being deleted": "Cluster c1 is being deleted",
		"Metal3Remediation w1 exists": "Metal3Remediation w1 exists",
		"the workload did not move":   "the workload did not move",
	} {
		if got := Clause(sentence); got != want {
			t.Errorf("%q goes on as %q, want %q", sentence, got, want)
		}
	}
}

func TestUnmatched(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	of := func(all ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: all}
	}
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		labels   map[string]string
		want     string
	}{
		"an empty selector matches all":               {},
		"what matches is not explained":               {metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, map[string]string{"a": "b"}, ""},
		"a label that is missing":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, nil, "has no label pool: needs pool=x"},
		"a label that is another":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, map[string]string{"pool": "y"}, `label pool is "y": needs pool=x`},
		"a label of a role that has a value":          {metav1.LabelSelector{MatchLabels: map[string]string{"role": ""}}, map[string]string{"role": "y"}, `label role is "y": needs role=`},
		"none of several values":                      {of(expression("pool", "In", "z", "x")), map[string]string{"pool": "y"}, `label pool is "y": needs pool in (x,z)`},
		"none of several values, since it is missing": {of(expression("pool", "In", "z", "x")), nil, "has no label pool: needs pool in (x,z)"},
		"one of the values that it must not have":     {of(expression("pool", "NotIn", "y", "x")), map[string]string{"pool": "y"}, `label pool is "y": needs pool notin (x,y)`},
		"a label that has to be there":                {of(expression("pool", "Exists")), nil, "has no label pool: needs pool"},
		"a label that must not be there":              {of(expression("pool", "DoesNotExist")), map[string]string{"pool": ""}, "has label pool, which it must not have"},
		"all that fails, in the order of the selector": {
			metav1.LabelSelector{MatchLabels: map[string]string{"b": "1", "a": "1"}, MatchExpressions: of(expression("z", "Exists"), expression("c", "Exists")).MatchExpressions}, nil,
			"has no label a: needs a=1; has no label b: needs b=1; has no label z: needs z; has no label c: needs c",
		},
		"a selector that cannot be read": {of(expression("pool", "Like")), nil, `the selector is invalid: "Like" is not a valid label selector operator`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unmatched(tc.selector, tc.labels); got != tc.want {
				t.Errorf("Unmatched() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnmatchedIsEmptyWhereverKubernetesSelects(t *testing.T) {
	key, val := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"})
	expressions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: key.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Like",
		}).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(val, 0, 3).Draw(t, "values")
		}
		return r
	}), 0, 3)
	some := rapid.MapOfN(key, val, 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		selector := metav1.LabelSelector{MatchLabels: some.Draw(t, "matchLabels"), MatchExpressions: expressions.Draw(t, "matchExpressions")}
		is := some.Draw(t, "labels")
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		selects := err == nil && parsed.Matches(labels.Set(is))
		if why := Unmatched(selector, is); (why == "") != selects {
			t.Fatalf("Unmatched() = %q, and Kubernetes selects: %v", why, selects)
		}
	})
}
