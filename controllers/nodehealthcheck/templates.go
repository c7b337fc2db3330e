package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func isTemplate(kind string) bool { return strings.HasSuffix(kind, remediationrequest.TemplateSuffix) }

// templatesOf returns the templates in a spec, in the order of the escalation. It sorts a copy, because the spec is shared with the cache.
func templatesOf(spec *nhcv1.NodeHealthCheckSpec) []Template {
	template := func(ref corev1.ObjectReference, step *nhcv1.EscalatingRemediation) Template {
		request, _ := remediationrequest.NodeKindOf(ref.GroupVersionKind()) // the error is reported when the template is read
		return Template{ObjectReference: ref, Step: step, Request: request}
	}
	if spec.RemediationTemplate != nil {
		return []Template{template(*spec.RemediationTemplate, nil)}
	}
	steps := slices.Clone(spec.EscalatingRemediations)
	slices.SortStableFunc(steps, func(a, b nhcv1.EscalatingRemediation) int { return cmp.Compare(a.Order, b.Order) })
	templates := make([]Template, 0, len(steps))
	for i := range steps {
		templates = append(templates, template(steps[i].RemediationTemplate, &steps[i]))
	}
	return templates
}

// observeTemplates reads the templates of the check, and whether their requests can be read. A template that cannot be used disables the
// check.
func (r *Reconciler) observeTemplates(ctx context.Context, state *observed) {
	state.facts.Templates = templatesOf(&state.check.Spec)
	for i := range state.facts.Templates {
		t := &state.facts.Templates[i]
		why, err := r.observeTemplate(ctx, state, t)
		if err != nil {
			state.unreadable[t.Request.GroupKind()] = true
		}
		switch {
		case errors.Is(err, explain.ErrUnread):
			t.Unread = true
			why = disabledBefore(state.check)
		case err != nil:
			state.facts.Trouble = append(state.facts.Trouble, err)
		}
		state.disable(why)
	}
	if len(state.facts.Templates) == 0 {
		state.disable(Disabled{
			Reason: nhcv1.TemplateInvalidReason,
			Message: "Remediation template is invalid: either spec.remediationTemplate or at least one of spec.escalatingRemediations " +
				"must be set",
		})
	}
	r.observeFormer(ctx, state)
}

// disabledBefore returns why the manager has disabled the check because of its templates, for users who may not read these; zero if it
// has not.
func disabledBefore(check *nhcv1.NodeHealthCheck) Disabled {
	c := conditionOf(check, nhcv1.DisabledCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return Disabled{}
	}
	switch c.Reason {
	case nhcv1.TemplateNotFoundReason, nhcv1.TemplateInvalidReason, nhcv1.TemplateForbiddenReason:
		return Disabled{Reason: c.Reason, Message: c.Message}
	}
	return Disabled{}
}

// observeFormer watches the kinds of requests that are in the check's status but not in its spec any more, so that they can be finished.
func (r *Reconciler) observeFormer(ctx context.Context, state *observed) {
	for _, kind := range kindsOf(state.check) {
		if slices.ContainsFunc(state.facts.Templates, func(t Template) bool { return t.Request.GroupKind() == kind.GroupKind() }) {
			continue
		}
		if err := r.await(ctx, state, kind); err != nil {
			state.unreadable[kind.GroupKind()] = true
			if !errors.Is(err, explain.ErrUnread) {
				state.facts.Trouble = append(state.facts.Trouble, err)
				state.retry()
			}
		}
	}
}

// await makes the decision wait until the objects of a kind can be read. A kind that is not installed has no objects.
func (r *Reconciler) await(ctx context.Context, state *observed, kind schema.GroupVersionKind) error {
	ready, err := r.Kinds.Readable(ctx, kind)
	if err == nil {
		state.awaits(kind, ready)
	}
	if remediationrequest.Missing(err) {
		return nil
	}
	return err
}

func (r *Reconciler) observeTemplate(ctx context.Context, state *observed, t *Template) (Disabled, error) {
	gvk := t.GroupVersionKind()
	if _, err := remediationrequest.NodeKindOf(gvk); err != nil {
		return TemplateInvalid(t, err), nil
	}
	byName, unread := false, false // byName: the manager may get the template, but not list its kind
	for _, kind := range []schema.GroupVersionKind{gvk, t.Request} {
		ready, err := r.Kinds.Readable(ctx, kind)
		if kind == gvk && apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread) {
			byName = true
			continue
		}
		if err != nil {
			why, err := state.unusable(t, kind.Kind, err)
			state.unreadable[t.Request.GroupKind()] = err != nil || why.Reason == nhcv1.TemplateForbiddenReason
			return why, err
		}
		state.awaits(kind, ready)
		unread = unread || !ready
	}
	if unread {
		return Disabled{}, nil
	}
	mapping, err := r.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return Disabled{}, fmt.Errorf("find out whether %s is namespaced: %w", gvk.Kind, err)
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		t.Namespace = "" // whatever the reference says, because its requests are cluster-scoped too and are found by their namespace
	case t.Namespace == "":
		err := fmt.Errorf("remediation template %q not found, it is namespaced, but no namespace is provided", t.Name)
		return TemplateNotFound(t, err), nil
	}
	return r.readTemplate(ctx, state, t, byName || r.Kinds.Polled(gvk))
}

