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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

func (r *Reconciler) observeControlPlane(ctx context.Context, state *observed) {
	mayBegin := func(n Node) bool { return n.controlPlane() && state.facts.Concerns(&n) && n.mayBegin() }
	if len(state.facts.Awaited) > 0 || !slices.ContainsFunc(state.facts.Nodes, mayBegin) {
		return
	}
	c := &ControlPlane{}
	state.facts.ControlPlane = c
	if !r.orphansKnown() { // when the search ends it enqueues the check
		c.Unread = "orphaned requests have not been searched for"
		return
	}
	namespaces, err := r.readAll(ctx, state)
	if err == nil {
		err = r.observeMembers(ctx, state, namespaces)
	}
	if err != nil {
		c.Unread, c.Members = err.Error(), nil
		state.facts.Trouble = append(state.facts.Trouble, fmt.Errorf("read the control plane: %w", err))
		return
	}
	r.observeServers(ctx, state)
	if c.Etcd, err = r.observeEtcd(ctx); err != nil {
		state.facts.Trouble = append(state.facts.Trouble, err)
	}
}

// RBAC for the identity leases of API servers.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,roleName=kubemend-api-servers,verbs=list

// observeServers reads when the API servers renewed their identity leases. If this fails, only the nodes say which members are alive.
func (r *Reconciler) observeServers(ctx context.Context, state *observed) {
	c := state.facts.ControlPlane
	if controlplane.Majority(len(c.Members)) == 0 {
		return
	}
	renewed, err := workload.APIServers(ctx, r.Live)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of API servers; their nodes alone say which are alive", "reason", err.Error())
		return
	}
	signs := controlplane.Servers(renewed, state.facts.Now)
	for i := range c.Members {
		c.Members[i].APIServer = signs[c.Members[i].Name]
	}
}

// readAll makes sure that the requests of all checks were read, not only of the kinds that this check names, because another check, or a
// deleted one, may be remediating a control-plane node. It returns the namespaces of the templates and requests of all checks.
func (r *Reconciler) readAll(ctx context.Context, state *observed) (map[string]bool, error) {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	namespaces := map[string]bool{}
	for i := range list.Items {
		maps.Copy(namespaces, namespacesOf(&list.Items[i]))
		for _, kind := range kindsOf(&list.Items[i]) {
			if err := r.await(ctx, state, kind); err != nil {
				return nil, fmt.Errorf("read the requests of NodeHealthCheck %s: %w", list.Items[i].Name, err)
			}
		}
	}
	for _, kind := range slices.Concat(r.Kinds.Unread(), r.Kinds.InUse()) { // also kinds that were found after the requests were read
		if isRequest(kind) {
			state.awaits(kind, state.read[kind.GroupKind()])
		}
	}
	return namespaces, nil
}

// memberOf returns the control-plane member that the request obj is about; empty if it is about none. If a member's Machine owns obj, it is
// that member, else the node called name.
func memberOf(
	obj *unstructured.Unstructured, name string, machines map[types.UID]*clusterv1.Machine, there map[string]*corev1.Node,
) string {
	_, member := obj.GetLabels()[nhcv1.ControlPlaneLabel]
	for _, owner := range remediationrequest.OwningMachines(obj) {
		if machine := machines[owner.UID]; machine != nil && machine.Namespace == obj.GetNamespace() && machine.Status.NodeRef.Name != "" {
			name, member = machine.Status.NodeRef.Name, true
		}
	}
	if name = namedAfter(obj, name, there); !member && !controlplane.IsMember(there[name]) { // a remediator may have removed the label
		return ""
	}
	return name
}

// observeMembers finds out which members of the control plane are being remediated, replaced or joining, from the requests of all checks
// and the Machines of the cluster.
//
// A request about a Machine counts if a member's Machine owns it, or if it is in a namespace of a NodeHealthCheck's templates and its
// annotation names the node. Its own name is not enough, because Machines of other clusters may have the same name. Requests of other
// kinds count in all namespaces, because their remediators find the node by annotation or name in all namespaces.
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
			c.Members = append(c.Members, state.member(node))
		}
	}
	machines, err := r.memberMachines(ctx, state)
	if err != nil {
		return err
	}
	var errs []error
	add := func(obj *unstructured.Unstructured, name string, gone time.Time) {
		if name = memberOf(obj, name, machines, there); name == "" {
			return
		}
		node, request := there[name], Request{Object: obj}
		if node == nil && obj.GetDeletionTimestamp() != nil {
			there, err := r.ownerThere(ctx, obj)
			request.MachineThere, errs = there, append(errs, err)
		}
		c.addRequest(&request, name, node, gone, state.facts.Now)
	}
	for _, obj := range state.others {
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
	member.Away = place.InMaintenance(node) || state.facts.leaseOn(node, state.leases[leaseName(node.Name)]).held()
	if health.Ready(node) {
		member.Node = controlplane.Alive
	}
	return member
}

// uniqueSuffix is the end of a request's name if several requests for one node are possible. (UniqueName; metadata.generateName)
var uniqueSuffix = regexp.MustCompile(`-([bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8})$`)

// namedAfter returns the node of a request called name. If a remediator or a user has removed the annotation with the node, and the name
// without its suffix is that of an existing node, it is that node. Otherwise the request would seem to be about a node that is gone, and
// would stop blocking other members too early.
func namedAfter(obj *unstructured.Unstructured, name string, there map[string]*corev1.Node) string {
	after := uniqueSuffix.ReplaceAllString(name, "")
	if there[name] == nil && there[after] != nil && nodeOf(obj) == "" {
		return after
	}
	return name
}

