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

// Ask describes the request of a NodeHealthCheck for a node.
type Ask struct {
	Name         string // of the request
	Node         string
	ControlPlane bool
	By           Maker // the check
	// Owners are the check and, if it is known, the Machine. Neither is the controller of the request.
	Owners []metav1.OwnerReference
}

// NodeCheckOf returns the NodeHealthCheck that made the request. Its name or UID is empty if a remediator has removed the annotation or the
// label, or if medik8s' operator made the request.
func NodeCheckOf(req metav1.Object) Maker {
	return Maker{Name: req.GetAnnotations()[mendv1.MadeByNodeCheckAnnotation],
		UID: types.UID(req.GetLabels()[mendv1.MadeByNodeCheckUIDLabel])}
}

// NodeChecksMarks returns two list options that each select requests of NodeHealthChecks: by kubemend's label, and by a label that medik8s'
// operator sets too.
func NodeChecksMarks() []client.ListOption {
	return []client.ListOption{client.HasLabels{mendv1.MadeByNodeCheckUIDLabel}, client.MatchingLabels{nhcv1.PartOfLabel: nhcv1.PartOf}}
}

// ForNode returns the request for a, as medik8s' operator makes it: in the namespace of the template, with the content of the template as
// its spec, and with annotations that name the node and the template. The annotation and the label of the check are kubemend's own.
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

// NodeKindOf returns the kind of the requests made from templates of this kind, or an error if it is not a kind of templates.
func NodeKindOf(template schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if why := Refusal(template); why != nil {
		return schema.GroupVersionKind{}, why
	}
	return KindOf(template), nil
}

// Content returns a copy of the spec for requests made from template: spec.template.spec or, without one, the fields of spec.template
// except metadata (as in the first documentation of NodeHealthCheck). It is nil if there are no fields.
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

// maxName is the maximum length of the name of an object.
const maxName = 253

// UniqueName returns a name for a request for node: the name of the node, and a suffix that looks like one of metadata.generateName but is
// a hash of what. So requests from several templates have different names, and a create that is repeated after a lost response fails
// instead of making a second request.
func UniqueName(node string, what ...string) string {
	sum := fnv.New32a()
	for _, w := range what {
		_, _ = sum.Write([]byte(w + "\x00")) // never fails
	}
	suffix := "-" + rand.SafeEncodeString(fmt.Sprintf("%08x", sum.Sum32()))
	return node[:min(len(node), maxName-len(suffix))] + suffix
}
