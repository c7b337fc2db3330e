package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// outcomeOf is the outcome for a node with one request.
func outcomeOf(r nodes.Request) *outcome {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	return &outcome{
		Decision: &nodes.Decision{Work: &nodes.Work{}, Requests: []nodes.RequestState{{Counted: r.Started}}}, n: &nodes.Node{Name: "n", Requests: []nodes.Request{r}},
		objects: &objects{requests: []*found{{obj: obj}}},
	}
}

func TestARequestNamesTheTemplateOfItsStep(t *testing.T) {
	w := &observed{facts: nodes.Facts{Templates: []nodes.Template{{Ref: nodes.Ref{Name: "first"}}, {Ref: nodes.Ref{Name: "second"}}}}}
	for name, tc := range map[string]struct {
		annotation string
		step       int
		want       string
	}{
		"its annotation does":                     {"annotated", 1, "annotated"},
		"without that the template of its step":   {"", 0, "first"},
		"of a later step, too":                    {"", 1, "second"},
		"of a step that there is no more nothing": {"", -1, ""},
	} {
		if got := remediationOf(w, outcomeOf(nodes.Request{Template: tc.annotation, Step: tc.step}), 0).TemplateName; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestARequestThatWasDeletedIsListedWhileAFinalizerKeepsIt(t *testing.T) {
	w := &observed{facts: nodes.Facts{Templates: []nodes.Template{{}}}}
	for kept, want := range map[bool]int{false: 0, true: 1} {
		o := outcomeOf(nodes.Request{Kept: kept})
		o.ended = []int{0}
		if got := remediationsOf(w, o); len(got) != want {
			t.Errorf("kept %t: %d are listed, want %d", kept, len(got), want)
		}
	}
}

func TestANodeIsHealthySinceItWasFirstSeenToBe(t *testing.T) {
	before := metav1.NewTime(epoch.Add(-time.Hour))
	for name, tc := range map[string]struct {
		listed *nhcv1.UnhealthyNode
		want   metav1.Time
	}{
		"the status does not list it":          {nil, metav1.NewTime(epoch)},
		"the status lists it without a moment": {&nhcv1.UnhealthyNode{}, metav1.NewTime(epoch)},
		"the status says since when":           {&nhcv1.UnhealthyNode{ConditionsHealthyTimestamp: &before}, before},
	} {
		o := outcomeOf(nodes.Request{Step: -1})
		o.objects.listed = tc.listed
		entry := entryOf(&observed{facts: nodes.Facts{Now: epoch}}, o)
		if entry == nil || entry.ConditionsHealthyTimestamp == nil || !entry.ConditionsHealthyTimestamp.Equal(&tc.want) {
			t.Errorf("%s: got %+v, want healthy since %s", name, entry, tc.want)
		}
	}
}

func TestAnyKnownMachineNamesTheCluster(t *testing.T) {
	m := &clusterv1.Machine{}
	if got := (&observed{objects: []objects{{}, {machine: m}, {}}}).someMachine(); got != m {
		t.Errorf("got %v, want the only machine", got)
	}
	if got := (&observed{objects: []objects{{}}}).someMachine(); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

func TestWhatANodeSaysOfItself(t *testing.T) {
	labelled := func(value string) *corev1.Node { return node("n", map[string]string{nhcv1.ExcludeLabel: value}) }
	terminating := func(status corev1.ConditionStatus) *corev1.Node {
		n := node("n", nil)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: status})
		return n
	}
	silent := node("n", nil)
	silent.Status.Conditions = nil
	for name, tc := range map[string]struct {
		node                                   *corev1.Node
		excluded, empty, terminating, reported bool
	}{
		"a node":                             {node: node("n", nil), reported: true},
		"one with the label, and its value":  {node: labelled(nhcv1.ExcludeValue), excluded: true, reported: true},
		"one with the label, and no value":   {node: labelled(""), empty: true, reported: true},
		"one with the label, and another":    {node: labelled("false"), reported: true},
		"W25: one that is terminating":       {node: terminating(corev1.ConditionTrue), terminating: true, reported: true},
		"W25: one that is not":               {node: terminating(corev1.ConditionFalse), reported: true},
		"W25: one of which nothing is known": {node: terminating(corev1.ConditionUnknown), reported: true},
		"W27: one that never reported":       {node: silent},
	} {
		var is nodes.Node
		describe(&is, tc.node, nodes.Facts{}.Policy)
		if is.Excluded != tc.excluded || is.ExcludedEmpty != tc.empty || is.Terminating != tc.terminating || is.Reported != tc.reported {
			t.Errorf("%s: got %+v", name, is)
		}
	}
}
