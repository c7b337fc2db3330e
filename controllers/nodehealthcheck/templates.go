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
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// remediationTemplate is a remediation template that a check names: one step of its escalation, or all of it.
type remediationTemplate struct {
	ref  corev1.ObjectReference
	gvk  schema.GroupVersionKind
	kind schema.GroupVersionKind // of the requests
	// object is the template itself; nil if it cannot be used, and then the check is disabled.
	object *unstructured.Unstructured
}

// aboutMachines reports whether a request is about a Machine of Cluster API, which owns it and after which it is named: those of infrastructure providers
// and our own are. (Cluster API, contract of external remediation.)
func aboutMachines(obj *unstructured.Unstructured) bool {
	return groupOfMachines(obj.GroupVersionKind().Group)
}

func groupOfMachines(group string) bool {
	return group == infrastructureGroup || group == mendv1.GroupVersion.Group
}

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

func isTemplate(kind string) bool { return strings.HasSuffix(kind, remediationrequest.TemplateSuffix) }

// templatesOf are the templates that a spec names, in the order of use, and the same as facts. The spec is left as it is. (medik8s sorts it in place,
// and writes the status in every reconcile because of that.)
func templatesOf(spec *nhcv1.NodeHealthCheckSpec) ([]remediationTemplate, []nodes.Template) {
	if spec.RemediationTemplate != nil {
		template, fact := templateOf(*spec.RemediationTemplate)
		return []remediationTemplate{template}, []nodes.Template{fact}
	}
	steps := slices.Clone(spec.EscalatingRemediations)
	slices.SortStableFunc(steps, func(a, b nhcv1.EscalatingRemediation) int { return cmp.Compare(a.Order, b.Order) })
	templates, facts := make([]remediationTemplate, 0, len(steps)), make([]nodes.Template, 0, len(steps))
	for i := range steps {
		template, fact := templateOf(steps[i].RemediationTemplate)
		fact.Order, fact.HasOrder, fact.Timeout = steps[i].Order, true, steps[i].Timeout.Duration
		templates, facts = append(templates, template), append(facts, fact)
	}
	return templates, facts
}

func templateOf(ref corev1.ObjectReference) (remediationTemplate, nodes.Template) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	kind, _ := remediationrequest.NodeKindOf(gvk) // the error is reported when the template is read
	return remediationTemplate{ref: ref, gvk: gvk, kind: kind}, nodes.Template{
		Ref: nodes.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, RequestKind: kind.Kind, Type: kind.GroupKind().String(),
		OfMachines: groupOfMachines(kind.Group), ForOpenShift: kind.Group != mendv1.GroupVersion.Group, Infrastructure: kind.Group == infrastructureGroup,
	}
}

// observeTemplates reads the templates that the check names, and makes sure that the requests made from them can be seen. The
// first one that cannot be used disables the check.
func (r *Reconciler) observeTemplates(ctx context.Context, state *observed) {
	state.templates, state.facts.Templates = templatesOf(&state.check.Spec)
	for i := range state.templates {
		t, facts := &state.templates[i], &state.facts.Templates[i]
		why, err := r.observeTemplate(ctx, state, t, facts)
		if err != nil {
			state.unreadable[t.kind.GroupKind()] = true
		}
		switch {
		case errors.Is(err, explain.ErrUnread):
			facts.Unread = true
			why = disabledBefore(state.check)
		case err != nil:
			state.trouble = append(state.trouble, err)
		}
		facts.Usable = t.object != nil
		state.disable(why)
	}
	if len(state.templates) == 0 {
		state.disable(nodes.NoTemplates())
	}
	r.observeFormer(ctx, state)
}

// disabledBefore is why a check was disabled because of its templates, by what it says itself; zero if it was not. It is the
// word of the controller, for users who may not read the templates.
func disabledBefore(check *nhcv1.NodeHealthCheck) nodes.Disabled {
	c := conditionOf(check, nhcv1.DisabledCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nodes.Disabled{}
	}
	switch c.Reason {
	case nhcv1.TemplateNotFoundReason, nhcv1.TemplateInvalidReason, nhcv1.TemplateForbiddenReason:
		return nodes.Disabled{Reason: c.Reason, Message: c.Message}
	}
	return nodes.Disabled{}
}