// unusable returns why a template disables the check if err says that it, or a kind, is missing or forbidden; otherwise it returns err.
func (state *observed) unusable(t *Template, kind string, err error) (Disabled, error) {
	switch {
	case remediationrequest.Missing(err):
		state.retry()
		return TemplateNotFound(t, err), nil
	case apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
		state.retry()
		return TemplateForbidden(t, kind, err), nil
	}
	return Disabled{}, err
}

// readTemplate reads the template itself. If it cannot be watched, it is read live, and again after readRetry: Poison Pill, Self Node
// Remediation before v0.8 and Fence Agents Remediation before v0.3 allow only get, which is all that medik8s' operator needed.
func (r *Reconciler) readTemplate(ctx context.Context, state *observed, t *Template, live bool) (Disabled, error) {
	from := client.Reader(r.Client)
	if live {
		from = r.Live
		state.facts.Recheck = state.facts.Now.Add(readRetry)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(t.GroupVersionKind())
	if err := from.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, obj); err != nil {
		why, err := state.unusable(t, t.Kind, err)
		if err != nil {
			err = fmt.Errorf("read remediation template %s: %w", t.Place(), err)
		}
		return why, err
	}
	if _, err := remediationrequest.Content(obj); err != nil {
		return TemplateInvalid(t, err), nil
	}
	t.Object = obj
	return Disabled{}, nil
}

func kindsOf(check *nhcv1.NodeHealthCheck) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, t := range templatesOf(&check.Spec) {
		if t.Request.Kind != "" {
			kinds = append(kinds, t.Request)
		}
	}
	for _, remediation := range remediations(check) {
		kinds = append(kinds, remediation.Resource.GroupVersionKind())
	}
	return kinds
}

func (r *Reconciler) request(ctx context.Context, state *observed, o *outcome) (*unstructured.Unstructured, error) {
	t := &state.facts.Templates[o.Start]
	ask := remediationrequest.Ask{
		Name: nameFor(state.check, t, o.Node), Node: o.Name, ControlPlane: o.controlPlane(),
		By: remediationrequest.Maker{Name: state.check.Name, UID: state.check.UID}, Owners: []metav1.OwnerReference{ownerOf(state.check)},
	}
	owner, err := r.machineOwner(ctx, t, o.Node)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		ask.Owners = append(ask.Owners, *owner)
	}
	req, err := remediationrequest.ForNode(ask, t.Object)
	if err != nil {
		return nil, err
	}
	record := r.recorded(ctx, state, o, req)
	o.asked = true
	if err := r.Requests.Create(ctx, req); err != nil {
		return nil, err
	}
	r.memory.written.Of(req.GroupVersionKind().GroupKind()).Note(req)
	r.Records.Began(ctx, record, req)
	return req, nil
}

// nameFor returns the name of a request: that of the Machine or the node. If the template allows several requests for one node, the name is
// unique for each template.
func nameFor(check *nhcv1.NodeHealthCheck, t *Template, n *Node) string {
	name := n.Name
	if t.OwnedByMachine(n) {
		name = n.Machine.Object.Name
	}
	if _, several := t.Object.GetAnnotations()[nhcv1.MultipleTemplatesAnnotation]; several {
		return remediationrequest.UniqueName(name, string(check.UID), t.Namespace, t.Name)
	}
	return name
}

func ownerOf(check *nhcv1.NodeHealthCheck) metav1.OwnerReference {
	no := false
	return metav1.OwnerReference{
		APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: check.Name, UID: check.UID, Controller: &no,
	}
}

// machineOwner returns an owner reference to the Machine of Cluster API or OpenShift behind the node; nil if none may own the request.
func (r *Reconciler) machineOwner(ctx context.Context, t *Template, n *Node) (*metav1.OwnerReference, error) {
	if t.OwnedByMachine(n) {
		return &metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: n.Machine.Object.Name, UID: n.Machine.Object.UID,
		}, nil
	} else if !t.OwnedByOpenShift(n) {
		return nil, nil
	}
	ref, machine := n.OpenShift(), &metav1.PartialObjectMetadata{}
	machine.SetGroupVersionKind(OpenShiftMachines)
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, machine); {
	case remediationrequest.Missing(err) && !OfMachines(t.Request): // only a request about a Machine needs the owner
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Machine %s/%s of node %s: %w", ref.Namespace, ref.Name, n.Name, err)
	}
	version, kind := OpenShiftMachines.ToAPIVersionAndKind()
	return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: ref.Name, UID: machine.UID}, nil
}
