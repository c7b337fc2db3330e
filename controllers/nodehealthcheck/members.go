package nodehealthcheck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// members are the nodes of the control plane.
type members struct {
	plane controlplane.Plane
	// unknown is why it could not be looked at; empty if it was. brief says that it will be known in a moment, and that nobody needs to hear of it.
	unknown string
	brief   bool
}

// observeMembers looks at the control plane if one of its nodes waits to be remediated, and finds out whose turn it is.
func (r *Reconciler) observeMembers(ctx context.Context, w *observed) {
	due := w.dueMembers()
	if len(due) == 0 {
		return
	}
	r.observeOthers(ctx, w)
	w.first, w.etcd = w.members.goes(due, w.now, r.observeEtcd(ctx, w))
}

// goes is the one of those that are due whose turn it is, and why OpenShift's etcd forbids that it is disrupted; empty if it does not. One that etcd
// forbids keeps nobody waiting that it does not: what forbids the one may be the loss of the other.
func (m members) goes(due []*target, now time.Time, etcd func(node string) string) (first *target, why string) {
	first = m.first(due, now)
	why = etcd(first.name)
	for next, rest := first, slices.Clone(due); m.forbids(next.name, now) == ""; next = m.first(rest, now) {
		if etcd(next.name) == "" {
			return next, ""
		}
		if rest = slices.DeleteFunc(rest, func(t *target) bool { return t == next }); len(rest) == 0 {
			break
		}
	}
	return first, why
}

// observeOthers finds out what there is of the control plane.
func (r *Reconciler) observeOthers(ctx context.Context, w *observed) {
	if w.members.unknown, w.members.brief = r.searching(); w.members.unknown != "" {
		return // its end wakes us
	}
	list := &corev1.NodeList{}
	err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = r.readAll(ctx, w)
	}
	var others others
	if err == nil {
		others, err = r.otherMembers(ctx, w, list.Items)
	}
	if err != nil {
		w.members.unknown = err.Error()
		w.trouble = append(w.trouble, fmt.Errorf("look at the control plane: %w", err))
		return
	}
	w.members = membersOf(list.Items, others)
	r.addServers(ctx, w)
}

// RBAC for the identity leases of API servers, which are where Kubernetes has them.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,roleName=kubemend-api-servers,verbs=list

// addServers adds what the identity leases of the API servers say, where there is a majority to protect. Where they cannot be read the nodes
// decide alone.
func (r *Reconciler) addServers(ctx context.Context, w *observed) {
	all := w.members.plane.Members
	if controlplane.Majority(len(all)) == 0 {
		return
	}
	renewed, err := workload.APIServers(ctx, r.Live)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of API servers; their nodes alone say which are alive", "reason", err.Error())
		return
	}
	signs := controlplane.Servers(renewed, w.now)
	for i := range all {
		all[i].APIServer = signs[all[i].Name]
	}
}

// dueMembers are the nodes of the control plane that nothing but the others keeps from being remediated now. One whose request was refused
// lately lets the others go first.
func (w *observed) dueMembers() []*target {
	var due, refused []*target
	for i := range w.targets {
		switch t := &w.targets[i]; {
		case !t.startable() || !controlPlane(t.node) || w.skips(t) != nil:
		case t.refused:
			refused = append(refused, t)
		default:
			due = append(due, t)
		}
	}
	if len(due) == 0 {
		return refused
	}
	return due
}

// first is the one of those that are due whose turn it is. While nobody knows who is alive, it is that which has been due for longest.
func (m members) first(due []*target, now time.Time) *target {
	plane := controlplane.Plane{API: m.plane.API, Members: slices.Clone(m.plane.Members)}
	since := func(t *target) time.Time { return t.verdict.OverdueSince(now) }
	for i := range plane.Members {
		for _, t := range due {
			if t.name == plane.Members[i].Name {
				plane.Members[i].Due, plane.Members[i].Remediation = since(t), ""
			}
		}
	}
	first := plane.First(now)
	if i := slices.IndexFunc(due, func(t *target) bool { return t.name == first }); i >= 0 {
		return due[i]
	}
	return slices.MinFunc(due, func(a, b *target) int { return since(a).Compare(since(b)) })
}

// readAll makes sure that the requests of all checks were read, not only those of the kinds that this check names: another one may be
// remediating a node of the control plane, and nobody has looked at its kinds since the manager was started; or one that is gone.
func (r *Reconciler) readAll(ctx context.Context, w *observed) error {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	for _, kind := range slices.Concat(r.Kinds.Unread(), r.Kinds.InUse()) { // also those that were found since the requests were read
		if isRequest(kind) {
			w.awaits(kind, w.requests.read[kind.GroupKind()])
		}
	}
	for i := range list.Items {
		for _, kind := range kindsOf(&list.Items[i]) {
			ready, err := r.Kinds.Ready(ctx, kind)
			if remediationrequest.Missing(err) {
				continue // then there are none
			}
			if err != nil {
				return fmt.Errorf("read the requests of NodeHealthCheck %s: %w", list.Items[i].Name, err)
			}
			w.awaits(kind, ready && w.requests.read[kind.GroupKind()])
		}
	}
	return nil
}

