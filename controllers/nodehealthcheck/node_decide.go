package nodehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Node is one node, by its name, and what there is about it.
type Node struct {
	Name   string
	Object *corev1.Node // nil if it is gone
	// Selected says that the check selects it. A node that leaves the selection while it is being remediated is remediated to the end.
	Selected bool

	Requests []Request // of this check; oldest first
	// Gone are the requests that exist no more and that only the status remembers, Unseen those that cannot be read now.
	Gone, Unseen []Listed
	// Loop is how often requests for the node were made, by their records; read only if one is gone. LoopAwaited is until when these are
	// not known, after a start; zero if they are.
	Loop        repeats.Loop
	LoopAwaited time.Time
	// Orphaned are requests of a check of the same name that was there before, Others those of others that name the node.
	Orphaned, Others []*unstructured.Unstructured
	// Named are the requests, of whatever maker, that have the name which one of the check would have, by template; nil where there is
	// none. They are read only if a remediation may start.
	Named []*unstructured.Unstructured
	// Listed is what the status of the check says of the node; nil if it does not list it.
	Listed *nhcv1.UnhealthyNode
	Lease  *Lease
	// Machine is the Machine of Cluster API behind the node; nil if it was not looked for, as nothing is decided by it.
	Machine *Machine
}

// Exists reports whether the node is there.
func (n *Node) Exists() bool { return n.Object != nil }

// ID tells the node from one of the same name that was there before; empty if it is gone.
func (n *Node) ID() string {
	if n.Object == nil {
		return ""
	}
	return string(n.Object.UID)
}

// ControlPlane reports whether the node is a member of the control plane.
func (n *Node) ControlPlane() bool { return controlplane.IsMember(n.Object) }

// Remediated reports whether there are requests for n.
func (n *Node) Remediated() bool { return len(n.Requests)+len(n.Unseen) > 0 }

// Excluded reports whether the user of the node wants it left alone; empty that the label for that has no value, which counts for nothing.
func (n *Node) Excluded() (excluded, empty bool) {
	if n.Object == nil {
		return false, false
	}
	value, labelled := n.Object.Labels[nhcv1.ExcludeLabel]
	return value == nhcv1.ExcludeValue, labelled && value == ""
}

func (n *Node) confirmed() bool {
	return n.Object != nil && metav1.HasAnnotation(n.Object.ObjectMeta, nhcv1.ConfirmedHealthyAnnotation)
}

// healthySince is since when the status of the check says that the node is healthy, or gone; zero if it does not.
func (n *Node) healthySince() time.Time {
	if n.Listed == nil || n.Listed.ConditionsHealthyTimestamp == nil {
		return time.Time{}
	}
	return n.Listed.ConditionsHealthyTimestamp.Time
}

func (n *Node) delayed() bool { return n.Listed != nil && ptr.Deref(n.Listed.HealthyDelayed, false) }

// remembered reports whether the status of the check says more of the node than that it is unhealthy.
func (n *Node) remembered() bool {
	return !n.healthySince().IsZero() || n.Listed != nil && len(n.Listed.Remediations) > 0
}

// The two configs of OpenShift differ while its machine-config operator updates the node.
const (
	OpenShiftDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	OpenShiftCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
)

// terminating reports whether OpenShift is ending the node. (machine-api-termination-handler; medik8s takes any status for it.)
func (n *Node) terminating() bool {
	return slices.ContainsFunc(n.Object.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "Terminating" && c.Status == corev1.ConditionTrue
	})
}

// OpenShift is the Machine of OpenShift that the node names; zero if it names none.
func (n *Node) OpenShift() rule.Ref {
	if n.Object == nil {
		return rule.Ref{}
	}
	namespace, name, ok := strings.Cut(n.Object.Annotations[nhcv1.OpenShiftMachineAnnotation], "/")
	if !ok || namespace == "" || name == "" {
		return rule.Ref{}
	}
	return rule.Ref{Kind: "Machine", Namespace: namespace, Name: name}
}

// Machine is the Machine of Cluster API behind a node, of the cluster that the check runs in.
type Machine struct {
	Unread  bool
	Object  *clusterv1.Machine // nil if there is none
	Cluster *clusterv1.Cluster // nil if it could not be read
	// Serviced says that the firmware of its host is being written; read only if an update in place has made no progress for long.
	Serviced bool
	// WatchedBy is a MachineHealthCheck that selects it and acts on it; empty if there is none.
	WatchedBy string
}

