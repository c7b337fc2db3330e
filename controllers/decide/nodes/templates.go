package nodes

import (
	"fmt"
	"time"
)

// Template is a remediation template of the check: one step of its escalation, or all of it.
type Template struct {
	// Ref is the template. Kind is that of its requests, Type tells their kind from one of the same name in another group.
	Ref
	RequestKind, Type string
	// Order is that of its step, as the check has it; HasOrder says that there is one.
	Order    int
	HasOrder bool
	Timeout  time.Duration // zero waits without end
	// Usable says that it was read. Unread says that the reader may not read it, or its requests, and that the controller may.
	Usable, Unread bool
	// OfMachines says that its requests are about Machines of Cluster API, which own them. ForOpenShift says that Machines of OpenShift may own
	// them too, Infrastructure that OpenShift's own operator may serve them.
	OfMachines, ForOpenShift, Infrastructure bool
}

// String names the template and what is made from it.
func (t Template) String() string {
	return fmt.Sprintf("%s from template %s/%s", t.RequestKind, t.Namespace, t.Name)
}

// Place names the template, and its step, as people find them in the check.
func (t Template) Place() string {
	at := t.Kind + " " + t.Name
	if t.Namespace != "" {
		at = t.Ref.String()
	}
	if t.HasOrder {
		at += fmt.Sprintf(" (order %d)", t.Order)
	}
	return at
}

// Unsuitable is why no request from t can be about n, and the same as a clause; the reason is empty if one can. Requests of machines live with their
// Machine, which is Cluster API's, or, for those that OpenShift's own operator serves, OpenShift's. The second clause is medik8s'.
func (t *Template) Unsuitable(n *Node) (Reason, string) {
	if !t.OfMachines || t.OwnedByMachine(n) || t.OwnedByOpenShift(n) {
		return "", ""
	}
	namespace := n.OpenShift.Namespace
	switch {
	case n.Machine.There():
		namespace = n.Machine.Namespace
	case n.OpenShift.Name == "" || !t.Infrastructure:
		return TemplateOfMachines, t.RequestKind + " is about Machines of Cluster API, and the node belongs to none of this cluster"
	}
	return TemplateElsewhere, fmt.Sprintf(
		"%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s", t.Kind, namespace, t.Namespace)
}

// OwnedByMachine reports whether the Machine of Cluster API owns t's request about n, which is named after it. Remediators of others
// know machine.openshift.io alone, do not look at the group of an owner, and would look for a Machine there that has the name of this one.
// (medik8s' Self Node Remediation, internal/controller/owner_and_name.go; its Machine Deletion Remediation.)
func (t *Template) OwnedByMachine(n *Node) bool {
	return t.OfMachines && n.Machine.There() && n.Machine.Namespace == t.Namespace
}

// OwnedByOpenShift reports whether the Machine of OpenShift that n names owns t's request about it: an owner lives in the same namespace. Requests of
// kubemend.io are about Machines of Cluster API alone.
func (t *Template) OwnedByOpenShift(n *Node) bool {
	return n.OpenShift.Name != "" && n.OpenShift.Namespace == t.Namespace && t.ForOpenShift && !t.OwnedByMachine(n)
}