// observeFormer watches the kinds of requests that the status lists and that the check does not name any more: what was begun has to end.
func (r *Reconciler) observeFormer(ctx context.Context, state *observed) {
	for i := range state.check.Status.UnhealthyNodes {
		for _, remediation := range state.check.Status.UnhealthyNodes[i].Remediations {
			kind := schema.FromAPIVersionAndKind(remediation.Resource.APIVersion, remediation.Resource.Kind)
			if slices.ContainsFunc(state.templates, func(m remediationTemplate) bool { return m.kind.GroupKind() == kind.GroupKind() }) {
				continue
			}
			ready, err := r.Kinds.Readable(ctx, kind)
			switch {
			case remediationrequest.Missing(err): // then there are none
			case errors.Is(err, explain.ErrUnread):
				state.unreadable[kind.GroupKind()] = true
			case err != nil:
				state.unreadable[kind.GroupKind()] = true
				state.trouble = append(state.trouble, err)
				state.retry()
			default:
				state.awaits(kind, ready)
			}
		}
	}
}

func (r *Reconciler) observeTemplate(
	ctx context.Context, state *observed, t *remediationTemplate, facts *nodes.Template,
) (nodes.Disabled, error) {
	if _, err := remediationrequest.NodeKindOf(t.gvk); err != nil {
		return nodes.TemplateInvalid(facts, err), nil
	}
	byName, unread := false, false // it may be read, and its kind not be listed
	for _, kind := range []schema.GroupVersionKind{t.gvk, t.kind} {
		ready, err := r.Kinds.Readable(ctx, kind)
		if kind == t.gvk && apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread) {
			byName = true
			continue
		}
		if err != nil {
			return state.unlistable(t, facts, kind, err)
		}
		state.awaits(kind, ready)
		unread = unread || !ready
	}
	if unread {
		return nodes.Disabled{}, nil
	}
	mapping, err := r.Mapper.RESTMapping(t.gvk.GroupKind(), t.gvk.Version)
	if err != nil {
		return nodes.Disabled{}, fmt.Errorf("find out whether %s is namespaced: %w", t.gvk.Kind, err)
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		t.ref.Namespace, facts.Namespace = "", "" // whatever the reference says: its requests have none either, and are found again by that
	case t.ref.Namespace == "":
		err := fmt.Errorf("remediation template %q not found, it is namespaced, but no namespace is provided", t.ref.Name)
		return nodes.TemplateNotFound(facts, err), nil
	}
	return r.readTemplate(ctx, state, t, facts, byName || r.Kinds.Polled(t.gvk))
}

// unlistable is why a template disables the check whose kind, or that of its requests, cannot be listed because of err. The error is returned if it says
// nothing about the template.
func (state *observed) unlistable(
	t *remediationTemplate, facts *nodes.Template, kind schema.GroupVersionKind, err error,
) (nodes.Disabled, error) {
	switch {
	case remediationrequest.Missing(err):
		state.retry()
		return nodes.TemplateNotFound(facts, err), nil
	case apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
		state.unreadable[t.kind.GroupKind()] = true
		state.retry()
		return nodes.TemplateForbidden(facts, kind.Kind, err), nil
	}
	return nodes.Disabled{}, err
}