// kindsOf are the kinds of requests that a check makes, or has made.
func kindsOf(check *nhcv1.NodeHealthCheck) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, m := range remediesOf(&check.Spec) {
		if m.kind.Kind != "" {
			kinds = append(kinds, m.kind)
		}
	}
	for i := range check.Status.UnhealthyNodes {
		for _, was := range check.Status.UnhealthyNodes[i].Remediations {
			kinds = append(kinds, schema.FromAPIVersionAndKind(was.Resource.APIVersion, was.Resource.Kind))
		}
	}
	return kinds
}

// nameKinds makes known which kinds of templates and requests a check names, or has requests of; nil for one that is gone.
func (r *Reconciler) nameKinds(ctx context.Context, name string, check *nhcv1.NodeHealthCheck) error {
	if r.Watches == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	if check != nil {
		kinds = kindsOf(check)
		for _, m := range remediesOf(&check.Spec) {
			if _, err := remediationrequest.NodeKindOf(m.template); err == nil {
				kinds = append(kinds, m.template)
			}
		}
	}
	ended := r.Watches.Ended()
	err := r.Watches.Named(ctx, client.ObjectKey{Name: name}, kinds...)
	if r.Watches.Ended() != ended {
		r.wakeAll() // others may wait for a request to be gone, and the event of that came too late
	}
	return err
}

// others is what there is of the members of the control plane besides their nodes.
type others struct {
	// busy are those that are being remediated, by whomever, and how that is seen; by their nodes' names.
	busy map[string]string
	// away are those of whose remediation the node is gone, and since when that is known, or could be: whoever remediates it replaces it, or has
	// it come back.
	away map[string]replacement
	// replaced are those whose Machine is being deleted, or was handed to its owner, and since when.
	replaced map[string]replacement
	// joining are the Machines that have no node yet.
	joining []string
}

type replacement struct {
	by    string
	since time.Time
}

// membersOf makes members of nodes. The node of a request may be gone, and the request not over: it is busy all the same. Whoever asks is
// answered by an API server of this very cluster.
func membersOf(nodes []corev1.Node, of others) members {
	plane := controlplane.Plane{API: controlplane.Answers}
	known := map[string]bool{}
	for i := range nodes {
		node := &nodes[i]
		if !controlPlane(node) {
			continue
		}
		is := controlplane.Member{Name: node.Name, Node: controlplane.Silent, Remediation: of.busy[node.Name]}
		if nodeReady(node) {
			is.Node = controlplane.Alive
		}
		is.ReplacedBy, is.ReplacedSince = of.replaced[node.Name].by, of.replaced[node.Name].since
		plane.Members, known[node.Name] = append(plane.Members, is), true
	}
	for _, name := range slices.Sorted(maps.Keys(of.busy)) {
		if !known[name] {
			plane.Members, known[name] = append(plane.Members, controlplane.Member{Name: name, Joining: true, Remediation: of.busy[name]}), true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of.away)) {
		if is := of.away[name]; !known[name] {
			gone := controlplane.Member{Name: name, Joining: true, ReplacedBy: is.by, ReplacedSince: is.since}
			plane.Members, known[name] = append(plane.Members, gone), true
		}
	}
	for _, name := range of.joining {
		if !known[name] { // nodes are named after their Machines as a rule, and may be there before these know
			plane.Members = append(plane.Members, controlplane.Member{Name: name, Joining: true})
		}
	}
	return members{plane: plane}
}

// forbids says why the node called name of the control plane must not be disrupted; empty if it may be.
func (m members) forbids(name string, now time.Time) string {
	if why := m.against(name, now); len(why) > 0 {
		return why[0]
	}
	return ""
}

// against is all that forbids it but whose turn it is. What is done to the node already is not in its own way.
func (m members) against(name string, now time.Time) []string {
	if m.unknown != "" {
		return []string{"the control plane could not be looked at: " + m.unknown}
	}
	plane := controlplane.Plane{API: m.plane.API, Members: slices.Clone(m.plane.Members)}
	for i := range plane.Members {
		if plane.Members[i].Name == name {
			plane.Members[i].Remediation = ""
		}
	}
	var why []string
	for _, o := range plane.Against(name, now) {
		why = append(why, o.String())
	}
	return why
}
