package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// found is a remediation request that the check made.
type found struct {
	obj *unstructured.Unstructured // shared with the cache: read only
	// step is that of the template it was made from, -1 if the check does not name that any more.
	step int
	// guessed says that nothing says which node it is about: it is listed under its own name.
	guessed bool
	listed  *listed // what the status says of it; nil if it does not list it
}

// requests are all remediation requests of the kinds in use, sorted out once in a reconcile.
type requests struct {
	ours  map[string][]*found // by node; oldest first
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
	gone, unseen map[string][]nhcv1.Remediation
}

// observeRequests lists the requests of all kinds in use, one list for each kind, from the cache.
func (r *Reconciler) observeRequests(ctx context.Context, w *observed) error {
	w.requests = requests{
		ours: map[string][]*found{}, byName: map[objectKey]*unstructured.Unstructured{}, byNode: map[string][]*unstructured.Unstructured{},
		read: map[schema.GroupKind]bool{}, within: namespacesOf(w.check),
		orphaned: map[string][]*unstructured.Unstructured{}, known: statusByUID(w.check),
		gone: map[string][]nhcv1.Remediation{}, unseen: map[string][]nhcv1.Remediation{},
	}
	for _, kind := range r.requestKinds() {
		list, listed, err := r.listRequests(ctx, kind)
		if err != nil {
			return err
		}
		if !listed {
			w.unreadable[kind.GroupKind()] = true
			continue
		}
		w.requests.read[kind.GroupKind()] = true
		if r.Kinds.Polled(kind) && slices.Contains(kindsOf(w.check), kind) { // nothing enqueues the check when one changes
			w.recheck(w.facts.Now.Add(readRetry))
		}
		if err := w.shown(kind, r.upToDate(ctx, kind, list)); err != nil {
			return err
		}
		for i := range list {
			w.sort(&list[i])
		}
	}
	for _, ours := range w.requests.ours {
		slices.SortFunc(ours, oldestFirst)
	}
	for i := range w.check.Status.UnhealthyNodes {
		n := &w.check.Status.UnhealthyNodes[i]
		for _, was := range n.Remediations {
			switch kind := schema.FromAPIVersionAndKind(was.Resource.APIVersion, was.Resource.Kind); {
			case w.requests.known[was.Resource.UID].seen:
			case w.unreadable[kind.GroupKind()]:
				w.requests.unseen[n.Name] = append(w.requests.unseen[n.Name], was)
			case n.ConditionsHealthyTimestamp != nil: // the node was healthy since: its next failure begins at the first step
			default:
				w.requests.gone[n.Name] = append(w.requests.gone[n.Name], was)
			}
		}
	}
	return nil
}

// shown notes whether all that was written of a kind is shown, as err says. Of a kind that is not the check's own it does not matter but to the control
// plane, of which one node is disrupted at a time, by whatever check.
func (w *observed) shown(kind schema.GroupVersionKind, err error) error {
	own := func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() }
	switch {
	case !errors.Is(err, consistency.ErrStale):
		return err
	case slices.ContainsFunc(kindsOf(w.check), own):
		w.awaits(kind, false)
		return err
	}
	w.lagging = true
	return nil
}

