// Package remediationrequest creates, finds, adopts and deletes remediation requests. A remediator acts on a machine or a node while a
// request for it exists. Every request names the check that made it, so that no check deletes the requests of another.
package remediationrequest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// TemplateSuffix is the suffix of all kinds of remediation templates. Without the suffix it is the kind of the requests.
const TemplateSuffix = "Template"

// Maker is the check that made a request: a MachineHealthCheck in the request's namespace, or a NodeHealthCheck.
type Maker struct {
	Name string
	UID  types.UID
}

// MadeBy returns the MachineHealthCheck that made the request, or false if Cluster API core or a user made it.
func MadeBy(req metav1.Object) (Maker, bool) {
	name, marked := req.GetAnnotations()[mendv1.MadeByAnnotation]
	return Maker{Name: name, UID: types.UID(req.GetLabels()[mendv1.MadeByUIDLabel])}, marked
}

// TemplateKind returns the kind that ref names.
func TemplateKind(ref clusterv1.MachineHealthCheckRemediationTemplateReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}

// KindOf returns the kind of the requests made from templates of the given kind.
func KindOf(template schema.GroupVersionKind) schema.GroupVersionKind {
	return template.GroupVersion().WithKind(strings.TrimSuffix(template.Kind, TemplateSuffix))
}

// Refusal returns why no requests can be made from objects of a kind; nil if they can. The name of the kind must end in Template (Cluster
// API, the contract of external remediation). Kinds of Kubernetes, and kinds of Cluster API that are not for remediation, are refused,
// because the author of a check chooses the kind and the manager would watch all objects of it.
func Refusal(template schema.GroupVersionKind) error {
	name, suffixed := strings.CutSuffix(template.Kind, TemplateSuffix)
	switch {
	case !suffixed || name == "":
		return fmt.Errorf("kind %q is none of templates: their names end in %s", template.Kind, TemplateSuffix)
	case ofKubernetes(template.Group):
		return fmt.Errorf("kind %q of group %q belongs to Kubernetes itself: remediation templates are in the group of their remediator",
			template.Kind, template.Group)
	case template.Group == clusterv1.GroupVersion.Group && !strings.HasSuffix(name, "Remediation"):
		return fmt.Errorf("kind %q of group %q belongs to Cluster API itself and is no remediation template", template.Kind, template.Group)
	}
	return nil
}

// ofKubernetes reports whether a group belongs to Kubernetes: the group of a CRD must have a dot in its name, and needs approval to end in
// .k8s.io or .kubernetes.io. (Kubernetes, the annotation api-approved.kubernetes.io)
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".kubernetes.io")
}

// ClonedFrom reports whether the annotations of req say that it was made from a template of this kind.
func ClonedFrom(req metav1.Object, template schema.GroupVersionKind) bool {
	a := req.GetAnnotations()
	return a[clusterv1.TemplateClonedFromNameAnnotation] != "" &&
		a[clusterv1.TemplateClonedFromGroupKindAnnotation] == template.GroupKind().String()
}

// IsFor reports whether m owns req, as a Machine must own its requests. The name of a request is only a hint. (Cluster API, the contract of
// external remediation)
func IsFor(req metav1.Object, m *clusterv1.Machine) bool {
	return slices.ContainsFunc(OwningMachines(req), func(o metav1.OwnerReference) bool { return o.UID == m.UID })
}

// MachinesOf returns the names of the Machines that own req.
func MachinesOf(req metav1.Object) []string {
	owning := OwningMachines(req)
	names := make([]string, 0, len(owning))
	for _, o := range owning {
		names = append(names, o.Name)
	}
	return names
}

// OwningMachines returns the references of req to the Machines that own it.
func OwningMachines(req metav1.Object) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for _, o := range req.GetOwnerReferences() {
		if o.Kind == "Machine" && strings.HasPrefix(o.APIVersion, clusterv1.GroupVersion.Group+"/") {
			all = append(all, o)
		}
	}
	return all
}

// For returns the request for machine from template, as Cluster API core makes it: the embedded spec.template with the name and namespace
// of the machine, with the machine as its only owner (no controller, no blockOwnerDeletion), and with the cloned-from annotations. The
// annotation and the label of the check are kubemend's own.
func For(machine *clusterv1.Machine, template *unstructured.Unstructured, by Maker) (*unstructured.Unstructured, error) {
	kind, from := template.GroupVersionKind(), template.GetKind()+" "+template.GetNamespace()+"/"+template.GetName()
	if _, _, err := unstructured.NestedMap(template.Object, "spec", "template"); err != nil { // GenerateTemplate ignores it
		return nil, fmt.Errorf("read spec.template of %s: %w", from, err)
	}
	req, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template:    template,
		TemplateRef: &corev1.ObjectReference{APIVersion: template.GetAPIVersion(), Kind: kind.Kind, Name: template.GetName()},
		Namespace:   machine.Namespace, Name: machine.Name, ClusterName: machine.Spec.ClusterName,
		OwnerRef: &metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID,
		},
		Annotations: map[string]string{mendv1.MadeByAnnotation: by.Name},
		Labels:      map[string]string{mendv1.MadeByUIDLabel: string(by.UID)},
	})
	if err != nil {
		return nil, fmt.Errorf("make a request from %s: %w", from, err)
	}
	req.SetGenerateName("")
	if made, want := req.GroupVersionKind().GroupKind(), KindOf(kind).GroupKind(); made != want {
		return nil, fmt.Errorf("spec.template of %s is of kind %s: requests of this template are looked for as %s", from, made, want)
	}
	return req, nil
}

// ErrAppeared says that the request to be created exists already. The next reconcile finds it.
var ErrAppeared = errors.New("a request for the machine appeared meanwhile")
