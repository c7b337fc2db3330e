package remediationrequest

import (
	"fmt"
	"hash/fnv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Ask is the node that a request is about, and the check that makes it.
type Ask struct {
	// Name is that of the request.
	Name         string
	Node         string
	ControlPlane bool
	// By is the check.
	By Maker
	// Owners are the check, and the machine if it is known. Neither is a controller of the request.
	Owners []metav1.OwnerReference
}

// NodeCheckOf returns the NodeHealthCheck that made the request, as far as the mark says so. Remediators take marks off, or a half of one,
// and medik8s' operator makes none.
func NodeCheckOf(req metav1.Object) Maker {
	return Maker{Name: req.GetAnnotations()[mendv1.MadeByNodeCheckAnnotation], UID: types.UID(req.GetLabels()[mendv1.MadeByNodeCheckUIDLabel])}
}

// NodeChecksMarks select the requests that NodeHealthChecks made: by our mark, and by the label that medik8s' operator sets as well.
func NodeChecksMarks() []client.ListOption {
	return []client.ListOption{client.HasLabels{mendv1.MadeByNodeCheckUIDLabel}, client.MatchingLabels{nhcv1.PartOfLabel: nhcv1.PartOf}}
}

// ForNode returns the request that a asks for from template, as medik8s makes it: the template's content as its spec, in the template's
// namespace, marked with its node and its template. Nothing else of the template is copied. The mark of its maker is ours.
func ForNode(a Ask, template *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind, err := NodeKindOf(template.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	spec, err := Content(template)
	if err != nil {
		return nil, err
	}
	req := &unstructured.Unstructured{Object: map[string]any{}}
	req.SetGroupVersionKind(kind)
	req.SetName(a.Name)
	req.SetNamespace(template.GetNamespace())
	req.SetOwnerReferences(a.Owners)
	req.SetAnnotations(map[string]string{
		nhcv1.NodeNameAnnotation: a.Node, nhcv1.TemplateNameAnnotation: template.GetName(), mendv1.MadeByNodeCheckAnnotation: a.By.Name,
	})
	marks := map[string]string{nhcv1.PartOfLabel: nhcv1.PartOf, mendv1.MadeByNodeCheckUIDLabel: string(a.By.UID)}
	if a.ControlPlane {
		marks[nhcv1.ControlPlaneLabel] = ""
	}
	req.SetLabels(marks)
	if spec != nil {
		req.Object["spec"] = spec
	}
	return req, nil
}

// NodeKindOf returns the kind of the requests made from templates of the given kind. The error says that they are no templates.
func NodeKindOf(template schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if why := Refusal(template); why != nil {
		return schema.GroupVersionKind{}, why
	}
	return KindOf(template), nil
}

// Content returns a copy of what requests made from template have as their spec: its spec.template.spec, or, where there is none, what is
// in spec.template but metadata (as in the first documentation of NodeHealthCheck). It is nil if there is nothing.
func Content(template *unstructured.Unstructured) (map[string]any, error) {
	invalid := fmt.Errorf("invalid template %s/%s, didn't find spec.template.spec", template.GetNamespace(), template.GetName())
	content, found, err := unstructured.NestedMap(template.Object, "spec", "template")
	if err != nil || !found {
		return nil, invalid
	}
	switch spec := content["spec"].(type) {
	case map[string]any:
		return spec, nil
	case nil:
	default:
		return nil, invalid
	}
	delete(content, "spec")
	delete(content, "metadata")
	if len(content) == 0 {
		return nil, nil
	}
	return content, nil
}

// maxName is how long the name of an object may be.
const maxName = 253

// UniqueName returns a name for a request about node that no other template's request has: the node's name, and a few characters that
// look like those of metadata.generateName but are made from what it is for. So the same request is never made twice, whatever was lost
// on the way.
func UniqueName(node string, what ...string) string {
	sum := fnv.New32a()
	for _, w := range what {
		_, _ = sum.Write([]byte(w + "\x00")) // never fails
	}
	suffix := "-" + rand.SafeEncodeString(fmt.Sprintf("%08x", sum.Sum32()))
	return node[:min(len(node), maxName-len(suffix))] + suffix
}
