package nodes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Request is a remediation request that the check made.
type Request struct {
	Object *unstructured.Unstructured
	Step   int // of the template it was made from; -1 if the check does not name that any more
	// MachineThere says that it is about a Machine that is there, and stays; read only if its node is gone.
	MachineThere bool
	// Listed is what the status says of it, nil if it does not list it, and ListedHealthy that it says that the node was healthy since.
	Listed        *nhcv1.Remediation
	ListedHealthy bool
}

// Ref names the request.
func (r *Request) Ref() rule.Ref { return RefOf(r.Object) }

// RefOf names a request.
func RefOf(obj *unstructured.Unstructured) rule.Ref {
	return rule.Ref{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Entry is what the status of the check says of the request.
func (r *Request) Entry() nhcv1.Remediation {
	entry := nhcv1.Remediation{
		Resource: ReferenceTo(r.Object), Started: r.Object.GetCreationTimestamp(),
		TemplateName: r.Object.GetAnnotations()[nhcv1.TemplateNameAnnotation],
	}
	if at := r.GivenUp(); !at.IsZero() {
		entry.TimedOut = &metav1.Time{Time: at}
	}
	return entry
}

// ReferenceTo is how the status of the check refers to a request.
func ReferenceTo(obj *unstructured.Unstructured) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
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

// notified is when the remediator of the request was notified that it was given up; zero if it was not.
func (r *Request) notified() time.Time { return r.annotated(nhcv1.TimedOutAnnotation) }

// GivenUp is when the request was given up, as its status entry or its annotation says; zero if it was not.
func (r *Request) GivenUp() time.Time {
	if r.Listed != nil && r.Listed.TimedOut != nil {
		return r.Listed.TimedOut.Time
	}
	return r.notified()
}

// relapsed reports whether the node of the request had recovered, and was found to be unhealthy again.
func (r *Request) relapsed() bool { return !r.annotated(mendv1.RelapsedAnnotation).IsZero() }

// annotated is the moment that an annotation of the request holds; zero if there is none, or one that is none.
func (r *Request) annotated(key string) time.Time {
	at, err := time.Parse(time.RFC3339, r.Object.GetAnnotations()[key])
	if err != nil {
		return time.Time{}
	}
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

// Named is a request that has the name which the request from a template would have.
type Named struct {
	Object *unstructured.Unstructured // nil if there is none
	Own    bool                       // the check made it
}
