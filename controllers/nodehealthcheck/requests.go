package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// requests are all remediation requests of the kinds in use, sorted out once in a reconcile.
type requests struct {
	ours  map[string][]*nodes.Request // by node; oldest first
	other []*unstructured.Unstructured
	// byName are all of them, byNode those of others that name their node.
	byName map[objectKey]*unstructured.Unstructured
	byNode map[string][]*unstructured.Unstructured
	// orphaned are those of a check of the same name that was there before, by node.
	orphaned map[string][]*unstructured.Unstructured
	// within are the namespaces in which the check makes them, or made them.
	within map[string]bool
	// known is what the status says of requests.
	known map[types.UID]*listed
	// read are the kinds that were read.
	read map[schema.GroupKind]bool
	// gone are the requests that exist no more and that only the status remembers, unseen those that cannot be read now; by node.
	gone, unseen map[string][]nodes.Listed
}

// observeRequests lists the requests of all kinds in use, one list for each kind, from the cache.
func (r *Reconciler) observeRequests(ctx context.Context, state *observed) error {
	state.requests = requests{
		ours: map[string][]*nodes.Request{}, byName: map[objectKey]*unstructured.Unstructured{},
		byNode: map[string][]*unstructured.Unstructured{}, read: map[schema.GroupKind]bool{}, within: namespacesOf(state.check),
		orphaned: map[string][]*unstructured.Unstructured{}, known: statusByUID(state.check),
		gone: map[string][]nodes.Listed{}, unseen: map[string][]nodes.Listed{},
	}
	for _, kind := range r.requestKinds() {
		list, listed, err := r.listRequests(ctx, kind)
		if err != nil {
			return err
		}
		if !listed {
			state.unreadable[kind.GroupKind()] = true
			continue
		}
		state.requests.read[kind.GroupKind()] = true
		if r.Kinds.Polled(kind) && slices.Contains(kindsOf(state.check), kind) { // nothing enqueues the check when one changes
			state.recheck(state.facts.Now.Add(readRetry))
		}
		if err := state.shown(kind, r.upToDate(ctx, kind, list)); err != nil {
			return err
		}
		for i := range list {
			state.sort(&list[i])
		}
	}
	for _, ours := range state.requests.ours {
		slices.SortFunc(ours, oldestFirst)
	}
	for n, remediation := range remediations(state.check) {
		kind := remediation.Resource.GroupVersionKind().GroupKind()
		entry := nodes.Listed{Remediation: *remediation, Step: state.stepOf(kind, remediation.Resource.Namespace, remediation.TemplateName)}
		switch {
		case state.requests.known[remediation.Resource.UID].seen:
		case state.unreadable[kind]:
			state.requests.unseen[n.Name] = append(state.requests.unseen[n.Name], entry)
		case n.ConditionsHealthyTimestamp != nil: // the node was healthy since: its next failure begins at the first step
		default:
			state.requests.gone[n.Name] = append(state.requests.gone[n.Name], entry)
		}
	}
	return nil
}

// shown notes whether all that was written of a kind is shown, as err says. Of a kind that is not the check's own it does not matter but
// to the control plane, of which one node is disrupted at a time, by whatever check.
func (state *observed) shown(kind schema.GroupVersionKind, err error) error {
	own := func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() }
	switch {
	case !errors.Is(err, consistency.ErrStale):
		return err
	case slices.ContainsFunc(kindsOf(state.check), own):
		state.awaits(kind, false)
		return err
	}
	state.lagging = true
	return nil
}

