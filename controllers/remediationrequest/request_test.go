package remediationrequest

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func machine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "worker-3", UID: "m-uid"},
		Spec:       clusterv1.MachineSpec{ClusterName: "c1"},
	}
}

func template(embedded map[string]any) *unstructured.Unstructured {
	t := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3RemediationTemplate",
		"metadata": map[string]any{"name": "reboot", "namespace": "metal"}, "spec": map[string]any{},
	}}
	if embedded != nil {
		t.Object["spec"] = map[string]any{"template": embedded}
	}
	return t
}

func TestARequestIsMadeAsClusterAPIMakesIt(t *testing.T) {
	got, err := For(machine(), template(map[string]any{
		"metadata": map[string]any{
			"labels": map[string]any{"keep": "me"}, "annotations": map[string]any{"keep": "me"},
			"uid": "stale", "resourceVersion": "1", "finalizers": []any{"stale"}, "generateName": "x", "name": "other", "namespace": "other",
		},
		"spec": map[string]any{"strategy": map[string]any{"type": "Reboot"}},
	}), Maker{Name: "check", UID: "c-uid"})
	must.Do(t, err)
	want := map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation",
		"metadata": map[string]any{
			"name": "worker-3", "namespace": "metal",
			"labels": map[string]any{"keep": "me", "cluster.x-k8s.io/cluster-name": "c1", "kubemend.io/made-by-uid": "c-uid"},
			"annotations": map[string]any{
				"keep": "me", "cluster.x-k8s.io/cloned-from-name": "reboot",
				"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
				"kubemend.io/made-by":                    "check",
			},
			"ownerReferences": []any{map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "worker-3", "uid": "m-uid"}},
		},
		"spec": map[string]any{"strategy": map[string]any{"type": "Reboot"}},
	}
	must.Equal(t, want, got.Object, "For()")
}

// A request of another kind than the check lists would be made again and again.
func TestWhichKindsATemplateMayMake(t *testing.T) {
	const group, kind = "infrastructure.cluster.x-k8s.io", "Metal3Remediation"
	broken := template(nil)
	broken.Object["spec"] = map[string]any{"template": "text"}
	for name, tc := range map[string]struct {
		template *unstructured.Unstructured
		version  string
		says     []string
	}{
		"that beside it, without content":      {template: template(nil), version: "v1beta1"},
		"another version of that, if it says":  {template: template(map[string]any{"apiVersion": group + "/v1beta2", "kind": kind}), version: "v1beta2"},
		"no other kind, which the error names": {template: template(map[string]any{"apiVersion": "other.io/v1", "kind": "Reboot"}), says: []string{"Reboot.other.io", kind + ".infrastructure"}},
		"none where the template is a text":    {template: broken, says: []string{"template"}},
	} {
		got, err := For(machine(), tc.template, Maker{Name: "check"})
		if tc.says == nil {
			if err != nil || got.GroupVersionKind() != (schema.GroupVersionKind{Group: group, Version: tc.version, Kind: kind}) || got.GetName() != "worker-3" {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		for _, say := range tc.says {
			if err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v, want %s in it", name, err, say)
			}
		}
	}
}

func TestOnlyKindsWithATemplateBesideThemAreRequests(t *testing.T) {
	resources := []metav1.APIResource{
		{Name: "metal3remediations", Kind: "Metal3Remediation", Namespaced: true}, {Name: "metal3remediations/status", Kind: "Metal3Remediation", Namespaced: true},
		{Name: "metal3remediationtemplates", Kind: "Metal3RemediationTemplate", Namespaced: true},
		{Name: "lonelies", Kind: "Lonely", Namespaced: true}, {Name: "orphantemplates", Kind: "OrphanTemplate", Namespaced: true},
		{Name: "wides", Kind: "Wide"}, {Name: "widetemplates", Kind: "WideTemplate"},
	}
	for gv, want := range map[string][]string{
		"infrastructure.cluster.x-k8s.io/v1beta2": {"metal3remediations", "wides"}, "example.org/v1": {"metal3remediations", "wides"},
		"v1": nil, "apps/v1": nil, "resource.k8s.io/v1": nil,
	} {
		var got []string
		kinds, err := KindsIn(&metav1.APIResourceList{GroupVersion: gv, APIResources: resources})
		for _, kind := range kinds {
			got = append(got, kind.Name)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, kinds (-want +got):\n%s", gv, err, diff)
		}
	}
	if _, err := KindsIn(&metav1.APIResourceList{GroupVersion: "a/b/c"}); err == nil {
		t.Error("a group and version of three parts was accepted")
	}
}

func TestARequestThatIsAdoptedNamesItsMakerAndItsRecord(t *testing.T) {
	for record, want := range map[string]map[string]string{
		"":      {mendv1.MadeByAnnotation: "check"},
		"m-123": {mendv1.MadeByAnnotation: "check", mendv1.RecordAnnotation: "m-123"},
	} {
		var written metav1.PartialObjectMetadata
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				return json.Unmarshal(data, &written)
			},
		}).Build()
		req := NewMetadata()
		req.Namespace, req.Name, req.ResourceVersion = "ns", "m", "7"
		must.Do(t, (&Requests{Client: c}).Adopt(t.Context(), req, Maker{Name: "check", UID: "check-uid"}, record))
		if diff := cmp.Diff(want, written.Annotations); diff != "" || written.ResourceVersion != "7" {
			t.Errorf("record %q: it writes resourceVersion %q, and (-want +got):\n%s", record, written.ResourceVersion, diff)
		}
	}
}

func TestTheProvidersStatusEnqueuesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*Metadata)
		enqueues bool
	}{
		"only its version and its field owners": {func(m *Metadata) {
			m.ResourceVersion, m.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Manager: "provider", Subresource: "status"}}
		}, false},
		"its finalizers":      {func(m *Metadata) { m.Finalizers = []string{"provider"} }, true},
		"its annotations":     {func(m *Metadata) { m.Annotations = map[string]string{"a": "b"} }, true},
		"its labels":          {func(m *Metadata) { m.Labels = map[string]string{"a": "b"} }, true},
		"it is being deleted": {func(m *Metadata) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"it is another one":   {func(m *Metadata) { m.UID = "another" }, true},
		"its owners":          {func(m *Metadata) { m.OwnerReferences = []metav1.OwnerReference{{Name: "m"}} }, true},
		"its specification":   {func(m *Metadata) { m.Generation = 2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			enqueued := false
			h := Changed(handler.TypedFuncs[*Metadata, reconcile.Request]{
				UpdateFunc: func(context.Context, event.TypedUpdateEvent[*Metadata], workqueue.TypedRateLimitingInterface[reconcile.Request]) {
					enqueued = true
				},
			})
			is := &Metadata{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "1"}}
			tc.change(is)
			h.Update(t.Context(), event.TypedUpdateEvent[*Metadata]{ObjectOld: &Metadata{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "1"}}, ObjectNew: is}, nil)
			must.Is(t, tc.enqueues, enqueued, "enqueued:")
		})
	}
}

func nodeTemplate(spec any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "medik8s.io/v1alpha1", "kind": "ProviderXRemediationTemplate",
		"metadata": map[string]any{"name": "group-x", "namespace": "default", "labels": map[string]any{"not": "copied"}}, "spec": spec,
	}}
}

