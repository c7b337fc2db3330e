package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

func (r *Reconciler) observeControlPlane(ctx context.Context, state *observed) {
	if len(state.pending) > 0 || !nodes.NeedsControlPlane(state.facts) {
		return
	}
	c := &nodes.ControlPlane{}
	state.facts.ControlPlane = c
	if orphans := r.searchedFor(); orphans != searched { // the end of the search enqueues the check
		c.Unread, c.Searching = nodes.OrphansUnsearched, orphans == searching
		return
	}
	if state.lagging { // nothing may enqueue the check when it is shown
		c.Unread, c.Searching = nodes.WritesUnread, true
		state.recheck(state.facts.Now.Add(time.Second))
		return
	}
	namespaces, err := r.readAll(ctx, state)
	if err == nil {
		err = r.observeMembers(ctx, state, namespaces)
	}
	if err != nil {
		c.Unread = err.Error()
		state.trouble = append(state.trouble, fmt.Errorf("read the control plane: %w", err))
		return
	}
	r.observeServers(ctx, state)
	if c.Etcd, err = r.openshift().Etcd(ctx); err != nil {
		state.trouble = append(state.trouble, err)
	}
}

// RBAC for the identity leases of API servers, which are where Kubernetes has them.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,roleName=kubemend-api-servers,verbs=list

// observeServers reads when the API servers renewed their identity leases. Where that cannot be read the nodes decide alone.
func (r *Reconciler) observeServers(ctx context.Context, state *observed) {
	c := state.facts.ControlPlane
	if controlplane.Majority(c.Members(state.facts.Now)) == 0 {
		return
	}
	renewed, err := workload.APIServers(ctx, r.Live)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of API servers; their nodes alone say which are alive", "reason", err.Error())
		return
	}
	c.Renewed = renewed
}

// readAll makes sure that the requests of all checks were read, not only those of the kinds that this check names: another one, or one that is
// gone, may be remediating a node of the control plane. It returns the namespaces in which checks make requests, or made them.
func (r *Reconciler) readAll(ctx context.Context, state *observed) (map[string]bool, error) {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	for _, kind := range slices.Concat(r.Kinds.Unread(), r.Kinds.InUse()) { // also those that were found since the requests were read
		if isRequest(kind) {
			state.awaits(kind, state.requests.read[kind.GroupKind()])
		}
	}
	namespaces := map[string]bool{}
	for i := range list.Items {
		maps.Copy(namespaces, namespacesOf(&list.Items[i]))
		for _, kind := range kindsOf(&list.Items[i]) {
			ready, err := r.Kinds.Readable(ctx, kind)
			if remediationrequest.Missing(err) {
				continue // then there are none
			}
			if err != nil {
				return nil, fmt.Errorf("read the requests of NodeHealthCheck %s: %w", list.Items[i].Name, err)
			}
			state.awaits(kind, ready && state.requests.read[kind.GroupKind()])
		}
	}
	return namespaces, nil
}

// memberRequest is obj as a request about a member of the control plane, named name unless it is about the Machine of one; nil if it is
// about none.
func memberRequest(
	obj *unstructured.Unstructured, name string, machines map[types.UID]*clusterv1.Machine, there map[string]*corev1.Node,
) *nodes.MemberRequest {
	_, member := obj.GetLabels()[nhcv1.ControlPlaneLabel]
	for _, owner := range remediationrequest.OwningMachines(obj) {
		if machine := machines[owner.UID]; machine != nil && machine.Namespace == obj.GetNamespace() && machine.Status.NodeRef.Name != "" {
			name, member = machine.Status.NodeRef.Name, true
		}
	}
	name = namedAfter(obj, name, there)
	node := there[name]
	if !member && !controlplane.IsMember(node) || name == "" { // a remediator may have taken the label off
		return nil
	}
	return &nodes.MemberRequest{Request: nodes.Request{Object: obj}, Name: name, Node: node}
}

