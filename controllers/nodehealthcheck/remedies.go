package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// remedy is what a check does about a node: one rung of its ladder, or all of it.
type remedy struct {
	ref      corev1.ObjectReference
	template schema.GroupVersionKind
	kind     schema.GroupVersionKind // of the requests
	timeout  time.Duration           // zero without a ladder
	order    *int                    // of its step; nil without a ladder
	// object is the template; nil if it cannot be used, and then the check is disabled.
	object *unstructured.Unstructured
	// unread says that whoever looks may not read what the controller may: the template, or the requests.
	unread bool
}

// String names r for people.
func (r remedy) String() string {
	return fmt.Sprintf("%s from template %s/%s", r.kind.Kind, r.ref.Namespace, r.ref.Name)
}

// place names r's template, and its step, as people find them in the check.
func (r remedy) place() string {
	at := r.ref.Kind + " " + r.ref.Name
	if r.ref.Namespace != "" {
		at = fmt.Sprintf("%s %s/%s", r.ref.Kind, r.ref.Namespace, r.ref.Name)
	}
	if r.order != nil {
		at += fmt.Sprintf(" (order %d)", *r.order)
	}
	return at
}

// several reports whether the remediator copes with several requests for one node, as its template says.
func (r remedy) several() bool {
	_, says := r.object.GetAnnotations()[nhcv1.MultipleTemplatesAnnotation]
	return says
}

// ofMachine reports whether requests of this kind are about Machines of Cluster API, which own them and after which they are named: those
// of infrastructure providers and our own. (Cluster API, contract of external remediation.)
func (r remedy) ofMachine() bool { return groupOfMachines(r.kind.Group) }

// aboutMachines reports likewise whether a request is.
func aboutMachines(obj *unstructured.Unstructured) bool {
	return groupOfMachines(obj.GroupVersionKind().Group)
}

func groupOfMachines(group string) bool {
	return group == infrastructureGroup || group == mendv1.GroupVersion.Group
}

// machineFor is the Machine of Cluster API that owns r's request about t, and after which it is named; nil if none does. Remediators of others
// know machine.openshift.io alone, do not look at the group of an owner, and would look for a Machine there that has the name of this one.
// (medik8s' Self Node Remediation, internal/controller/owner_and_name.go; its Machine Deletion Remediation.)
func (r remedy) machineFor(t *target) *clusterv1.Machine {
	if m := t.machine.obj; r.ofMachine() && m != nil && m.Namespace == r.ref.Namespace {
		return m
	}
	return nil
}

