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

// Node is one node name, and all objects about it.
type Node struct {
	Name   string
	Object *corev1.Node // nil if it is gone
	// Selected says that the check selects the node. A remediation goes on if the node's labels change so that it is not selected any more.
	Selected bool

	Requests    []Request                    // of this check; oldest first
	Gone        []Listed                     // requests that do not exist any more, from the check's status
	Unseen      []Listed                     // requests that cannot be read now, from the check's status
	Loop        repeats.Loop                 // how often requests for the node were created, by records; read only if a request is gone
	LoopAwaited time.Time                    // until when, after a start, the records may not be known; zero if they are
	Orphaned    []*unstructured.Unstructured // requests of a deleted check of the same name
	Others      []*unstructured.Unstructured // requests for the node that this check did not create
	// Named has for each template the existing request, whoever created it, with the name that the check's request would have; nil if there
	// is none. It is read only if a remediation may start.
	Named []*unstructured.Unstructured
	// Listed is the node's entry in the check's status; nil if there is none.
	Listed *nhcv1.UnhealthyNode
	Lease  *Lease
	// Machine is the Machine of Cluster API behind the node; nil if it was not read, because the decision does not need it.
	Machine *Machine
}

func (n *Node) exists() bool { return n.Object != nil }

// ID is the UID of the node; empty if it is gone.
func (n *Node) ID() string {
	if n.Object == nil {
		return ""
	}
	return string(n.Object.UID)
}

func (n *Node) controlPlane() bool { return controlplane.IsMember(n.Object) }

func (n *Node) remediated() bool { return len(n.Requests)+len(n.Unseen) > 0 }

// Excluded reports whether the node has the label that excludes it from remediation. Empty says that the label has no value, so it does not
// count.
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

// healthySince returns since when the node is healthy or gone, from the check's status; zero if the status does not say so.
func (n *Node) healthySince() time.Time {
	if n.Listed == nil || n.Listed.ConditionsHealthyTimestamp == nil {
		return time.Time{}
	}
	return n.Listed.ConditionsHealthyTimestamp.Time
}

func (n *Node) delayed() bool { return n.Listed != nil && ptr.Deref(n.Listed.HealthyDelayed, false) }

// remembered reports whether the check's status says more about the node than that it is unhealthy.
func (n *Node) remembered() bool {
	return !n.healthySince().IsZero() || n.Listed != nil && len(n.Listed.Remediations) > 0
}

// These two annotations of OpenShift differ while its machine-config operator updates the node.
const (
	OpenShiftDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	OpenShiftCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
)

// terminating reports whether the node's condition Terminating is True. (machine-api-termination-handler; medik8s accepts any status.)
func (n *Node) terminating() bool {
	return slices.ContainsFunc(n.Object.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "Terminating" && c.Status == corev1.ConditionTrue
	})
}

// OpenShift returns the Machine of OpenShift that the node's annotation names; zero if there is none.
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

// Machine is the Machine of Cluster API behind a node of the cluster that the manager runs in.
type Machine struct {
	Unread    bool
	Object    *clusterv1.Machine // nil if there is none
	Cluster   *clusterv1.Cluster // nil if it could not be read
	Serviced  bool               // the host's firmware is being updated; read only if an in-place update has made no progress for long
	WatchedBy string             // a MachineHealthCheck that selects the Machine and acts on it; empty if there is none
}

func (m *Machine) there() bool { return m != nil && m.Object != nil }

func (m *Machine) ref() rule.Ref {
	return rule.Ref{Kind: "Machine", Namespace: m.Object.Namespace, Name: m.Object.Name}
}

func (m *Machine) cluster() rule.Ref {
	return rule.Ref{Kind: "Cluster", Namespace: m.Object.Namespace, Name: m.Object.Spec.ClusterName}
}

// updatingUntil reports whether an in-place update blocks the remediation of the node (holds), and until when at most; zero if unknown.
func (m *Machine) updatingUntil(now time.Time) (until time.Time, holds bool) {
	if !m.there() || health.Updating(m.Object) == nil {
		return time.Time{}, false
	}
	if until = health.UpdatingUntil(m.Object, now); until.IsZero() || now.Before(until) {
		return until, true
	}
	return time.Time{}, m.Serviced
}

func (m *Machine) annotated(key string) bool {
	return m.there() && metav1.HasAnnotation(m.Object.ObjectMeta, key)
}

// Request is a remediation request that the check made.
type Request struct {
	Object *unstructured.Unstructured
	Step   int // index of its template; -1 if the check does not name the template any more
	// MachineThere says that the request is about a Machine that exists and is not being deleted; read only if the node is gone.
	MachineThere bool
	Listed       *nhcv1.Remediation // its entry in the check's status; nil if there is none
}

func (r *Request) ref() rule.Ref { return RefOf(r.Object) }

