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

const clingingFor = remediationrequest.ClingingFor

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
		case listed.ConditionsHealthyTimestamp != nil: // the node was healthy since, so its next failure starts with the first step
		default:
			n.Gone = append(n.Gone, entry)
		}
	}
	return nil
}

// listAll calls sort for each request of the kinds in use. It returns ErrStale if the cache does not show all own writes of the kinds that
// the check uses. Other kinds matter only for the control plane, for which confirmTurn reads them live.
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
		if own && r.Kinds.Polled(kind) { // no change enqueues the check
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
			return cmp.Or(a.started().Compare(b.started()), cmp.Compare(a.Step, b.Step),
				cmp.Compare(a.Object.GetName(), b.Object.GetName()))
		})
	}
	return nil
}

// objectKey identifies an object.
type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
}

// list returns the objects of a kind. They are shared with the cache (read only), or come from the API server if the kind is polled.
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

// listRequests lists the requests of a kind. Listed is false, without an error, if a polled kind is gone or may not be listed any more,
// so that this does not block other checks.
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

// upToDate returns consistency.ErrStale if list, all requests of a kind, does not show all writes of this process.
func (r *Reconciler) upToDate(ctx context.Context, kind schema.GroupVersionKind, list []unstructured.Unstructured) error {
	writes := r.memory.written.Of(kind.GroupKind())
	for i := range list {
		if writes.Stale(&list[i]) {
			return consistency.ErrStale
		}
	}
	return writes.Unseen(ctx, r.Live, kind, "")
}

// isRequest reports whether kind is a kind of requests, and not of templates or of OpenShift.
func isRequest(kind schema.GroupVersionKind) bool {
	return !isTemplate(kind.Kind) && kind.Group != ConfigGroup && kind.Group != machineGroup
}

// listed is a request in the check's status, with its node. Seen says that the request exists.
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

// remediations returns the requests in the status of a check, each with its node.
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

// sort adds the request obj to the node that it is about: to Requests if this check created it, else to Orphaned or Others. A request about
// a Machine counts only in a namespace of the check's templates, because Machines of other clusters may have the same name.
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

// stepOfRequest returns the step whose template the annotation of obj, or else the check's status, names. If neither does, it returns the
// only step with the kind of obj. It returns -1 if there is none.
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

// stepOf returns the first step with requests of a kind in a namespace and a template called name, or any name if that is empty; else -1.
func (state *observed) stepOf(kind schema.GroupKind, namespace, name string) int {
	return slices.IndexFunc(state.facts.Templates, func(t Template) bool {
		return t.Request.GroupKind() == kind && t.Namespace == namespace && (name == "" || name == t.Name)
	})
}

func nodeOf(obj *unstructured.Unstructured) string {
	return obj.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

// makerOf returns the NodeHealthCheck that created obj, from the labels and annotations of obj and its owner reference. The owner reference
// alone is not enough: the garbage collector removes it when the check is deleted and a Machine owns obj too.
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

// within reports whether obj is cluster-scoped or in a namespace of the check's templates and requests. In other namespaces, tenants could
// create objects that seem to belong to the check.
func (state *observed) within(obj *unstructured.Unstructured) bool {
	namespace := obj.GetNamespace()
	return namespace == "" || state.namespaces[namespace]
}

// namespacesOf returns the namespaces of the templates in the spec of check and of the requests in its status.
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

// made reports whether this check created obj, and not a deleted check of the same name. If obj has lost the UID of its maker, the check's
// status decides.
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

// hostWithin limits the read of the host for a record. Together with records.AheadWithin it has to be less than begin.Within. Otherwise the
// remediation of a control-plane node could not begin while these reads and writes get no answer.
const hostWithin = begin.Within / 5

// recorded makes sure that there is a record for the remediation of req, adds it to req and returns it. All requests of an escalation
// belong to one record, in the namespace of the first request. A cluster-scoped request gets no record.
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
		records.OnHost(&record.Spec.Target, r.Records.HostOf(within, o.Machine.Object))
		done()
	}
	record.Namespace, record.Name, record.UID = at.Namespace, at.Name, uid
	record = r.Records.Begin(ctx, "NodeHealthCheck", record, unhealthySince(&state.facts, o.Node))
	records.Carry(req, record)
	return record
}

// recorded returns the record of the remediation from its earlier requests; zero if there is none.
func (o *outcome) recorded() (types.NamespacedName, types.UID) {
	for j := len(o.Requests) - 1; j >= 0; j-- {
		if carried, uid := records.CarriedBy(o.Requests[j].Object); carried.Name != "" && !o.Requests[j].Over {
			return carried, uid
		}
	}
	return types.NamespacedName{}, ""
}

// unhealthySince identifies one remediation of a node by the check and the earliest lastTransitionTime of a matching condition. It uses
// nothing from the memory, so each manager gets the same value.
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

// recordOf returns the record of the remediation that o begins: the node, the verdict on it, and the numbers behind the decision.
func recordOf(state *observed, o *outcome) *mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{}
	spec := &record.Spec
	spec.Remediator, spec.Decided = mendv1.RemediatedByRequest, metav1.NewTime(state.facts.Now)
	if o.Machine.there() {
		records.OnMachine(record, o.Machine.Object)
		spec.Target.ClusterName = "" // the nodes belong to the manager's own cluster, so no Cluster owns the record
	}
	spec.Target.Node, spec.Target.ControlPlane = records.NodeRef(o.Name, o.ID()), o.controlPlane()
	records.OnNode(&spec.Target, o.Object)
	spec.Requester.Check = &mendv1.RecordRef{
		APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: state.check.Name, UID: string(state.check.UID),
	}
	records.Judged(spec, o.Verdict, state.facts.Now)
	minHealthy, maxUnhealthy := state.facts.Limits()
	spec.Counts = records.CountsOf(o.plan.Population, cmp.Or(maxUnhealthy, minHealthy))
	return record
}