// readTemplate reads the template itself. One that is not watched is read live, and again: Poison Pill, Self Node Remediation before v0.8 and Fence
// Agents Remediation before v0.3 grant no more than to get one by its name, which was all that medik8s' operator did.
func (r *Reconciler) readTemplate(
	ctx context.Context, state *observed, t *remediationTemplate, facts *nodes.Template, live bool,
) (nodes.Disabled, error) {
	from := client.Reader(r.Client)
	if live {
		from = r.Live
		state.recheck(state.facts.Now.Add(readRetry))
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(t.gvk)
	err := from.Get(ctx, client.ObjectKey{Namespace: t.ref.Namespace, Name: t.ref.Name}, obj)
	switch {
	case remediationrequest.Missing(err):
		state.retry()
		return nodes.TemplateNotFound(facts, err), nil
	case live && apierrors.IsForbidden(err):
		state.retry()
		return nodes.TemplateForbidden(facts, t.gvk.Kind, err), nil
	case err != nil:
		return nodes.Disabled{}, fmt.Errorf("read remediation template %s: %w", facts.Place(), err)
	}
	if _, err := remediationrequest.Content(obj); err != nil {
		return nodes.TemplateInvalid(facts, err), nil
	}
	t.object = obj
	return nodes.Disabled{}, nil
}

// kindsOf are the kinds of requests that a check makes, or has made.
func kindsOf(check *nhcv1.NodeHealthCheck) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	templates, _ := templatesOf(&check.Spec)
	for _, m := range templates {
		if m.kind.Kind != "" {
			kinds = append(kinds, m.kind)
		}
	}
	for i := range check.Status.UnhealthyNodes {
		for _, remediation := range check.Status.UnhealthyNodes[i].Remediations {
			kinds = append(kinds, schema.FromAPIVersionAndKind(remediation.Resource.APIVersion, remediation.Resource.Kind))
		}
	}
	return kinds
}

// request makes the request of the step that starts.
func (r *Reconciler) request(ctx context.Context, state *observed, o *outcome) (*unstructured.Unstructured, error) {
	t, facts := &state.templates[o.Start], &state.facts.Templates[o.Start]
	ask := remediationrequest.Ask{
		Name: t.nameFor(state.check, facts, o.n), Node: o.n.Name, ControlPlane: o.n.ControlPlane,
		By: remediationrequest.Maker{Name: state.check.Name, UID: state.check.UID}, Owners: []metav1.OwnerReference{ownerOf(state.check)},
	}
	owner, err := r.machineOwner(ctx, facts, o.n)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		ask.Owners = append(ask.Owners, *owner)
	}
	req, err := remediationrequest.ForNode(ask, t.object)
	if err != nil {
		return nil, err
	}
	r.recorded(ctx, state, o, req)
	if err := r.Requests.Create(ctx, req); err != nil {
		return nil, err
	}
	r.memory.written.Of(req.GroupVersionKind().GroupKind()).Note(req)
	return req, nil
}

// nameFor is the name of a request: that of the Machine for what is about Machines, else that of the node; where there may be several
// requests for one node, one that no other template's request has.
func (t remediationTemplate) nameFor(check *nhcv1.NodeHealthCheck, facts *nodes.Template, n *nodes.Node) string {
	name := n.Name
	if facts.OwnedByMachine(n) {
		name = n.Machine.Name
	}
	if _, several := t.object.GetAnnotations()[nhcv1.MultipleTemplatesAnnotation]; several { // its remediator copes with several for one node
		return remediationrequest.UniqueName(name, string(check.UID), t.ref.Namespace, t.ref.Name)
	}
	return name
}

func ownerOf(check *nhcv1.NodeHealthCheck) metav1.OwnerReference {
	no := false
	return metav1.OwnerReference{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: check.Name, UID: check.UID, Controller: &no}
}

// machineOwner is the Machine behind the node, if it can own a request; nil if none can.
func (r *Reconciler) machineOwner(ctx context.Context, facts *nodes.Template, n *nodes.Node) (*metav1.OwnerReference, error) {
	switch {
	case facts.OwnedByMachine(n):
		return &metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: n.Machine.Name, UID: types.UID(n.Machine.ID),
		}, nil
	case facts.OwnedByOpenShift(n):
		owner, err := r.openshift().Machine(ctx, n)
		if remediationrequest.Missing(err) && !facts.OfMachines { // where a request is about nothing else, that it is not there is an error
			return nil, nil
		}
		return owner, err
	}
	return nil, nil
}
