package nodehealthcheck

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func (r *Reconciler) observeRequests(ctx context.Context, state *observed) error {
	if err := r.listAll(ctx, state, state.sort); err != nil {
		return err
	}
	for listed, remediation := range remediations(state.check) {
		kind, n := remediation.Resource.GroupVersionKind().GroupKind(), state.node(listed.Name)
		entry := Listed{Remediation: *remediation, Step: state.stepOf(kind, remediation.Resource.Namespace, remediation.TemplateName)}
		switch {
		case state.listed[remediation.Resource.UID].seen:
		case state.unreadable[kind]:
			n.Unseen = append(n.Unseen, entry)
		case listed.ConditionsHealthyTimestamp != nil: // the node was healthy since: its next failure begins at the first step
		default:
			n.Gone = append(n.Gone, entry)
		}
	}
	return nil
}

// listAll shows each request of the kinds in use to sort. A kind of which a write of this process is not shown yet fails the reconcile if
// it is the check's own. Of others it matters to the control plane alone, whose requests confirmTurn reads past the cache.
func (r *Reconciler) listAll(ctx context.Context, state *observed, sort func(*unstructured.Unstructured)) error {
	for _, kind := range r.requestKinds() {
		own := slices.ContainsFunc(kindsOf(state.check), func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() })
		list, listed, err := r.listRequests(ctx, kind)
		if err != nil {
			return err
		}
		if !listed {
			state.unreadable[kind.GroupKind()] = true
			continue
		}
		state.read[kind.GroupKind()] = true
		if own && r.Kinds.Polled(kind) { // nothing enqueues the check when one changes
			state.facts.Recheck = state.facts.Now.Add(readRetry)
		}
		if own || state.released {
			if err := r.upToDate(ctx, kind, list); err != nil {
				state.awaits(kind, false)
				return err
			}
		}
		for i := range list {
			sort(&list[i])
		}
	}
	for _, n := range state.nodes {
		slices.SortFunc(n.Requests, func(a, b Request) int {
			return cmp.Or(a.Started().Compare(b.Started()), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
		})
	}
	return nil
}

// objectKey is what no two objects have in common at the same time.
type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
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

// listRequests lists requests of a kind. It is false for a polled kind that may not be listed any more, or is gone: that blocks no other
// check.
func (r *Reconciler) listRequests(
	ctx context.Context, kind schema.GroupVersionKind,
) (list []unstructured.Unstructured, listed bool, err error) {
	polled := r.Kinds.Polled(kind)
	if list, err = r.list(ctx, kind); err == nil || !polled {
		return list, err == nil, err
	}
	if _, unready := r.Kinds.Readable(ctx, kind); remediationrequest.Missing(unready) || apierrors.IsForbidden(unready) {
		return nil, false, nil
	}
	return nil, false, err
}

func (r *Reconciler) requestKinds() []schema.GroupVersionKind {
	return slices.DeleteFunc(r.Kinds.InUse(), func(kind schema.GroupVersionKind) bool { return !isRequest(kind) })
}

// upToDate returns consistency.ErrStale if list, all requests of a kind, does not show what this process has written.
func (r *Reconciler) upToDate(ctx context.Context, kind schema.GroupVersionKind, list []unstructured.Unstructured) error {
	writes := r.memory.written.Of(kind.GroupKind())
	for i := range list {
		if writes.Stale(&list[i]) {
			return consistency.ErrStale
		}
	}
	return writes.Unseen(ctx, r.Live, kind, "")
}

// isRequest tells kinds of requests from those of templates and of what else is watched.
func isRequest(kind schema.GroupVersionKind) bool {
	return !isTemplate(kind.Kind) && kind.Group != ConfigGroup && kind.Group != machineGroup
}

// listed is what the status says of a request, and of which node. Seen says that the request was found.
type listed struct {
	node        string
	seen        bool
	remediation *nhcv1.Remediation
}