// openshiftMachineFor is the key of OpenShift's Machine that the node names, if it can own r's request about t: an owner lives in the same
// namespace. Requests of kubemend.io are about Machines of Cluster API alone.
func (r remedy) openshiftMachineFor(t *target) (client.ObjectKey, bool) {
	namespace, name, named := openshiftMachineOf(t.node)
	if !named || namespace != r.ref.Namespace || r.kind.Group == mendv1.GroupVersion.Group || r.machineFor(t) != nil {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, true
}

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

func isTemplate(kind string) bool { return strings.HasSuffix(kind, remediationrequest.TemplateSuffix) }

// remediesOf are the remedies that a spec names, in the order of use. The spec is left as it is. (medik8s sorts it in place, and writes
// the status in every reconcile because of that.)
func remediesOf(spec *nhcv1.NodeHealthCheckSpec) []remedy {
	if spec.RemediationTemplate != nil {
		return []remedy{remedyOf(*spec.RemediationTemplate)}
	}
	steps := slices.Clone(spec.EscalatingRemediations)
	slices.SortStableFunc(steps, func(a, b nhcv1.EscalatingRemediation) int { return cmp.Compare(a.Order, b.Order) })
	remedies := make([]remedy, 0, len(steps))
	for i := range steps {
		m := remedyOf(steps[i].RemediationTemplate)
		m.order, m.timeout = &steps[i].Order, steps[i].Timeout.Duration
		remedies = append(remedies, m)
	}
	return remedies
}

func remedyOf(ref corev1.ObjectReference) remedy {
	template := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	kind, _ := remediationrequest.NodeKindOf(template) // the error is said when the template is read
	return remedy{ref: ref, template: template, kind: kind}
}

// rungsOf are the remedies as the ladder sees them.
func rungsOf(remedies []remedy) []escalation.Rung {
	rungs := make([]escalation.Rung, 0, len(remedies))
	for _, m := range remedies {
		rungs = append(rungs, escalation.Rung{Name: m.String(), Timeout: m.timeout})
	}
	return rungs
}

// classic reports whether the check has no ladder.
func (w *observed) classic() bool { return w.check.Spec.RemediationTemplate != nil }

// disabling is why a check can do nothing, as its condition Disabled says.
type disabling struct{ reason, message string }

// observeRemedies reads the templates that the check names, and makes sure that the requests made from them can be seen. The first one
// that cannot be used disables the check.
func (r *Reconciler) observeRemedies(ctx context.Context, w *observed) {
	w.remedies = remediesOf(&w.check.Spec)
	for i := range w.remedies {
		why, err := r.observeRemedy(ctx, w, &w.remedies[i])
		if err != nil {
			w.unreadable[w.remedies[i].kind.GroupKind()] = true
		}
		switch {
		case errors.Is(err, explain.ErrUnread):
			w.remedies[i].unread = true
			why = disabledBefore(w.check)
		case err != nil:
			w.trouble = append(w.trouble, err)
		}
		if why != nil && w.disabled == nil {
			w.disabled = why
		}
	}
	if len(w.remedies) == 0 && w.disabled == nil {
		w.disabled = &disabling{nhcv1.TemplateInvalidReason,
			"Remediation template is invalid: either spec.remediationTemplate or at least one of spec.escalatingRemediations must be set"}
	}
	w.rungs = rungsOf(w.remedies)
	r.observeFormer(ctx, w)
}

// disabledBefore is why a check was disabled because of its templates, by what it says itself; nil if it was not. It is the word of the controller,
// for whoever may not read the templates.
func disabledBefore(check *nhcv1.NodeHealthCheck) *disabling {
	c := conditionOf(check, nhcv1.DisabledCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	switch c.Reason {
	case nhcv1.TemplateNotFoundReason, nhcv1.TemplateInvalidReason, nhcv1.TemplateForbiddenReason:
		return &disabling{c.Reason, c.Message}
	}
	return nil
}

// observeFormer watches the kinds of requests that the status lists and that the check does not name any more: what was begun has to end.
func (r *Reconciler) observeFormer(ctx context.Context, w *observed) {
	for i := range w.check.Status.UnhealthyNodes {
		for _, was := range w.check.Status.UnhealthyNodes[i].Remediations {
			kind := schema.FromAPIVersionAndKind(was.Resource.APIVersion, was.Resource.Kind)
			if slices.ContainsFunc(w.remedies, func(m remedy) bool { return m.kind.GroupKind() == kind.GroupKind() }) {
				continue
			}
			ready, err := r.Kinds.Ready(ctx, kind)
			switch {
			case remediationrequest.Missing(err): // then there are none
			case errors.Is(err, explain.ErrUnread):
				w.unreadable[kind.GroupKind()] = true
			case err != nil:
				w.unreadable[kind.GroupKind()] = true
				w.trouble = append(w.trouble, err)
				w.lookAgainIn(templateRetry, templateSought)
			default:
				w.awaits(kind, ready)
			}
		}
	}
}

func (r *Reconciler) observeRemedy(ctx context.Context, w *observed, m *remedy) (*disabling, error) {
	if _, err := remediationrequest.NodeKindOf(m.template); err != nil {
		return m.invalid(err), nil
	}
	byName := false // it may be read, and its kind not be listed
	for _, kind := range []schema.GroupVersionKind{m.template, m.kind} {
		ready, err := r.Kinds.Ready(ctx, kind)
		switch {
		case remediationrequest.Missing(err):
			w.lookAgainIn(templateRetry, templateSought)
			return m.notFound(err), nil
		case kind == m.template && apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
			byName = true
		case apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
			w.unreadable[m.kind.GroupKind()] = true
			w.lookAgainIn(templateRetry, templateSought)
			return m.forbidden(kind, err), nil
		case err != nil:
			return nil, err
		case !ready:
			w.awaits(kind, ready)
			return nil, nil
		}
	}
	mapping, err := r.Mapper.RESTMapping(m.template.GroupKind(), m.template.Version)
	if err != nil {
		return nil, fmt.Errorf("find out whether %s is namespaced: %w", m.template.Kind, err)
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		m.ref.Namespace = "" // whatever the reference says: its requests have none either, and are found again by that
	case m.ref.Namespace == "":
		return m.notFound(fmt.Errorf("remediation template %q not found, it is namespaced, but no namespace is provided", m.ref.Name)), nil
	}
	return r.readTemplate(ctx, w, m, byName || r.Kinds.Polled(m.template))
}

// readTemplate reads the template itself. One that is not watched is read live, and again: Poison Pill, Self Node Remediation before v0.8 and Fence
// Agents Remediation before v0.3 grant no more than to get one by its name, which was all that medik8s' operator did.
func (r *Reconciler) readTemplate(ctx context.Context, w *observed, m *remedy, live bool) (*disabling, error) {
	from := client.Reader(r.Client)
	if live {
		from = r.Live
		w.recheck = health.Earliest(w.recheck, w.now.Add(templateRetry))
	}
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(m.template)
	err := from.Get(ctx, client.ObjectKey{Namespace: m.ref.Namespace, Name: m.ref.Name}, template)
	switch {
	case remediationrequest.Missing(err):
		w.lookAgainIn(templateRetry, templateSought)
		return m.notFound(err), nil
	case live && apierrors.IsForbidden(err):
		w.lookAgainIn(templateRetry, templateSought)
		return m.forbidden(m.template, err), nil
	case err != nil:
		return nil, fmt.Errorf("read remediation template %s: %w", m.place(), err)
	}
	if _, err := remediationrequest.Content(template); err != nil {
		return m.invalid(err), nil
	}
	m.object = template
	return nil, nil
}

// templateRetry is how soon a template is looked for again that was not there (medik8s), and what is not watched is looked at. Templates that come
// later are watched; their kinds are not.
const templateRetry = 15 * time.Second

// templateSought is what is done then.
const templateSought = "what could not be read is looked for again"

// notFound says of which template it is: what the API server says of one that is not there has no namespace, and of a kind no template.
func (r remedy) notFound(err error) *disabling {
	return &disabling{nhcv1.TemplateNotFoundReason, fmt.Sprintf("Remediation template not found: %q", r.place()+": "+plain(err))}
}

func (r remedy) invalid(err error) *disabling {
	text := fmt.Sprintf("Remediation template is invalid: %q", plain(err)) // all of it medik8s', with namespace and name
	if r.order != nil {
		text += ", of " + r.place()
	}
	return &disabling{nhcv1.TemplateInvalidReason, text}
}

func (r remedy) forbidden(kind schema.GroupVersionKind, err error) *disabling {
	return &disabling{nhcv1.TemplateForbiddenReason, fmt.Sprintf(
		"%s may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: \"true\" has to allow it, "+
			"as the remediator brings one: %q",
		kind.Kind, r.place()+": "+plain(err))}
}

// plain is the innermost of err, whose text is the API server's: what was tried is said in the sentence around it.
func plain(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
