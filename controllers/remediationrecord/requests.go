package remediationrecord

import (
	"context"
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

// observeRequests reads the requests that are part of the remediation: those that name the record, and those that it names.
func (r *Reconciler) observeRequests(ctx context.Context, o *observed) error {
	if o.outside { // the namespaces that it names are those that its author wants read
		return nil
	}
	kinds, namespaces, err := r.requestKinds(ctx, o)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		for _, namespace := range namespaces {
			if err := r.listRequests(ctx, o, kind, namespace); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(o.facts.Requests, func(a, b Request) int { return a.Created.Compare(b.Created) })
	return nil
}

// listRequests reads the requests of a kind in a namespace that are part of the remediation: from a cache if one has them, and no end rests on it.
func (r *Reconciler) listRequests(ctx context.Context, o *observed, kind schema.GroupVersionKind, namespace string) error {
	if cached, err := r.cachedRequests(ctx, o, kind, namespace); cached || err != nil {
		return err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := r.Live.List(ctx, list, client.InNamespace(namespace))
	switch {
	case remediationrequest.Missing(err):
		return nil
	case apierrors.IsForbidden(err):
		o.facts.RequestsUnread = true
		return nil
	case err != nil:
		return fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
	}
	all := make([]client.Object, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	r.noteOver(o, kind, namespace, all)
	return r.addRequests(ctx, o, kind, all)
}

// addRequests adds those of all that are part of the remediation.
func (r *Reconciler) addRequests(ctx context.Context, o *observed, kind schema.GroupVersionKind, all []client.Object) error {
	for _, is := range all {
		if o.includes(is, kind) {
			if err := r.addRequest(ctx, o, is, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestKinds are the kinds of which there may be requests, and where: those of the check's templates, those that the record names, and those that kubemend
// acts on. The steps of a NodeHealthCheck may have their templates in several namespaces.
func (r *Reconciler) requestKinds(ctx context.Context, o *observed) (kinds []schema.GroupVersionKind, namespaces []string, err error) {
	namespaces = []string{o.record.Namespace}
	add := func(kind schema.GroupVersionKind, namespace string) {
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() }) {
			kinds = append(kinds, kind)
		}
		if namespace != "" && !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	own, err := remediation.InstalledKinds(r.Mapper)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range own {
		add(kind.GroupVersionKind, "")
	}
	for i := range o.record.Status.Requests { // which any user may have written who may write records
		is := &o.record.Status.Requests[i]
		kind, namespace := schema.FromAPIVersionAndKind(is.APIVersion, is.Kind), is.Namespace
		if o.record.Spec.Target.ClusterName != "" {
			namespace = "" // its requests are where it is
		}
		if remediationrequest.Refusal(kind.GroupVersion().WithKind(kind.Kind+remediationrequest.TemplateSuffix)) == nil {
			add(kind, namespace)
		}
	}
	templates, err := r.templates(ctx, o)
	for i := range templates {
		if kind := templates[i].GroupVersionKind(); remediationrequest.Refusal(kind) == nil {
			add(remediationrequest.KindOf(kind), templates[i].Namespace)
		}
	}
	return kinds, namespaces, err
}

// templates are those that the check names; of a MachineHealthCheck, which has them in its own namespace, their kinds alone. A check that is gone names none.
func (r *Reconciler) templates(ctx context.Context, o *observed) ([]corev1.ObjectReference, error) {
	by := o.record.Spec.Requester.Check
	if by == nil {
		return nil, nil
	}
	read := r.templatesOfNodes
	if by.Kind == machineCheckKind {
		read = r.templatesOfMachines
	}
	all, err := read(ctx, o, by)
	switch {
	case remediationrequest.Missing(err):
		return nil, nil
	case apierrors.IsForbidden(err): // there may be requests of a kind that it alone names: a target that is healthy again waits for none of them
		o.facts.RequestsUnread = o.facts.RequestsUnread || o.facts.Health() != Yes
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", by.Kind, by.Name, err)
	}
	return all, nil
}

func (r *Reconciler) templatesOfMachines(ctx context.Context, o *observed, by *mendv1.RecordRef) ([]corev1.ObjectReference, error) {
	check := &clusterv1.MachineHealthCheck{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: by.Namespace, Name: by.Name}, check)
	if err != nil {
		return nil, err
	}
	o.checked, o.checkUID = check.DeletionTimestamp.IsZero(), check.UID
	ref := check.Spec.Remediation.TemplateRef
	if !ref.IsDefined() {
		return nil, nil
	}
	return []corev1.ObjectReference{{APIVersion: ref.APIVersion, Kind: ref.Kind}}, nil
}

func (r *Reconciler) templatesOfNodes(ctx context.Context, o *observed, by *mendv1.RecordRef) ([]corev1.ObjectReference, error) {
	if o.nodeCheck == nil {
		check := &nhcv1.NodeHealthCheck{}
		if err := r.Live.Get(ctx, client.ObjectKey{Name: by.Name}, check); err != nil {
			return nil, err
		}
		o.nodeCheck, o.checked, o.checkUID = check, check.DeletionTimestamp.IsZero(), check.UID
	}
	var all []corev1.ObjectReference
	for _, step := range stepsOf(&o.nodeCheck.Spec) {
		all = append(all, step.RemediationTemplate)
	}
	return all, nil
}

// includes reports whether the remediation of the record is made of is, among others.
func (o *observed) includes(is metav1.Object, kind schema.GroupVersionKind) bool {
	if named := NamedBy(is); named.Name != "" {
		return named == client.ObjectKeyFromObject(o.record)
	}
	if is.GetNamespace() != o.record.Namespace {
		return false
	}
	ref := requestRef(is, kind)
	return slices.ContainsFunc(o.facts.Status.Requests, func(known mendv1.RecordRef) bool { return Same(known, ref, o.facts.Moved) })
}

func requestRef(is metav1.Object, kind schema.GroupVersionKind) mendv1.RecordRef {
	return mendv1.RecordRef{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: is.GetNamespace(), Name: is.GetName(), UID: string(is.GetUID()),
	}
}

// addRequest adds what is known of a request. Of a power cycle, what it remembers is in an annotation; of others, their status says it.
func (r *Reconciler) addRequest(ctx context.Context, o *observed, is client.Object, kind schema.GroupVersionKind) error {
	req := Request{RecordRef: requestRef(is, kind), Created: is.GetCreationTimestamp().Time, By: requestedBy(is)}
	cycle := remediation.Remembered(is).State
	switch {
	case cycle.Known():
		req.Acts = cycle != powercycle.Pending && cycle != powercycle.Preparing
		req.Succeeded = cycle == powercycle.Succeeded
		req.Failed = cycle.Final() && !req.Succeeded
		req.State = string(cycle)
		o.facts.Requests = append(o.facts.Requests, req)
		return nil
	case kind.GroupKind() == remediation.Own.GroupKind(): // kubemend alone acts on it, and remembers what it has begun
		o.facts.Requests = append(o.facts.Requests, req)
		return nil
	}
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(kind)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(is), whole)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err):
		return fmt.Errorf("read %s %s: %w", kind.Kind, client.ObjectKeyFromObject(is), err)
	case err == nil:
		status, _, _ := unstructured.NestedMap(whole.Object, "status") // a status of another shape says nothing
		phase, _, _ := unstructured.NestedString(status, "phase")
		succeeded, _ := escalation.Condition(whole, "Succeeded")["status"].(string)
		req.Acts = len(status) > 0
		req.Succeeded = succeeded == string(metav1.ConditionTrue) || phase == string(powercycle.Succeeded)
		req.Failed = !req.Succeeded && (succeeded == string(metav1.ConditionFalse) || phase == string(powercycle.Failed))
	}
	o.facts.Requests = append(o.facts.Requests, req)
	return nil
}

// requestedBy is what created a request, if kubemend did not. Caches do not have it: only until a remediation has begun it is asked for.
func requestedBy(req metav1.Object) string {
	var first metav1.ManagedFieldsEntry
	for _, entry := range req.GetManagedFields() {
		if entry.Time != nil && (first.Time == nil || entry.Time.Before(first.Time)) {
			first = entry
		}
	}
	if first.Manager == mendv1.FieldOwner {
		return ""
	}
	return first.Manager
}