func statusByUID(check *nhcv1.NodeHealthCheck) map[types.UID]*listed {
	known := map[types.UID]*listed{}
	for n, remediation := range remediations(check) {
		known[remediation.Resource.UID] = &listed{node: n.Name, remediation: remediation}
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
// the check's templates: a name alone may be that of a Machine of any other cluster.
func (state *observed) sort(obj *unstructured.Unstructured) {
	kind, entry, name := obj.GroupVersionKind(), state.listed[obj.GetUID()], nodeOfObject(obj)
	state.byName[objectKey{kind.GroupKind(), obj.GetNamespace(), obj.GetName()}] = obj
	if entry != nil {
		entry.seen = true
	}
	if state.made(obj) {
		request := Request{Object: obj, Step: state.stepOfRequest(obj, entry)}
		if entry != nil { // a remediator may have removed the annotation
			name = cmp.Or(nodeOf(obj), entry.node)
			request.Listed = entry.remediation
		}
		n := state.node(name)
		n.Requests = append(n.Requests, request)
		return
	}
	state.others = append(state.others, obj)
	if state.within(obj) && makerOf(obj).Name == state.check.Name {
		n := state.node(name)
		n.Orphaned = append(n.Orphaned, obj)
	}
	if name := nodeOf(obj); name != "" && (!OfMachines(kind) || state.within(obj)) {
		n := state.node(name)
		n.Others = append(n.Others, obj)
	}
}

// stepOfRequest is the step whose template obj names; without a name the one that the status says, or the only one of its kind; else -1.
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
	if slices.ContainsFunc(others, func(t Template) bool { return t.Request.GroupKind() == kind && t.Namespace == obj.GetNamespace() }) {
		return -1
	}
	return step
}

// stepOf is the first step whose template makes requests of that kind in a namespace and has the name, if that is known; else -1.
func (state *observed) stepOf(kind schema.GroupKind, namespace, name string) int {
	return slices.IndexFunc(state.facts.Templates, func(t Template) bool {
		return t.Request.GroupKind() == kind && t.Namespace == namespace && (name == "" || name == t.Name)
	})
}

func nodeOf(obj *unstructured.Unstructured) string {
	return obj.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

// makerOf is the NodeHealthCheck that made obj: what its mark says, completed by its owner reference. The garbage collector takes the
// reference away when the check goes and a Machine owns obj as well.
func makerOf(obj metav1.Object) remediationrequest.Maker {
	maker := remediationrequest.NodeCheckOf(obj)
	for _, o := range obj.GetOwnerReferences() {
		if o.Kind != "NodeHealthCheck" || o.APIVersion != nhcv1.GroupVersion.String() {
			continue
		}
		if (maker.UID == "" || maker.UID == o.UID) && (maker.Name == "" || maker.Name == o.Name) {
			return remediationrequest.Maker{Name: o.Name, UID: o.UID}
		}
	}
	return maker
}

// within reports whether obj is in a namespace of the check's templates or listed requests, or in none. Tenants could give the check's mark
// to objects in others.
func (state *observed) within(obj *unstructured.Unstructured) bool {
	namespace := obj.GetNamespace()
	return namespace == "" || state.namespaces[namespace]
}

// namespacesOf are those of the templates that check names, and of the requests that its status lists, whose templates it named once.
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

// made reports whether that very check made obj, and none of its name that was there before. If obj does not say it any more, the status
// does.
func (state *observed) made(obj *unstructured.Unstructured) bool {
	if !state.within(obj) {
		return false
	}
	maker := makerOf(obj)
	if maker.UID != "" {
		return maker.UID == state.check.UID
	}
	_, listed := state.listed[obj.GetUID()]
	return listed && (maker.Name == "" || maker.Name == state.check.Name)
}

// hostWithin is how long a record waits for the host that it names. With records.AheadWithin it is less than begin.Within, or a node of the
// control plane would not begin while neither its host nor its record answers.
const hostWithin = begin.Within / 5

// recorded makes sure that the remediation that req begins, or goes on with, has a record, makes req carry it and returns it. All requests
// of an escalation belong to one record, which is where the first of them is. Of a request without a namespace none is written.
func (r *Reconciler) recorded(
	ctx context.Context, state *observed, o *outcome, req *unstructured.Unstructured,
) *mendv1.RemediationRecord {
	at, uid := o.recorded()
	if at.Namespace = cmp.Or(at.Namespace, req.GetNamespace()); at.Namespace == "" {
		return nil
	}
	record := recordOf(state, o)
	if record.Spec.Target.Machine != nil {
		within, done := context.WithTimeout(ctx, hostWithin)
		records.OnHost(&record.Spec.Target, r.Records.HostOf(within, o.n.Machine.Object))
		done()
	}
	record.Namespace, record.Name, record.UID = at.Namespace, at.Name, uid
	record = r.Records.Begin(ctx, "NodeHealthCheck", record, unhealthySince(&state.facts, o.n))
	records.Carry(req, record)
	return record
}

// recorded is the record that the former requests of the remediation carry; zero if they carry none.
func (o *outcome) recorded() (types.NamespacedName, types.UID) {
	for j := len(o.n.Requests) - 1; j >= 0; j-- {
		if carried, uid := records.CarriedBy(o.n.Requests[j].Object); carried.Name != "" && !o.Requests[j].Over {
			return carried, uid
		}
	}
	return types.NamespacedName{}, ""
}

// unhealthySince tells a remediation of a node from those before and after it, whichever process begins it: it is the check, and the
// first moment since which a condition of the node is as it is. What only the memory of a process knows is left out.
func unhealthySince(facts *Facts, n *Node) string {
	var first time.Time
	signals, reported := facts.Signals(n)
	if !reported && n.Object != nil {
		first = n.Object.CreationTimestamp.Time
	}
	for i := range signals {
		first = health.Earliest(first, signals[i].Since)
	}
	return string(facts.Check.UID) + " " + first.UTC().Format(time.RFC3339)
}

// recordOf is the record of the remediation that o begins: what is known of the node, and what was decided about it and by which numbers.
func recordOf(state *observed, o *outcome) *mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{}
	spec := &record.Spec
	spec.Remediator, spec.Decided = mendv1.RemediatedByRequest, metav1.NewTime(state.facts.Now)
	if o.n.Machine.There() {
		records.OnMachine(record, o.n.Machine.Object)
		spec.Target.ClusterName = "" // the nodes are those of this cluster: no Cluster owns the record
	}
	spec.Target.Node, spec.Target.ControlPlane = records.NodeRef(o.n.Name, o.n.ID()), o.n.ControlPlane()
	records.OnNode(&spec.Target, o.n.Object)
	spec.Requester.Check = &mendv1.RecordRef{
		APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: state.check.Name, UID: string(state.check.UID),
	}
	records.Judged(spec, o.Verdict, state.facts.Now)
	minHealthy, maxUnhealthy := state.facts.Limits()
	spec.Counts = records.CountsOf(o.plan.Population, cmp.Or(maxUnhealthy, minHealthy))
	return record
}
