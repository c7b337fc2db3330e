package nodes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Template is a remediation template of the check: one step of its escalation, or all of it.
type Template struct {
	corev1.ObjectReference
	Step    *nhcv1.EscalatingRemediation // nil if the check names no other template
	Request schema.GroupVersionKind      // of its requests
	// Object is the template itself; nil if it cannot be used. Unread says that the reader may not read it, and that the controller may.
	Object *unstructured.Unstructured
	Unread bool
}

// Ref names the template.
func (t *Template) Ref() rule.Ref {
	return rule.Ref{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
}

// String names the template and what is made from it.
func (t *Template) String() string {
	return fmt.Sprintf("%s from template %s/%s", t.Request.Kind, t.Namespace, t.Name)
}

// Place names the template, and its step, as people find them in the check.
func (t *Template) Place() string {
	if t.Step == nil {
		return t.Ref().String()
	}
	return fmt.Sprintf("%s (order %d)", t.Ref(), t.Step.Order)
}

// timeout is how long the step is waited for; zero waits without end.
func (t *Template) timeout() time.Duration {
	if t.Step == nil {
		return 0
	}
	return t.Step.Timeout.Duration
}

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

// OfMachines reports whether requests of that kind are about Machines of Cluster API, which own them and after which they are named:
// those of infrastructure providers and our own are. (Cluster API, contract of external remediation.)
func OfMachines(kind schema.GroupVersionKind) bool {
	return kind.Group == infrastructureGroup || kind.Group == mendv1.GroupVersion.Group
}

// Unsuitable is why no request from t can be about n, and the same as a clause; the reason is empty if one can. Requests of machines live
// with their Machine, which is Cluster API's, or, for those that OpenShift's own operator serves, OpenShift's. The second clause is
// medik8s'.
func (t *Template) Unsuitable(n *Node) (Reason, string) {
	if !OfMachines(t.Request) || t.OwnedByMachine(n) || t.OwnedByOpenShift(n) {
		return "", ""
	}
	namespace := n.OpenShift().Namespace
	switch {
	case n.Machine.There():
		namespace = n.Machine.Object.Namespace
	case namespace == "" || t.Request.Group != infrastructureGroup:
		return TemplateOfMachines, t.Request.Kind + " is about Machines of Cluster API, and the node belongs to none of this cluster"
	}
	return TemplateElsewhere, fmt.Sprintf(
		"%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s", t.Kind, namespace, t.Namespace)
}

// OwnedByMachine reports whether the Machine of Cluster API owns t's request about it, which is named after it. Remediators of others
// know machine.openshift.io alone, do not look at the group of an owner, and would look for a Machine there that has the name of this one.
// (medik8s' Self Node Remediation, internal/controller/owner_and_name.go; its Machine Deletion Remediation.)
func (t *Template) OwnedByMachine(n *Node) bool {
	return OfMachines(t.Request) && n.Machine.There() && n.Machine.Object.Namespace == t.Namespace
}

// OwnedByOpenShift reports whether the Machine of OpenShift that n names owns t's request about it. Requests of kubemend.io are Cluster
// API's.
func (t *Template) OwnedByOpenShift(n *Node) bool {
	machine := n.OpenShift()
	return machine.Name != "" && machine.Namespace == t.Namespace && t.Request.Group != mendv1.GroupVersion.Group && !t.OwnedByMachine(n)
}
