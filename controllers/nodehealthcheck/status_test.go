package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// outcomeOf is the outcome for a node with one request.
func outcomeOf(r Request) *outcome {
	if r.Object == nil {
		r.Object = &unstructured.Unstructured{Object: map[string]any{}}
	}
	return &outcome{
		Decision: &Decision{Requests: []RequestState{{Counted: r.Started()}}},
		n:        &Node{Name: "n", Requests: []Request{r}},
	}
}

func TestARequestNamesTheTemplateOfItsStep(t *testing.T) {
	named := func(name string) Template {
		return Template{ObjectReference: corev1.ObjectReference{Name: name}}
	}
	w := &observed{facts: Facts{Templates: []Template{named("first"), named("second")}}}
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
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetAnnotations(map[string]string{nhcv1.TemplateNameAnnotation: tc.annotation})
		if got := remediationOf(w, outcomeOf(Request{Object: obj, Step: tc.step}), 0).TemplateName; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestARequestThatWasDeletedIsListedWhileAFinalizerKeepsIt(t *testing.T) {
	w := &observed{facts: Facts{Templates: []Template{{}}}}
	for kept, want := range map[bool]int{false: 0, true: 1} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		if kept {
			obj.SetFinalizers([]string{"remediator"})
		}
		o := outcomeOf(Request{Object: obj})
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
		o := outcomeOf(Request{Step: -1})
		o.n.Listed = tc.listed
		entry := entryOf(&observed{facts: Facts{Now: epoch}}, o)
		if entry == nil || entry.ConditionsHealthyTimestamp == nil || !entry.ConditionsHealthyTimestamp.Equal(&tc.want) {
			t.Errorf("%s: got %+v, want healthy since %s", name, entry, tc.want)
		}
	}
}