// nodeMeantBy returns the node that the request obj is about (see observeMembers). templates has the namespaces of all templates.
func nodeMeantBy(obj *unstructured.Unstructured, templates map[string]bool) string {
	switch {
	case !OfMachines(obj.GroupVersionKind()):
		return nodeOfObject(obj)
	case templates[obj.GetNamespace()]:
		return nodeOf(obj)
	}
	return ""
}

// confirmTurn checks with live reads that no other manager has just created a request for the control plane that state does not show.
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
			seen := state.byName[objectKey{kind.GroupKind(), request.Namespace, request.Name}]
			if seen == nil || seen.GetUID() != request.UID {
				return "there is " + kind.Kind + " " + client.ObjectKeyFromObject(request).String() +
					" for a node of the control plane", nil
			}
		}
	}
	return "", nil
}

// observeMachines reads the Machines of the nodes that may be remediated, and finds the requests that already have the name of a new one.
func (r *Reconciler) observeMachines(ctx context.Context, state *observed) {
	for i := range state.facts.Nodes {
		n := &state.facts.Nodes[i]
		if !n.exists() {
			r.observeOwners(ctx, state, n)
			continue
		}
		if !state.facts.Concerns(n) {
			continue
		}
		n.Machine = &Machine{}
		if err := r.observeMachine(ctx, n.Object, n.Machine, state.facts.Now); err != nil {
			state.facts.Trouble = append(state.facts.Trouble, err)
			n.Machine.Unread = true
		}
		n.Named = make([]*unstructured.Unstructured, len(state.facts.Templates))
		for j := range state.facts.Templates {
			if t := &state.facts.Templates[j]; t.Object != nil {
				n.Named[j] = state.byName[objectKey{t.Request.GroupKind(), t.Namespace, nameFor(state.check, t, n)}]
			}
		}
	}
}

// observeOwners sets MachineThere for the requests of a node that is gone.
func (r *Reconciler) observeOwners(ctx context.Context, state *observed, n *Node) {
	for j := range n.Requests {
		there, err := r.ownerThere(ctx, n.Requests[j].Object)
		if err != nil {
			state.facts.Trouble = append(state.facts.Trouble, err)
		}
		n.Requests[j].MachineThere = there || err != nil // if unknown, keep the request
	}
}

// ownerThere reports whether the Machine of Cluster API that owns a request exists and is not being deleted.
func (r *Reconciler) ownerThere(ctx context.Context, req *unstructured.Unstructured) (bool, error) {
	owners, machine := remediationrequest.OwningMachines(req), &clusterv1.Machine{}
	if len(owners) == 0 {
		return false, nil
	}
	key := client.ObjectKey{Namespace: req.GetNamespace(), Name: owners[0].Name}
	err := r.Management.Get(ctx, key, machine, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read machine %s of %s %s: %w", key.Name, req.GetKind(), req.GetName(), err)
	}
	return machine.UID == owners[0].UID && machine.DeletionTimestamp.IsZero(), nil // without a Machine its UID is empty
}

// observeMachine reads the Machine that a node's annotations name, its Cluster and its MachineHealthCheck. The Machine must name the node
// too, because two clusters may use the same names.
func (r *Reconciler) observeMachine(ctx context.Context, node *corev1.Node, m *Machine, now time.Time) error {
	annotations := node.Annotations
	key := client.ObjectKey{Namespace: annotations[clusterv1.ClusterNamespaceAnnotation], Name: annotations[clusterv1.MachineAnnotation]}
	if key.Name == "" || key.Namespace == "" {
		return nil
	}
	machine := &clusterv1.Machine{}
	if err := r.Management.Get(ctx, key, machine, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read machine %s of node %s: %w", key, node.Name, err)
	}
	if machine.Status.NodeRef.Name != node.Name || !health.IsNodeOf(machine, node) {
		return nil
	}
	m.Object = machine
	m.Serviced = r.serviced(ctx, m, now)
	cluster, clusterKey := &clusterv1.Cluster{}, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	err := r.Management.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		m.Cluster = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read cluster %s: %w", clusterKey, err)
	}
	checks := &clusterv1.MachineHealthCheckList{}
	if err := r.Management.List(ctx, checks, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the MachineHealthChecks in %s: %w", machine.Namespace, err)
	}
	for i := range checks.Items {
		if check := &checks.Items[i]; m.WatchedBy == "" && capi.Judges(check, machine) {
			m.WatchedBy = check.Name
		}
	}
	return nil
}

// serviced reports whether the firmware of the host of m is being updated. It reads the host only if the in-place update alone no longer
// blocks the remediation.
func (r *Reconciler) serviced(ctx context.Context, m *Machine, now time.Time) bool {
	if _, holds := m.updatingUntil(now); holds || health.Updating(m.Object) == nil {
		return false
	}
	host := r.Records.HostOf(ctx, m.Object)
	return host != nil && host.Serviced
}

// memberMachines adds the control-plane Machines to the members, and returns the Machines by UID.
func (r *Reconciler) memberMachines(ctx context.Context, state *observed) (map[types.UID]*clusterv1.Machine, error) {
	known := slices.IndexFunc(state.facts.Nodes, func(n Node) bool { return n.Machine.there() })
	if known < 0 {
		return nil, nil
	}
	m := state.facts.Nodes[known].Machine.Object // all nodes belong to the same cluster
	list := &clusterv1.MachineList{}
	if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: m.Spec.ClusterName},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", m.Spec.ClusterName, err)
	}
	members := make(map[types.UID]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		state.facts.ControlPlane.addMachine(&list.Items[i])
		members[list.Items[i].UID] = &list.Items[i]
	}
	return members, nil
}