// There reports whether there is a Machine, as far as is known.
func (m *Machine) There() bool { return m != nil && m.Object != nil }

// Ref names the Machine.
func (m *Machine) Ref() rule.Ref {
	return rule.Ref{Kind: "Machine", Namespace: m.Object.Namespace, Name: m.Object.Name}
}

func (m *Machine) cluster() rule.Ref {
	return rule.Ref{Kind: "Cluster", Namespace: m.Object.Namespace, Name: m.Object.Spec.ClusterName}
}

// updatingUntil is until when an update in place keeps the node from being remediated, as far as time ends that; holds says that it does.
func (m *Machine) updatingUntil(now time.Time) (until time.Time, holds bool) {
	if !m.There() || health.Updating(m.Object) == nil {
		return time.Time{}, false
	}
	if until = health.UpdatingUntil(m.Object, now); until.IsZero() || now.Before(until) {
		return until, true
	}
	return time.Time{}, m.Serviced
}

func (m *Machine) annotated(key string) bool {
	return m.There() && metav1.HasAnnotation(m.Object.ObjectMeta, key)
}

// Request is a remediation request that the check made.
type Request struct {
	Object *unstructured.Unstructured
	Step   int // of the template it was made from; -1 if the check does not name that any more
	// MachineThere says that it is about a Machine that is there, and stays; read only if its node is gone.
	MachineThere bool
	Listed       *nhcv1.Remediation // what the status says of it; nil if it does not list it
}

// Ref names the request.
func (r *Request) Ref() rule.Ref { return RefOf(r.Object) }

// RefOf names a request.
func RefOf(obj *unstructured.Unstructured) rule.Ref {
	return rule.Ref{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Entry is what the status of the check says of the request.
func (r *Request) Entry() nhcv1.Remediation {
	obj := r.Object
	entry := nhcv1.Remediation{
		Resource: corev1.ObjectReference{
			APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
		Started: obj.GetCreationTimestamp(), TemplateName: obj.GetAnnotations()[nhcv1.TemplateNameAnnotation],
	}
	if at := r.GivenUp(); !at.IsZero() {
		entry.TimedOut = &metav1.Time{Time: at}
	}
	return entry
}

// ID tells the request from one of the same name that was there before.
func (r *Request) ID() string { return string(r.Object.GetUID()) }

// Started is when the request was made.
func (r *Request) Started() time.Time { return r.Object.GetCreationTimestamp().UTC() }

// Deleting is since when the request is being deleted; zero if it is not.
func (r *Request) Deleting() time.Time {
	if at := r.Object.GetDeletionTimestamp(); at != nil {
		return at.UTC()
	}
	return time.Time{}
}

// Kept reports whether the request has finalizers.
func (r *Request) Kept() bool { return len(r.Object.GetFinalizers()) > 0 }

// Clings reports whether a remediator holds on to the request for longer than is waited for.
func (r *Request) Clings(now time.Time) bool { return idleFor(r.Deleting(), ClingingFor, now) }

// notified reports whether the remediator of the request was notified that it was given up. Remediators go by the annotation, whatever its
// value.
func (r *Request) notified() bool {
	_, noted := r.Object.GetAnnotations()[nhcv1.TimedOutAnnotation]
	return noted
}

// GivenUp is when the request was given up, as its status entry or its annotation says; zero if it was not.
func (r *Request) GivenUp() time.Time {
	if r.Listed != nil && r.Listed.TimedOut != nil {
		return r.Listed.TimedOut.Time
	}
	return r.annotated(nhcv1.TimedOutAnnotation)
}

// annotated is the moment that an annotation of the request holds; zero if there is none, or one that is none.
func (r *Request) annotated(key string) time.Time {
	at, _ := time.Parse(time.RFC3339, r.Object.GetAnnotations()[key])
	return at
}

func (r *Request) succeeded() escalation.Status {
	status, _ := escalation.Says(r.Object, nhcv1.SucceededCondition)
	return status
}

func (r *Request) deletesNode() bool {
	status, _ := escalation.Says(r.Object, nhcv1.NodeDeletionExpectedCondition)
	return status == escalation.Yes
}

// Listed is a request as only the status of the check remembers it.
type Listed struct {
	nhcv1.Remediation
	Step int // -1 if the check does not name its template any more
}

// Ref names the request.
func (l *Listed) Ref() rule.Ref {
	return rule.Ref{Kind: l.Resource.Kind, Namespace: l.Resource.Namespace, Name: l.Resource.Name}
}

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