// RefOf names a request.
func RefOf(obj *unstructured.Unstructured) rule.Ref {
	return rule.Ref{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func (r *Request) entry() nhcv1.Remediation {
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

// ID is the UID of the request.
func (r *Request) ID() string { return string(r.Object.GetUID()) }

func (r *Request) started() time.Time { return r.Object.GetCreationTimestamp().UTC() }

// Deleting is since when the request is being deleted; zero if it is not.
func (r *Request) Deleting() time.Time {
	if at := r.Object.GetDeletionTimestamp(); at != nil {
		return at.UTC()
	}
	return time.Time{}
}

func (r *Request) kept() bool { return len(r.Object.GetFinalizers()) > 0 }

// clings reports whether the request has had a deletionTimestamp for clingingFor, because its remediator keeps its finalizers.
func (r *Request) clings(now time.Time) bool { return idleFor(r.Deleting(), clingingFor, now) }

// notified reports whether the request has the annotation that makes its remediator stop. Remediators ignore the annotation's value.
func (r *Request) notified() bool {
	_, noted := r.Object.GetAnnotations()[nhcv1.TimedOutAnnotation]
	return noted
}

// GivenUp is when the request was given up, from the check's status or its annotation; zero if it was not.
func (r *Request) GivenUp() time.Time {
	if r.Listed != nil && r.Listed.TimedOut != nil {
		return r.Listed.TimedOut.Time
	}
	return r.annotated(nhcv1.TimedOutAnnotation)
}

// annotated returns the time in an annotation of the request; zero if there is none or it cannot be parsed.
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

// Listed is a request that could not be read, or does not exist any more, as the check's status has it.
type Listed struct {
	nhcv1.Remediation
	Step int // -1 if the check does not name its template any more
}

func (l *Listed) ref() rule.Ref {
	return rule.Ref{Kind: l.Resource.Kind, Namespace: l.Resource.Namespace, Name: l.Resource.Name}
}

// Template is a remediation template of the check: one step of its escalation, or its only template.
type Template struct {
	corev1.ObjectReference
	Step    *nhcv1.EscalatingRemediation // nil if the check has no escalation
	Request schema.GroupVersionKind      // the kind of its requests
	Object  *unstructured.Unstructured   // nil if it cannot be used
	Unread  bool                         // the user of kubectl mend may not read it, while the manager may
}

func (t *Template) ref() rule.Ref {
	return rule.Ref{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
}

// String names the kind of the template's requests, and the template.
func (t *Template) String() string {
	return fmt.Sprintf("%s from template %s/%s", t.Request.Kind, t.Namespace, t.Name)
}

// Place names the template and its step, as in the check.
func (t *Template) Place() string {
	if t.Step == nil {
		return t.ref().String()
	}
	return fmt.Sprintf("%s (order %d)", t.ref(), t.Step.Order)
}

// timeout is the timeout of the step; zero means that there is none.
func (t *Template) timeout() time.Duration {
	if t.Step == nil {
		return 0
	}
	return t.Step.Timeout.Duration
}

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

// OfMachines reports whether requests of a kind are about Machines of Cluster API, as those of infrastructure providers and kubemend are.
// The Machine owns such a request and gives it its name. (Cluster API, contract of external remediation.)
func OfMachines(kind schema.GroupVersionKind) bool {
	return kind.Group == infrastructureGroup || kind.Group == mendv1.GroupVersion.Group
}

// Unsuitable returns why no request from t can be about n, as a reason and as a clause; empty if one can. A request about a Machine must be
// in the namespace of the Machine of Cluster API or, if OpenShift's own operator serves the kind, of OpenShift's Machine. The second clause
// is that of medik8s.
func (t *Template) Unsuitable(n *Node) (Reason, string) {
	if !OfMachines(t.Request) || t.OwnedByMachine(n) || t.OwnedByOpenShift(n) {
		return "", ""
	}
	namespace := n.OpenShift().Namespace
	switch {
	case n.Machine.there():
		namespace = n.Machine.Object.Namespace
	case namespace == "" || t.Request.Group != infrastructureGroup:
		return TemplateOfMachines, t.Request.Kind + " remediates Machines of Cluster API, and this node has no Machine in this cluster"
	}
	return TemplateElsewhere, fmt.Sprintf(
		"%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s", t.Kind, namespace, t.Namespace)
}

// OwnedByMachine reports whether the Machine of Cluster API behind n owns requests from t. It must not own requests of other remediators:
// they ignore the API group of an owner and would look for a Machine of machine.openshift.io with the same name. (medik8s' Self Node
// Remediation, internal/controller/owner_and_name.go; its Machine Deletion Remediation.)
func (t *Template) OwnedByMachine(n *Node) bool {
	return OfMachines(t.Request) && n.Machine.there() && n.Machine.Object.Namespace == t.Namespace
}

// OwnedByOpenShift reports whether the Machine of OpenShift behind n owns requests from t. It never owns requests of kubemend.io, which are
// about Machines of Cluster API.
func (t *Template) OwnedByOpenShift(n *Node) bool {
	machine := n.OpenShift()
	return machine.Name != "" && machine.Namespace == t.Namespace && t.Request.Group != mendv1.GroupVersion.Group && !t.OwnedByMachine(n)
}
