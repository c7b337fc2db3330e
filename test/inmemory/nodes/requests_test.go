package nodes

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// remediator is a kind of requests with its kind of templates. The tests play its controller.
type remediator struct {
	kind   schema.GroupVersionKind // of the requests
	global bool                    // both kinds are cluster-scoped
}

func installedAs(group, version, kind string) remediator {
	return remediator{kind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
}

// The remediators that are installed: two that know only the contract, one of objects without namespace, those of medik8s, that of the
// first documentation, and those whose requests have the name of the node's Machine.
var (
	reboot   = installedAs("test.kubemend.io", "v1alpha1", "RebootRemediation")
	replace  = installedAs("test.kubemend.io", "v1alpha1", "ReplaceRemediation")
	global   = remediator{kind: reboot.kind.GroupVersion().WithKind("GlobalRemediation"), global: true}
	selfNode = installedAs("self-node-remediation.medik8s.io", "v1alpha1", "SelfNodeRemediation")
	pill     = installedAs("poison-pill.medik8s.io", "v1alpha1", "PoisonPillRemediation")
	deletion = installedAs("machine-deletion-remediation.medik8s.io", "v1alpha1", "MachineDeletionRemediation")
	provider = installedAs("medik8s.io", "v1alpha1", "ProviderXRemediation")
	misspelt = installedAs("medik8s.io", "v1alpha1", "ProviderXRemdiation") // as the first documentation has it where it prints a template
	metal3   = installedAs("infrastructure.cluster.x-k8s.io", "v1beta2", "Metal3Remediation")
	cycle    = installedAs("infrastructure.cluster.x-k8s.io", "v1beta2", "Cycle")
	hosts    = installedAs("kubemend.io", "v1alpha1", "HostRemediation")
	late     = installedAs("late.example.org", "v1alpha1", "LateRemediation") // whose kinds are installed by a spec

	remediators = []remediator{reboot, replace, global, selfNode, pill, deletion, provider, misspelt, metal3, cycle, hosts, late}
)

// templates is the kind of the remediator's templates.
func (r remediator) templates() schema.GroupVersionKind {
	return r.kind.GroupVersion().WithKind(r.kind.Kind + "Template")
}

// puts makes an object, or replaces it.
func (e *environment) puts(u *unstructured.Unstructured) {
	e.Helper()
	err := e.here.Create(e.Context(), u)
	if apierrors.IsAlreadyExists(err) {
		err = e.here.Update(e.Context(), u)
	}
	e.must(err)
}

// template makes a template whose requests have a size of 42.
func (e *environment) template(r remediator, name string, edits ...func(*unstructured.Unstructured)) corev1.ObjectReference {
	e.Helper()
	t := r.object(e.namespace, name)
	t.SetGroupVersionKind(r.templates())
	sized(42)(t)
	if e.several {
		severally(t)
	}
	for _, edit := range edits {
		edit(t)
	}
	e.puts(t)
	e.knows(r)
	return corev1.ObjectReference{APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName()}
}

// knows adds a remediator to those whose requests are looked for.
func (e *environment) knows(r remediator) {
	if !slices.Contains(e.remediators, r) {
		e.remediators = append(e.remediators, r)
	}
}

// sized makes a template one of requests with this size; severally says that there may be several requests for one node.
func sized(size int64) func(*unstructured.Unstructured) {
	return func(t *unstructured.Unstructured) {
		t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"size": size}}}
	}
}

func severally(t *unstructured.Unstructured) {
	t.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
}

// object is a request of that name.
func (r remediator) object(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(r.kind)
	u.SetName(name)
	if !r.global {
		u.SetNamespace(namespace)
	}
	return u
}

// requests returns all requests, oldest first.
func (e *environment) requests() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, r := range e.remediators {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(r.kind)
		e.must(e.here.List(e.Context(), list))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	return all
}

// short is how the tables name a kind.
func short(kind string) string { return strings.TrimSuffix(kind, "Remediation") }

// named returns a request as the tables name it: "Reboot/soft".
func named(req *unstructured.Unstructured) string {
	return short(req.GetKind()) + "/" + req.GetAnnotations()[nhcv1.TemplateNameAnnotation]
}

// about returns the node of a request.
func about(req *unstructured.Unstructured) string {
	return req.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

// of returns the requests for a node, oldest first.
func (e *environment) of(node string) []*unstructured.Unstructured {
	return slices.DeleteFunc(e.requests(), func(u *unstructured.Unstructured) bool {
		is, named := u.GetAnnotations()[nhcv1.NodeNameAnnotation]
		return is != node && (named || u.GetName() != node)
	})
}

// requested are the requests for a node, oldest first.
func (e *environment) requested(node string) func() []string {
	return func() []string {
		found := []string{}
		for _, u := range e.of(node) {
			found = append(found, named(u))
		}
		return found
	}
}

// nodesRequested are the nodes for which there are requests, once for each request.
func (e *environment) nodesRequested() func() []string {
	return func() []string {
		found := []string{}
		for _, u := range e.requests() {
			found = append(found, about(u))
		}
		return found
	}
}

// request is the only request for a node.
func (e *environment) request(node string) *unstructured.Unstructured {
	GinkgoHelper()
	return e.latest(node, 1)
}

// latest expects n requests for a node, and returns the latest.
func (e *environment) latest(node string, n int) *unstructured.Unstructured {
	GinkgoHelper()
	found := e.of(node)
	Expect(found).To(HaveLen(n))
	return found[n-1]
}

// again reads a request again; nil if it is gone.
func (e *environment) again(req *unstructured.Unstructured) *unstructured.Unstructured {
	u := req.DeepCopy()
	if !e.get(u) || u.GetUID() != req.GetUID() {
		return nil
	}
	return u
}

// annotation returns what an annotation of a request says; "" if it has none, or is gone.
func (e *environment) annotation(req *unstructured.Unstructured, key string) func() string {
	return func() string {
		u := e.again(req)
		if u == nil {
			return ""
		}
		return u.GetAnnotations()[key]
	}
}

// isGone reports whether a request is gone; isLeaving whether it is being deleted.
func (e *environment) isGone(req *unstructured.Unstructured) func() bool {
	return func() bool { return e.again(req) == nil }
}

func (e *environment) isLeaving(req *unstructured.Unstructured) func() bool {
	return func() bool {
		u := e.again(req)
		return u != nil && u.GetDeletionTimestamp() != nil
	}
}

const keep = "test.kubemend.io/keep"

// holds makes a remediator add a finalizer to its request, if that exists, or remove it.
func (e *environment) holds(req *unstructured.Unstructured, does bool) {
	e.Helper()
	u := e.again(req)
	if u == nil {
		return
	}
	u.SetFinalizers(nil)
	if does {
		u.SetFinalizers([]string{keep})
	}
	e.must(e.here.Update(e.Context(), u))
}

// says makes the remediator of a request, if that exists, set a condition.
func (e *environment) says(req *unstructured.Unstructured, kind string, status metav1.ConditionStatus) {
	e.Helper()
	u := e.again(req)
	if u == nil {
		return
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	e.must(err)
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == kind })
	conditions = append(conditions, map[string]any{
		"type": kind, "status": string(status), "reason": "Test", "message": "", "lastTransitionTime": e.now().UTC().Format(time.RFC3339),
	})
	e.must(unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"))
	e.must(e.here.Status().Update(e.Context(), u))
}