func TestARequestForANodeIsMadeAsMedik8sMakesIt(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check", UID: "c-uid"}
	ask := Ask{
		Name: "worker-0-21", Node: "worker-0-21", ControlPlane: true, By: Maker{Name: "check", UID: "c-uid"}, Owners: []metav1.OwnerReference{owner},
	}
	got, err := ForNode(ask, nodeTemplate(map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"not": "copied"}}, "spec": map[string]any{"size": int64(42)},
	}}))
	must.Do(t, err)
	want := map[string]any{
		"apiVersion": "medik8s.io/v1alpha1", "kind": "ProviderXRemediation",
		"metadata": map[string]any{
			"name": "worker-0-21", "namespace": "default",
			"annotations": map[string]any{
				"remediation.medik8s.io/node-name": "worker-0-21", "remediation.medik8s.io/template-name": "group-x",
				"kubemend.io/made-by-node-health-check": "check",
			},
			"labels": map[string]any{
				"app.kubernetes.io/part-of": "node-healthcheck-controller", "remediation.medik8s.io/isControlPlaneNode": "",
				"kubemend.io/made-by-node-health-check-uid": "c-uid",
			},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "name": "check", "uid": "c-uid",
			}},
		},
		"spec": map[string]any{"size": int64(42)},
	}
	must.Equal(t, want, got.Object, "ForNode()")
	must.Is(t, ask.By, NodeCheckOf(got), "it says that it was made by")
	if by, marked := MadeBy(got); marked {
		t.Errorf("it was made by MachineHealthCheck %v, who would delete it", by)
	}
}

func TestContentOfATemplate(t *testing.T) {
	const missing = "invalid template default/group-x, didn't find spec.template.spec"
	for name, tc := range map[string]struct {
		spec any
		want map[string]any
		err  string
	}{
		"seed 0.19: spec.template.spec is the content": {
			spec: map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}, "size": int64(1)}},
			want: map[string]any{"size": int64(42)},
		},
		"seed 0.19, W17: without it, what is in spec.template but metadata": {
			spec: map[string]any{"template": map[string]any{"size": int64(42), "metadata": map[string]any{"labels": map[string]any{}}}},
			want: map[string]any{"size": int64(42)},
		},
		"an empty spec is a spec":             {spec: map[string]any{"template": map[string]any{"spec": map[string]any{}}}, want: map[string]any{}},
		"nothing at all is no spec":           {spec: map[string]any{"template": map[string]any{}}},
		"without a spec it is invalid":        {err: missing},
		"a list is no spec of a template":     {spec: []any{"text"}, err: missing},
		"without spec.template it is invalid": {spec: map[string]any{}, err: missing},
		"a text is no template":               {spec: map[string]any{"template": "reboot"}, err: missing},
		"a text is no spec":                   {spec: map[string]any{"template": map[string]any{"spec": "reboot"}}, err: missing},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Content(nodeTemplate(tc.spec))
			if said := fmt.Sprint(err); said != stdcmp.Or(tc.err, "<nil>") {
				t.Errorf("error %q, want %q", said, tc.err)
			}
			must.Equal(t, tc.want, got, "Content()")
		})
	}
}

func TestKindsOfTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"SelfNodeRemediationTemplate": "SelfNodeRemediation",
		"Template":                    "", // W21
		"Pod":                         "",
		"":                            "",
	} {
		got, err := NodeKindOf(schema.GroupVersionKind{Group: "x.example.org", Version: "v1", Kind: template})
		if got.Kind != want || (err == nil) != (want != "") {
			t.Errorf("NodeKindOf(%q) = %q, %v, want %q", template, got.Kind, err, want)
		}
	}
}

func TestUniqueNames(t *testing.T) {
	a, b := UniqueName("worker-0", "check", "ns", "one"), UniqueName("worker-0", "check", "ns", "two")
	if a == b || a != UniqueName("worker-0", "check", "ns", "one") {
		t.Errorf("%s and %s: the same template has to give the same name, another one another", a, b)
	}
	if UniqueName("n", "a", "bc") == UniqueName("n", "ab", "c") {
		t.Error("where one part ends and the next begins makes no difference")
	}
	long := UniqueName(strings.Repeat("n", 253), "check")
	for _, name := range []string{a, b, long} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s is no name: %v", name, problems)
		}
	}
	if !strings.HasPrefix(a, "worker-0-") {
		t.Errorf("%s does not begin with the node's name", a)
	}
}