// observeMembers finds out which members of the control plane are being remediated, replaced or joining, and by what: requests of any
// check, whatever its kind, and Machines of the same cluster.
//
// A request about a Machine is about a member if that very Machine is one's, or if it is where a NodeHealthCheck has its templates and
// names the node: its name is that of a Machine, of which any cluster may have one. Requests of other kinds count wherever they are:
// their remediators go by the node that they name, or are named like, in all namespaces.
func (r *Reconciler) observeMembers(ctx context.Context, state *observed, templates map[string]bool) error {
	list := &corev1.NodeList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	c, there := state.facts.ControlPlane, make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		there[node.Name] = node
		if controlplane.IsMember(node) {
			c.Nodes = append(c.Nodes, state.member(node))
		}
	}
	machines, err := r.memberMachines(ctx, state)
	if err != nil {
		return err
	}
	var errs []error
	add := func(obj *unstructured.Unstructured, name string, gone time.Time) {
		request := memberRequest(obj, name, machines, there)
		if request == nil {
			return
		}
		request.Gone = gone
		if request.Node == nil && obj.GetDeletionTimestamp() != nil {
			there, err := r.ownerThere(ctx, obj)
			request.MachineThere, errs = there, append(errs, err)
		}
		c.Requests = append(c.Requests, *request)
	}
	for _, obj := range state.requests.other {
		add(obj, nodeMeantBy(obj, templates), obj.GetCreationTimestamp().Time)
	}
	for i := range state.facts.Nodes {
		for n, j := &state.facts.Nodes[i], 0; j < len(n.Requests); j++ {
			add(n.Requests[j].Object, n.Name, n.GoneSince(state.facts.Now))
		}
	}
	return errors.Join(errs...)
}

func (state *observed) member(node *corev1.Node) controlplane.Member {
	member := controlplane.Member{Name: node.Name, Node: controlplane.Silent, Etcd: controlplane.EtcdOf(node)}
	member.Away = controlplane.InMaintenance(node) || leaseFacts(state.leases[leaseName(node.Name)], node, state.check).Held(state.facts.Now)
	if nodes.Ready(node) {
		member.Node = controlplane.Alive
	}
	return member
}

// uniqueSuffix ends a name of a request where there may be several for one node. (UniqueName; metadata.generateName)
var uniqueSuffix = regexp.MustCompile(`-([bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8})$`)

// namedAfter is the node of a request that is called name: of one without its annotation the node that it is named after, if that is
// there. A remediator, or a user, may have taken the annotation off. Taken for that of a node that is gone, the request would be
// forgotten sooner than its node has to be waited for.
func namedAfter(obj *unstructured.Unstructured, name string, there map[string]*corev1.Node) string {
	after := uniqueSuffix.ReplaceAllString(name, "")
	if there[name] == nil && there[after] != nil && nodeOf(obj) == "" {
		return after
	}
	return name
}

// nodeMeantBy is the node that obj is about, as far as that counts; templates are the namespaces of all checks' templates.
func nodeMeantBy(obj *unstructured.Unstructured, templates map[string]bool) string {
	switch {
	case !nodes.OfMachines(obj.GroupVersionKind()):
		return nodeOfObject(obj)
	case templates[obj.GetNamespace()]:
		return nodeOf(obj)
	}
	return ""
}

// confirmTurn makes sure that no other manager made a request for the control plane a moment ago which state does not show.
func (r *Reconciler) confirmTurn(ctx context.Context, state *observed) (doubt string, err error) {
	for _, kind := range r.requestKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.Live.List(ctx, list, client.HasLabels{nhcv1.ControlPlaneLabel})
		if remediationrequest.Missing(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("list %s of the control plane: %w", kind.Kind, err)
		}
		for i := range list.Items {
			request := &list.Items[i]
			seen := state.requests.byName[keyOf(kind.GroupKind(), request.Namespace, request.Name)]
			if seen == nil || seen.GetUID() != request.UID {
				return "there is " + kind.Kind + " " + client.ObjectKeyFromObject(request).String() + " for a node of the control plane", nil
			}
		}
	}
	return "", nil
}