func oldestFirst(a, b *nodes.Request) int {
	return cmp.Or(a.Started().Compare(b.Started()), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
}

// objectKey is what no two objects have in common at the same time.
type objectKey struct {
	kind schema.GroupKind
	name types.NamespacedName
}

func keyOf(kind schema.GroupKind, namespace, name string) objectKey {
	return objectKey{kind, types.NamespacedName{Namespace: namespace, Name: name}}
}

// list returns the objects of a kind, shared with the cache: read only. Those of a kind that may not be watched come from the API server.
func (r *Reconciler) list(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	from := client.Reader(r.Client)
	if r.Kinds.Polled(kind) {
		from = r.Live
	}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// listRequests returns the requests of a kind as list does, and whether it could: a polled kind that may not be listed any more, or is
// gone, is in use no longer, and blocks no check that does not name it.
func (r *Reconciler) listRequests(ctx context.Context, kind schema.GroupVersionKind) (list []unstructured.Unstructured, listed bool, err error) {
	polled := r.Kinds.Polled(kind)
	if list, err = r.list(ctx, kind); err == nil || !polled {
		return list, err == nil, err
	}
	if _, unready := r.Kinds.Readable(ctx, kind); remediationrequest.Missing(unready) || apierrors.IsForbidden(unready) {
		return nil, false, nil
	}
	return nil, false, err
}

// requestKinds are the kinds of requests that are watched.
func (r *Reconciler) requestKinds() []schema.GroupVersionKind {
	return slices.DeleteFunc(r.Kinds.InUse(), func(kind schema.GroupVersionKind) bool { return !isRequest(kind) })
}

// isRequest tells kinds of requests from those of templates and of what else is watched.
func isRequest(kind schema.GroupVersionKind) bool {
	return !isTemplate(kind.Kind) && kind.Group != openshift.ConfigGroup && kind.Group != openshift.MachineGroup
}

// listed is what the status says of a request.
type listed struct {
	node string
	// healthy says that the node was.
	healthy     bool
	remediation *nhcv1.Remediation
	seen        bool
}

func statusByUID(check *nhcv1.NodeHealthCheck) map[types.UID]*listed {
	known := map[types.UID]*listed{}
	for n, remediation := range remediations(check) {
		known[remediation.Resource.UID] = &listed{node: n.Name, healthy: n.ConditionsHealthyTimestamp != nil, remediation: remediation}
	}
	return known
}

// remediations are the requests that the status of a check lists, each with its node.
func remediations(check *nhcv1.NodeHealthCheck) iter.Seq2[*nhcv1.UnhealthyNode, *nhcv1.Remediation] {
	return func(yield func(*nhcv1.UnhealthyNode, *nhcv1.Remediation) bool) {
		for i := range check.Status.UnhealthyNodes {
			n := &check.Status.UnhealthyNodes[i]
			for j := range n.Remediations {
				if !yield(n, &n.Remediations[j]) {
					return
				}
			}
		}
	}
}

// sort puts obj where it belongs. It is ours if this very check made it. Of others about Machines those count that are in a namespace of
// the check's templates, since such a request lives with the Machine: a name alone may be that of a Machine of any other cluster. Its
// node is what its annotation says; if a remediator removed that, what the status says, or its name.
func (state *observed) sort(obj *unstructured.Unstructured) {
	entry := state.requests.known[obj.GetUID()]
	if entry != nil {
		entry.seen = true
	}
	state.requests.byName[keyOf(obj.GroupVersionKind().GroupKind(), obj.GetNamespace(), obj.GetName())] = obj
	if !state.made(obj) {
		state.requests.other = append(state.requests.other, obj)
		if state.orphans(obj) {
			state.requests.orphaned[nodeOfObject(obj)] = append(state.requests.orphaned[nodeOfObject(obj)], obj)
		}
		if node := nodeOf(obj); node != "" && (!nodes.OfMachines(obj.GroupVersionKind()) || state.within(obj)) {
			state.requests.byNode[node] = append(state.requests.byNode[node], obj)
		}
		return
	}
	request := &nodes.Request{Object: obj, Step: state.stepOfRequest(obj, entry), Guessed: nodeOf(obj) == "" && entry == nil}
	node := nodeOfObject(obj)
	if entry != nil {
		node = cmp.Or(nodeOf(obj), entry.node)
		request.Listed, request.ListedHealthy = entry.remediation, entry.healthy
	}
	state.requests.ours[node] = append(state.requests.ours[node], request)
}

// stepOfRequest is the step whose template obj was made from: that of its kind which it names; if it names none any more, what the status
// says, or the only one of its kind. It is -1 if there is none.
func (state *observed) stepOfRequest(obj *unstructured.Unstructured, entry *listed) int {
	kind, name := obj.GroupVersionKind().GroupKind(), obj.GetAnnotations()[nhcv1.TemplateNameAnnotation]
	if _, named := obj.GetAnnotations()[nhcv1.TemplateNameAnnotation]; !named && entry != nil {
		name = entry.remediation.TemplateName
	}
	step := state.stepOf(kind, obj.GetNamespace(), name)
	if name != "" || step < 0 {
		return step
	}
	others := state.facts.Templates[step+1:]
	if slices.ContainsFunc(others, func(t nodes.Template) bool { return t.Request.GroupKind() == kind && t.Namespace == obj.GetNamespace() }) {
		return -1
	}
	return step
}

// stepOf is the first step whose template makes requests of that kind in a namespace and has the name, if that is known; -1 if there is
// none.
func (state *observed) stepOf(kind schema.GroupKind, namespace, name string) int {
	return slices.IndexFunc(state.facts.Templates, func(t nodes.Template) bool {
		return t.Request.GroupKind() == kind && t.Namespace == namespace && (name == "" || name == t.Name)
	})
}

// nodeOf is the node that a request names, or "".
func nodeOf(obj *unstructured.Unstructured) string {
	return obj.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

func ownedBy(obj metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// makerOf is the NodeHealthCheck that made obj: what its mark says, and where a half of that is missing, or all of it, its owner
// reference. The reference alone would not do: when the check goes, the garbage collector of Kubernetes takes it away from what a Machine
// owns as well.
func makerOf(obj metav1.Object) remediationrequest.Maker {
	by := remediationrequest.NodeCheckOf(obj)
	for _, o := range obj.GetOwnerReferences() {
		if o.Kind != "NodeHealthCheck" || o.APIVersion != nhcv1.GroupVersion.String() {
			continue
		}
		if (by.UID == "" || by.UID == o.UID) && (by.Name == "" || by.Name == o.Name) {
			return remediationrequest.Maker{Name: o.Name, UID: o.UID}
		}
	}
	return by
}

// within reports whether obj is where the requests of the check are: in a namespace of its templates, or of one whose request the status
// lists. Anybody who may write an object in any other one could give it the check's mark. What has no namespace only administrators make.
func (state *observed) within(obj *unstructured.Unstructured) bool {
	namespace := obj.GetNamespace()
	return namespace == "" || state.requests.within[namespace]
}

// namespacesOf are those of the templates that check names, and of the requests that its status lists: these are of templates that it
// named.
func namespacesOf(check *nhcv1.NodeHealthCheck) map[string]bool {
	namespaces := map[string]bool{}
	for _, template := range templatesOf(&check.Spec) {
		namespaces[template.Namespace] = true
	}
	for _, remediation := range remediations(check) {
		namespaces[remediation.Resource.Namespace] = true
	}
	return namespaces
}

// made reports whether the check made obj: that very check, and none of its name that was there before. Of what does not say
// any more which one it was, the status does.
func (state *observed) made(obj *unstructured.Unstructured) bool {
	if !state.within(obj) {
		return false
	}
	by := makerOf(obj)
	if by.UID != "" {
		return by.UID == state.check.UID
	}
	_, listed := state.requests.known[obj.GetUID()]
	return listed && (by.Name == "" || by.Name == state.check.Name)
}

// orphans reports whether a check made obj that had the name of this one, and is gone.
func (state *observed) orphans(obj *unstructured.Unstructured) bool {
	return state.within(obj) && makerOf(obj).Name == state.check.Name && !state.made(obj)
}

// attribute finds the nodes of requests that do not say any more which one they are about, by their names: a remediator may have removed
// the annotation, and the status may have been lost. What none is found for stays under its own name.
func (r *Reconciler) attribute(ctx context.Context, state *observed, list []corev1.Node) error {
	for name, ours := range state.requests.ours {
		for _, f := range slices.Clone(ours) {
			if !f.Guessed {
				continue
			}
			node, err := r.nodeByName(ctx, state, f.Object, list)
			if err != nil {
				return err
			}
			if node == "" || node == name {
				f.Guessed = node == ""
				continue
			}
			f.Guessed = false
			state.requests.ours[name] = slices.DeleteFunc(state.requests.ours[name], func(other *nodes.Request) bool { return other == f })
			state.requests.ours[node] = append(state.requests.ours[node], f)
			slices.SortFunc(state.requests.ours[node], oldestFirst)
		}
		if len(state.requests.ours[name]) == 0 {
			delete(state.requests.ours, name)
		}
	}
	return nil
}

// nodeByName is the node after which, or after whose Machine, obj is named; empty if there is none.
func (r *Reconciler) nodeByName(ctx context.Context, state *observed, obj *unstructured.Unstructured, list []corev1.Node) (string, error) {
	if ownerOfRequest(obj) != (machineRef{}) {
		m, err := r.owningMachine(ctx, obj)
		if m == nil {
			return "", err
		}
		return m.Status.NodeRef.Name, nil
	}
	for j := range state.facts.Templates {
		t := &state.facts.Templates[j]
		if t.Request.GroupKind() != obj.GroupVersionKind().GroupKind() || t.Namespace != obj.GetNamespace() || t.Object == nil {
			continue
		}
		for i := range list {
			if nameFor(state.check, t, &nodes.Node{Name: list[i].Name}) == obj.GetName() {
				return list[i].Name, nil
			}
		}
	}
	return "", nil
}

// namespacesOfTemplates are those in which NodeHealthChecks make requests, or made them.
func (r *Reconciler) namespacesOfTemplates(ctx context.Context) (map[string]bool, error) {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the NodeHealthChecks: %w", err)
	}
	namespaces := map[string]bool{}
	for i := range list.Items {
		maps.Copy(namespaces, namespacesOf(&list.Items[i]))
	}
	return namespaces, nil
}
