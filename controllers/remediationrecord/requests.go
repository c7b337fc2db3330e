package remediationrecord

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// RequestCache returns the requests of a kind in a namespace, read only, if a cache has them. It never starts to cache a kind.
type RequestCache func(ctx context.Context, kind schema.GroupVersionKind, namespace string) (requests []client.Object, has bool, err error)

func (r *Reconciler) observeRequests(ctx context.Context, o *observed) error {
	if !o.inScope() { // whoever wrote the record must not choose which namespaces are read
		return nil
	}
	if o.checkUnread && o.facts.Health() != Yes { // only the check names the kinds of its requests
		o.facts.RequestsUnread = true
	}
	kinds, namespaces, err := r.requestKinds(ctx, o)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		for _, namespace := range namespaces {
			requests, err := r.listRequests(ctx, o, kind, namespace)
			for _, req := range requests {
				if carries(req, o.record) {
					err = errors.Join(err, r.addRequest(ctx, o, req, kind))
				}
			}
			if err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(o.facts.Requests, func(a, b Request) int { return a.Created.Compare(b.Created) })
	return nil
}

// listRequests lists the requests of a kind in a namespace: from the first cache that has them or, if none has or o is live, from the API
// server.
func (r *Reconciler) listRequests(
	ctx context.Context, o *observed, kind schema.GroupVersionKind, namespace string,
) ([]client.Object, error) {
	for _, cached := range r.Cached {
		if o.from.live {
			break
		}
		if requests, has, err := cached(ctx, kind, namespace); has || err != nil {
			return requests, err
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	switch err := o.from.List(ctx, list, client.InNamespace(namespace)); {
	case remediationrequest.Missing(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		o.facts.RequestsUnread = true
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
	}
	requests := make([]client.Object, len(list.Items))
	for i := range list.Items {
		requests[i] = &list.Items[i]
	}
	return requests, nil
}

// requestKinds returns the kinds that requests may have, and their namespaces: from the check's templates, from the requests in the record,
// and the kinds that kubemend acts on. The steps of a NodeHealthCheck may have templates in several namespaces.
func (r *Reconciler) requestKinds(ctx context.Context, o *observed) (kinds []schema.GroupVersionKind, namespaces []string, err error) {
	namespaces = []string{o.record.Namespace}
	add := func(kind schema.GroupVersionKind, namespace string) {
		if remediationrequest.Refusal(kind.GroupVersion().WithKind(kind.Kind+remediationrequest.TemplateSuffix)) != nil {
			return // a user may have written it into the record
		}
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() }) {
			kinds = append(kinds, kind)
		}
		if namespace != "" && !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	own, err := remediation.KindsWithCRD(r.Mapper, func(crd string) (bool, error) { return r.Installed(ctx, crd) })
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range own {
		add(kind.GroupVersionKind, "")
	}
	for i := range o.record.Status.Requests {
		req := &o.record.Status.Requests[i]
		namespace := req.Namespace
		if o.record.Spec.Target.ClusterName != "" {
			namespace = "" // the requests are in the namespace of the record
		}
		add(schema.FromAPIVersionAndKind(req.APIVersion, req.Kind), namespace)
	}
	for i := range o.templates {
		add(remediationrequest.KindOf(o.templates[i].GroupVersionKind()), o.templates[i].Namespace)
	}
	return kinds, namespaces, nil
}

// addRequest adds what is known of a request. The state of a power cycle is in its annotation; other remediators report in the status, for
// which the request is read whole.
func (r *Reconciler) addRequest(ctx context.Context, o *observed, obj client.Object, kind schema.GroupVersionKind) error {
	req := Request{RecordRef: refTo(obj, kind), Created: obj.GetCreationTimestamp().Time}
	cycle := remediation.Remembered(obj).State
	own := cycle.Known() || kind.GroupKind() == remediation.Own.GroupKind() // only kubemend acts on that kind
	whole, cached := obj.(*unstructured.Unstructured)
	if !own && !cached {
		whole = &unstructured.Unstructured{}
		whole.SetGroupVersionKind(kind)
		err := r.Recent.Version(ctx, client.ObjectKeyFromObject(obj), whole, obj.GetResourceVersion())
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("read %s %s: %w", kind.Kind, client.ObjectKeyFromObject(obj), err)
		}
	}
	switch {
	case !own:
		req.report(whole)
	case cycle.Known(): // users may write any value
		req.State = string(cycle)
		req.Acts = cycle != powercycle.Pending && cycle != powercycle.Preparing
		req.Succeeded = cycle == powercycle.Succeeded
		req.Failed = cycle.Final() && !req.Succeeded
	}
	o.facts.Requests = append(o.facts.Requests, req)
	return nil
}

// report sets how far a remediator is, from the status of its request.
func (r *Request) report(whole *unstructured.Unstructured) {
	status, _, _ := unstructured.NestedMap(whole.Object, "status") // a status that is no object counts as empty
	phase, _, _ := unstructured.NestedString(status, "phase")
	succeeded, _ := escalation.Condition(whole, "Succeeded")["status"].(string)
	r.Acts = len(status) > 0
	r.Succeeded = succeeded == string(metav1.ConditionTrue) || phase == string(powercycle.Succeeded)
	r.Failed = !r.Succeeded && (succeeded == string(metav1.ConditionFalse) || phase == string(powercycle.Failed))
}

// madeBy returns the first field manager of a record; empty if that is kubemend.
func madeBy(obj metav1.Object) string {
	var first metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		if entry.Time != nil && (first.Time == nil || entry.Time.Before(first.Time)) {
			first = entry
		}
	}
	if first.Manager == mendv1.FieldOwner {
		return ""
	}
	return first.Manager
}

// next returns the check that will remediate the target again, or an empty reference if none will: a NodeHealthCheck with an escalation
// step left, or a MachineHealthCheck whose requests are gone. kubemend must act on it. The record stays open until then, which may take
// hours while a rule blocks the step.
func (r *Reconciler) next(o *observed) mendv1.RecordRef {
	t, left := &o.facts.Target, false
	switch check := o.check.(type) {
	case *nhcv1.NodeHealthCheck:
		left = r.actsOnNodes() && o.listed() != nil && r.StepLeft(check.Name, o.record.Spec.Target.Node.Name)
	case *clusterv1.MachineHealthCheck:
		claim, paused := check.Annotations[clusterv1.PausedAnnotation]
		acts := claim == mendv1.Claim || !paused && r.ActsOnUnclaimed
		left = acts && t.Checked == No && len(o.facts.Requests) == 0
	}
	if !left || !t.Exists || t.leaving() || !o.check.GetDeletionTimestamp().IsZero() {
		return mendv1.RecordRef{}
	}
	return *o.record.Spec.Requester.Check
}

// listed returns the node's entry in the status of the NodeHealthCheck, which lists a node until its remediation is over. It is nil if
// there is no entry, or if the check is being deleted.
func (o *observed) listed() *nhcv1.UnhealthyNode {
	check, ofNodes := o.check.(*nhcv1.NodeHealthCheck)
	if node := o.record.Spec.Target.Node; ofNodes && node != nil && check.DeletionTimestamp.IsZero() {
		for i := range check.Status.UnhealthyNodes {
			if listed := &check.Status.UnhealthyNodes[i]; listed.Name == node.Name {
				return listed
			}
		}
	}
	return nil
}

// TemplatesOf returns the templates that a NodeHealthCheck names.
func TemplatesOf(spec *nhcv1.NodeHealthCheckSpec) []corev1.ObjectReference {
	if ref := spec.RemediationTemplate; ref != nil {
		return []corev1.ObjectReference{*ref}
	}
	templates := make([]corev1.ObjectReference, 0, len(spec.EscalatingRemediations))
	for i := range spec.EscalatingRemediations {
		templates = append(templates, spec.EscalatingRemediations[i].RemediationTemplate)
	}
	return templates
}
