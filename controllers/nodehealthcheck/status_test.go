package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
		must.Is(t, tc.want, remediationOf(w, outcomeOf(Request{Object: obj, Step: tc.step}), 0).TemplateName, "%s: got", name)
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

// oldest is what is exported of the oldest request of the check nhc; false if nothing is.
func oldest(t *testing.T) (time.Time, bool) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(oldestRequest)
	families, err := registry.Gather()
	must.Do(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "oldest" {
				return time.Unix(int64(m.GetGauge().GetValue()), 0), true
			}
		}
	}
	return time.Time{}, false
}

func TestTheOldestRequestIsExportedUntilTheCheckGoes(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), check("oldest"))...)
	k.settle("oldest")
	if at, exported := oldest(t); !exported || at.Unix() != 0 {
		t.Errorf("without requests %s, %t; want zero", at, exported)
	}
	k.bad("a")
	k.settle("oldest")
	first := k.clock.Now()
	k.clock.SetTime(first.Add(time.Hour))
	k.bad("b")
	k.settle("oldest")
	if at, _ := oldest(t); !at.Equal(first) || len(k.requests()) != 2 {
		t.Errorf("of the requests %v, the oldest is said to be of %s, want %s", k.requests(), at, first)
	}
	k.remove(k.check("oldest"))
	k.reconcile("oldest")
	if at, exported := oldest(t); exported {
		t.Errorf("without the check %s is exported, want nothing", at)
	}
}

// The requests of a check that is gone are no news of another one that has its name.
func TestWhatACheckHasLeftIsNoEndOfARemediationOfTheNextOne(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Replace", "replace", false), replacing("again", "first"))...)
	k.bad("b")
	k.settle("again")
	k.atWork()
	k.goes("again")
	k.reconcile("again")
	k.create(replacing("again", "second"))
	k.settle("again")
	if n := finished.DeletePartialMatch(prometheus.Labels{"name": "again"}); n > 0 || len(k.requests()) != 1 {
		t.Errorf("%d remediations of the check have ended, and the requests are %v", n, k.requests())
	}
}

// What disables a check says which of its templates that is, and of which step: with one letter wrong in a namespace as in a name.
func TestADisabledCheckNamesTheTemplateAndItsStep(t *testing.T) {
	const missing = `Remediation template not found: "failed to get RebootTemplate `
	elsewhere, homeless := refTo("Reboot", "reboot"), refTo("Reboot", "reboot")
	elsewhere.Namespace, homeless.Namespace = "nowhere", ""
	broken := template("Pray", "broken", false)
	unstructured.RemoveNestedField(broken.Object, "spec", "template")
	for name, row := range map[string]struct {
		bad        corev1.ObjectReference
		alone, two string
	}{
		"a name that no template has": {
			refTo("Reboot", "nope"),
			missing + `remediators/nope: reboottemplates.remediator.example.org \"nope\" not found"`,
			missing + `remediators/nope (order 1): reboottemplates.remediator.example.org \"nope\" not found"`,
		},
		"a namespace that has none": {
			elsewhere,
			missing + `nowhere/reboot: reboottemplates.remediator.example.org \"reboot\" not found"`,
			missing + `nowhere/reboot (order 1): reboottemplates.remediator.example.org \"reboot\" not found"`,
		},
		"no namespace": {
			homeless,
			missing + `reboot: remediation template \"reboot\" not found, it is namespaced, but no namespace is provided"`,
			missing + `reboot (order 1): remediation template \"reboot\" not found, it is namespaced, but no namespace is provided"`,
		},
		"a kind of requests that may not be read": {
			refTo("Replace", "replace"),
			`Replace may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: "true" has to allow it, ` +
				`as the remediator brings one: "ReplaceTemplate remediators/replace: Replace.remediator.example.org is forbidden: <nil>"`,
			`Replace may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: "true" has to allow it, ` +
				`as the remediator brings one: "ReplaceTemplate remediators/replace (order 1): Replace.remediator.example.org is forbidden: <nil>"`,
		},
		"a template without content": {
			refTo("Pray", "broken"),
			`Remediation template is invalid: "invalid template remediators/broken, didn't find spec.template.spec"`,
			`Remediation template is invalid: "invalid template remediators/broken, didn't find spec.template.spec", of PrayTemplate remediators/broken (order 1)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("w0"), template("Reboot", "reboot", false), template("Pray", "pray", false), broken,
				check("alone", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = &row.bad }), check("two", ladder(refTo("Pray", "pray"), row.bad)))...)
			k.deny("Replace")
			for check, want := range map[string]string{"alone": row.alone, "two": row.two} {
				k.reconciles(check)
				if c := meta.FindStatusCondition(k.check(check).Status.Conditions, nhcv1.DisabledCondition); c == nil || c.Message != want {
					t.Errorf("%s: %+v, want\n%s", check, c, want)
				}
			}
		})
	}
}