func oldestFirst(a, b *found) int {
	return cmp.Or(a.started().Compare(b.started()), cmp.Compare(a.step, b.step), cmp.Compare(a.obj.GetName(), b.obj.GetName()))
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

// listRequests returns the requests of a kind as list does, and whether it could: a polled kind that may not be listed any more, or is gone, is in use no
// longer, and blocks no check that does not name it.
func (r *Reconciler) listRequests(ctx context.Context, kind schema.GroupVersionKind) (list []unstructured.Unstructured, listed bool, err error) {
	polled := r.Kinds.Polled(kind)
	if list, err = r.list(ctx, kind); err == nil || !polled {
		return list, err == nil, err
	}
	if _, unready := r.Kinds.Ready(ctx, kind); remediationrequest.Missing(unready) || apierrors.IsForbidden(unready) {
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
	for i := range check.Status.UnhealthyNodes {
		n := &check.Status.UnhealthyNodes[i]
		for j := range n.Remediations {
			known[n.Remediations[j].Resource.UID] = &listed{node: n.Name, healthy: n.ConditionsHealthyTimestamp != nil, remediation: &n.Remediations[j]}
		}
	}
	return known
}

// sort puts obj where it belongs. It is ours if this very check made it. Of others about Machines those count that are in a namespace of the
// check's templates, since such a request lives with the Machine: a name alone may be that of a Machine of any other cluster. Its node is what
// its annotation says; if a remediator removed that, what the status says, or its name.
func (w *observed) sort(obj *unstructured.Unstructured) {
	was := w.requests.known[obj.GetUID()]
	if was != nil {
		was.seen = true
	}
	w.requests.byName[keyOf(obj.GroupVersionKind().GroupKind(), obj.GetNamespace(), obj.GetName())] = obj
	if !w.made(obj) {
		w.requests.other = append(w.requests.other, obj)
		if w.orphans(obj) {
			w.requests.orphaned[nodeOfObject(obj)] = append(w.requests.orphaned[nodeOfObject(obj)], obj)
		}
		if node := nodeOf(obj); node != "" && (!aboutMachines(obj) || w.within(obj)) {
			w.requests.byNode[node] = append(w.requests.byNode[node], obj)
		}
		return
	}
	f := &found{obj: obj, step: w.stepOf(obj, was), listed: was}
	node := nodeOfObject(obj)
	if was != nil {
		node = cmp.Or(nodeOf(obj), was.node)
	}
	f.guessed = nodeOf(obj) == "" && was == nil
	w.requests.ours[node] = append(w.requests.ours[node], f)
}

// stepOf finds the template that obj was made from: that of its kind which it names; if it names none any more, what the status
// says, or the only one of its kind.
func (w *observed) stepOf(obj *unstructured.Unstructured, was *listed) int {
	name, named := obj.GetAnnotations()[nhcv1.TemplateNameAnnotation]
	if !named && was != nil {
		name, named = was.remediation.TemplateName, was.remediation.TemplateName != ""
	}
	step, same := -1, 0
	for i := range w.templates {
		t := &w.templates[i]
		if t.kind.GroupKind() != obj.GroupVersionKind().GroupKind() || t.ref.Namespace != obj.GetNamespace() {
			continue
		}
		if named && t.ref.Name == name {
			return i
		}
		step, same = i, same+1
	}
	if !named && same == 1 {
		return step
	}
	return -1
}

// nodeOf is the node that a request names, or "".
func nodeOf(obj *unstructured.Unstructured) string {
	return obj.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

func ownedBy(obj metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// machineOwner is the Machine of Cluster API that owns obj, by name and UID; zero if none does. It is in the namespace of obj, as owners are.
func machineOwner(obj metav1.Object) machineRef {
	for _, o := range obj.GetOwnerReferences() {
		if o.Kind == "Machine" && strings.HasPrefix(o.APIVersion, clusterv1.GroupVersion.Group+"/") {
			return machineRef{types.NamespacedName{Namespace: obj.GetNamespace(), Name: o.Name}, o.UID}
		}
	}
	return machineRef{}
}

// machineRef is one Machine, and none that had its name before or has it elsewhere.
type machineRef struct {
	key types.NamespacedName
	uid types.UID
}

// owningMachine reads the Machine that owns obj, shared with the cache: read only. It is nil if none does, or that one is gone.
func (r *Reconciler) owningMachine(ctx context.Context, obj *unstructured.Unstructured) (*clusterv1.Machine, error) {
	ref, m := machineOwner(obj), &clusterv1.Machine{}
	if ref == (machineRef{}) {
		return nil, nil
	}
	err := r.Management.Get(ctx, ref.key, m, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read machine %s of %s %s: %w", ref.key, obj.GetKind(), obj.GetName(), err)
	case m.UID != ref.uid: // also if it is gone
		return nil, nil
	}
	return m, nil
}

func (f *found) started() time.Time { return f.obj.GetCreationTimestamp().Time }

// annotated is the moment that an annotation of the request holds; zero if there is none, or one that is none.
func (f *found) annotated(key string) time.Time {
	at, err := time.Parse(time.RFC3339, f.obj.GetAnnotations()[key])
	if err != nil {
		return time.Time{}
	}
	return at
}
