package nodehealthcheck

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/must"
)

// outcomeOf returns the outcome for a node with one request.
func outcomeOf(r Request) *outcome {
	if r.Object == nil {
		r.Object = &unstructured.Unstructured{Object: map[string]any{}}
	}
	return &outcome{
		Decision: &Decision{
			Node: &Node{Name: "n", Requests: []Request{r}}, Requests: []RequestState{{Request: &r, Counted: r.started()}},
		},
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
		o := outcomeOf(Request{Object: obj, Step: tc.step})
		must.Is(t, tc.want, remediationOf(w, o, &o.Requests[0]).TemplateName, "%s: got", name)
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
		o.Requests[0].ended = true
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
		o.Listed = tc.listed
		entry := entryOf(&observed{facts: Facts{Now: epoch}}, o)
		if entry == nil || entry.ConditionsHealthyTimestamp == nil || !entry.ConditionsHealthyTimestamp.Equal(&tc.want) {
			t.Errorf("%s: got %+v, want healthy since %s", name, entry, tc.want)
		}
	}
}

// oldest returns the metric of the oldest request of the check nhc; false if there is none.
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

// Requests of a deleted check must not count in the metrics of a new check with the same name.
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

// The message of a disabled check names the template and its step, so that users find a wrong letter in a namespace or a name.
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
			`kubemend may not read Replace. Install the remediator's ClusterRole that allows it, with the label ` +
				`rbac.ext-remediation/aggregate-to-ext-remediation: "true": "ReplaceTemplate remediators/replace: Replace.remediator.example.org is forbidden: <nil>"`,
			`kubemend may not read Replace. Install the remediator's ClusterRole that allows it, with the label ` +
				`rbac.ext-remediation/aggregate-to-ext-remediation: "true": "ReplaceTemplate remediators/replace (order 1): Replace.remediator.example.org is forbidden: <nil>"`,
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

func node(name string, labels map[string]string) *corev1.Node {
	all := map[string]string{"kubernetes.io/hostname": name}
	maps.Copy(all, labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: all, CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour))},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))},
		}},
	}
}

func workers(names ...string) []client.Object {
	var all []client.Object
	for _, name := range names {
		all = append(all, node(name, nil))
	}
	return all
}

func member(name string) *corev1.Node {
	return node(name, map[string]string{"node-role.kubernetes.io/control-plane": ""})
}

// template returns a remediation template for one of kindsOfRequests. Several says that several requests for one node are allowed.
func template(kind, name string, several bool) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}}},
	}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: kind + remediationrequest.TemplateSuffix})
	obj.SetNamespace(namespace)
	obj.SetName(name)
	if several {
		obj.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
	}
	return obj
}

func refTo(kind, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: remediatorGroup + "/v1", Kind: kind + remediationrequest.TemplateSuffix, Namespace: namespace, Name: name}
}

// check returns a check for all nodes with the default conditions and one template.
func check(name string, change ...func(*nhcv1.NodeHealthCheckSpec)) *nhcv1.NodeHealthCheck {
	ref := refTo("Reboot", "reboot")
	c := &nhcv1.NodeHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("check-" + name), Generation: 1},
		Spec: nhcv1.NodeHealthCheckSpec{
			UnhealthyConditions: []nhcv1.UnhealthyCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 300 * time.Second}},
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 300 * time.Second}},
			},
			RemediationTemplate: &ref,
		},
	}
	for _, f := range change {
		f(&c.Spec)
	}
	return c
}

// ladder replaces the template by an escalation with a timeout of five minutes for each step.
func ladder(steps ...corev1.ObjectReference) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) {
		s.RemediationTemplate = nil
		for i, ref := range steps {
			s.EscalatingRemediations = append(s.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: ref, Order: i, Timeout: metav1.Duration{Duration: 5 * time.Minute},
			})
		}
	}
}

func leaseOf(holder string, length, acquired, renewed time.Duration) *coordinationv1.Lease {
	at := func(ago time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(epoch.Add(-ago))) }
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(length / time.Second)), AcquireTime: at(acquired), RenewTime: at(renewed),
	}}
}

func TestALeaseGoesWithItsNode(t *testing.T) {
	owner := func(kind, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "n", UID: types.UID(uid)}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new"}}
	for name, tc := range map[string]struct {
		node        *corev1.Node
		given, want []metav1.OwnerReference
	}{
		"a lease without owner":          {n, nil, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease of an older node":       {n, []metav1.OwnerReference{owner("Node", "old")}, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease with another owner":     {n, []metav1.OwnerReference{owner("Pod", "x")}, []metav1.OwnerReference{owner("Pod", "x"), owner("Node", "new")}},
		"a lease of this node":           {n, []metav1.OwnerReference{owner("Node", "new")}, []metav1.OwnerReference{owner("Node", "new")}},
		"a lease of a node that is gone": {nil, []metav1.OwnerReference{owner("Node", "old")}, []metav1.OwnerReference{owner("Node", "old")}},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tc.given}}
		belongsTo(lease, tc.node)
		must.Equal(t, tc.want, lease.OwnerReferences, "%s", name)
	}
}
