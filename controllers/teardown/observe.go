package teardown

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// metadata is an object as far as kubemend writes on it.
type metadata = metav1.PartialObjectMetadata

// owned is something on an object that kubemend wrote there.
type owned struct {
	facts
	// on is the object, with its kind; of a node it is in cluster.
	on      *metadata
	cluster client.ObjectKey
	// template is the kind of the template of a check that is claimed.
	template schema.GroupKind
	// machine is the one whose conditions are to be removed, read live.
	machine *clusterv1.Machine
	// cause is why a cluster could not be looked at.
	cause error
}

func (t *owned) String() string {
	name := fmt.Sprintf("%s %s", t.on.Kind, client.ObjectKeyFromObject(t.on))
	if t.cluster.Name != "" {
		return fmt.Sprintf("%s of cluster %s", name, t.cluster)
	}
	return name
}

// observed is everything that one reconcile reads.
type look struct {
	owned []*owned
	// checks are the MachineHealthChecks that there are, whichever controller acts on them, clusters the Clusters.
	checks   map[client.ObjectKey]*clusterv1.MachineHealthCheck
	clusters map[client.ObjectKey]*clusterv1.Cluster
	// atWork are the remediations that a controller of ours ends, by all their UIDs; others are those that are none of ours.
	atWork, others map[types.UID]bool
	// nodeChecks says that NodeHealthChecks are ours.
	nodeChecks bool
}

func (s *look) found(w what, on *metadata) *owned {
	t := &owned{facts: facts{what: w}, on: on}
	if at := on.GetDeletionTimestamp(); at != nil {
		t.deleted = at.Time
	}
	s.owned = append(s.owned, t)
	return t
}

// observe looks past all caches for what kubemend wrote. Only the leader looks at nodes: it is connected to workload clusters.
func (u *Uninstaller) observe(ctx context.Context, leads bool) (*look, error) {
	s := &look{
		checks: map[client.ObjectKey]*clusterv1.MachineHealthCheck{}, clusters: map[client.ObjectKey]*clusterv1.Cluster{},
		atWork: map[types.UID]bool{}, others: map[types.UID]bool{},
	}
	var err error
	if s.nodeChecks, err = u.Serves(ctx, nodeCheckCRD); err != nil {
		return nil, err
	}
	parts := []func(context.Context, *look) error{
		u.observeClusters, u.observeChecks, u.observeMachines, u.observeRequests, u.observeHosts, u.observeLeases,
	}
	for _, part := range parts {
		if err := part(ctx, s); err != nil {
			return nil, err
		}
	}
	if leads {
		u.observeNodes(ctx, s)
	}
	return s, nil
}

func (u *Uninstaller) observeClusters(ctx context.Context, s *look) error {
	list := &clusterv1.ClusterList{}
	if err := u.Live.List(ctx, list, client.InNamespace(u.Namespace)); err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	for i := range list.Items {
		s.clusters[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return nil
}

// watched reports whether an object, or the Cluster that it names, has the label that --watch-filter asks for.
func (u *Uninstaller) watched(s *look, o client.Object) bool {
	name := o.GetLabels()[clusterv1.ClusterNameLabel]
	if check, is := o.(*clusterv1.MachineHealthCheck); is {
		name = check.Spec.ClusterName
	}
	return capi.Covers(u.WatchFilterValue, o, s.clusters[client.ObjectKey{Namespace: o.GetNamespace(), Name: name}])
}

func (u *Uninstaller) observeChecks(ctx context.Context, s *look) error {
	list := &clusterv1.MachineHealthCheckList{}
	if err := u.Live.List(ctx, list, client.InNamespace(u.Namespace)); err != nil {
		return fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	for i := range list.Items {
		check := &list.Items[i]
		s.checks[client.ObjectKeyFromObject(check)] = check
		if check.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim || !u.watched(s, check) {
			continue
		}
		t := s.found(claim, &metadata{TypeMeta: kindOf(checkKind), ObjectMeta: check.ObjectMeta})
		if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
			t.template = remediationrequest.TemplateKind(ref).GroupKind()
		}
	}
	return nil
}

// observeMachines looks for conditions of Machines that only kubemend sets. It reads some Machines at a time: there may be thousands.
func (u *Uninstaller) observeMachines(ctx context.Context, s *look) error {
	next := ""
	for more := true; more; more = next != "" {
		list := &clusterv1.MachineList{}
		if err := u.Live.List(ctx, list, client.InNamespace(u.Namespace), client.Limit(500), client.Continue(next)); err != nil {
			return fmt.Errorf("list Machines: %w", err)
		}
		next = list.Continue
		for i := range list.Items {
			machine := &list.Items[i]
			if capi.HasOwn(machine) && u.watched(s, machine) {
				on := &metadata{TypeMeta: kindOf(machineKind), ObjectMeta: machine.ObjectMeta}
				s.found(machineCondition, on).machine = machine
			}
		}
	}
	return nil
}

func kindOf(kind schema.GroupVersionKind) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
}

// observeRequests reads the objects of every kind that has a ...Template beside it: of no other kind are requests.
//
// Groups of APIs that are not served at this moment are those of other API servers; requests are custom resources.
func (u *Uninstaller) observeRequests(ctx context.Context, s *look) error {
	lists, err := u.Discovery.ServerPreferredResources()
	if _, others := discovery.GroupDiscoveryFailedErrorGroups(err); err != nil && !others {
		return fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	for _, list := range lists {
		kinds, err := remediationrequest.KindsIn(list)
		if err != nil {
			return err
		}
		for _, r := range kinds {
			kind := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind)
			if err := u.observeKind(ctx, s, kind, r.Name+"."+kind.Group); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Uninstaller) observeKind(ctx context.Context, s *look, kind schema.GroupVersionKind, crd string) error {
	served, err := u.Serves(ctx, crd)
	if err != nil {
		return err
	}
	list, err := u.list(ctx, u.Live, kind, "")
	if apierrors.IsForbidden(err) && u.Namespace != "" {
		list, err = u.list(ctx, u.Live, kind, u.Namespace)
	}
	if apierrors.IsForbidden(err) || remediationrequest.Missing(err) {
		return nil // no request of ours can be there
	}
	if err != nil {
		return err
	}
	for i := range list {
		u.observeRequest(s, &list[i], served)
	}
	return nil
}

// list reads the metadata of all objects of a kind.
func (u *Uninstaller) list(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, namespace string) ([]metadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	for i := range list.Items {
		list.Items[i].TypeMeta = kindOf(kind)
	}
	return list.Items, nil
}

func (u *Uninstaller) observeRequest(s *look, req *metadata, served bool) {
	if by := remediationrequest.NodeCheckOf(req); by.Name != "" || by.UID != "" {
		s.found(nodeCheckRequest, req).served = s.nodeChecks
	}
	if u.Namespace != "" && req.Namespace != u.Namespace {
		return
	}
	by, ours := remediationrequest.MadeBy(req)
	if _, labelled := req.Labels[mendv1.MadeByUIDLabel]; ours || labelled {
		check := s.checks[client.ObjectKey{Namespace: req.Namespace, Name: by.Name}]
		if u.watched(s, req) || check != nil && u.watched(s, check) {
			s.found(checkRequest, req).orphaned = check == nil || !check.DeletionTimestamp.IsZero()
		}
	}
	u.observeRemediation(s, req, served)
}

// record is what is read of the memory of a remediation.
type record struct {
	UID    types.UID `json:"uid"`
	Filter string    `json:"filter"`
}

func (u *Uninstaller) observeRemediation(s *look, rem *metadata, served bool) {
	memory, remembers := rem.Annotations[mendv1.PowerCycleAnnotation]
	holds := slices.Contains(rem.Finalizers, mendv1.HostRemediationFinalizer) ||
		served && slices.Contains(rem.Finalizers, infrav1.RemediationFinalizer)
	if !remembers && !holds && rem.Annotations[clusterctlv1.BlockMoveAnnotation] != mendv1.Claim {
		s.others[rem.UID] = !served
		return
	}
	var is record
	_ = json.Unmarshal([]byte(memory), &is) // what cannot be read is ours all the same
	if u.WatchFilterValue != "" && is.Filter != u.WatchFilterValue && !u.watched(s, rem) {
		s.others[rem.UID], s.others[is.UID] = true, true
		return
	}
	s.found(remediation, rem).served = served
	s.atWork[rem.UID], s.atWork[is.UID] = served, served
}

func (u *Uninstaller) observeHosts(ctx context.Context, s *look) error {
	list := &bmov1alpha1.BareMetalHostList{}
	err := u.Live.List(ctx, list, client.InNamespace(u.Namespace))
	if remediationrequest.Missing(err) {
		return nil
	}
	if apierrors.IsForbidden(err) && u.neverHeldHosts(ctx) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list BareMetalHosts: %w", err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		about := &metadata{TypeMeta: kindOf(hostKind), ObjectMeta: h.ObjectMeta}
		for _, uid := range host.AllMarks(h) {
			if !s.others[uid] {
				s.found(hostPower, about)
				break
			}
		}
		if host.MarkedFor(h) != "" && u.watched(s, h) {
			s.found(hostMark, about)
		}
	}
	return nil
}

// neverHeldHosts reports whether kubemend was installed without the kind of remediations by which it holds hosts, where it may not look at hosts. If
// the kind is there, hosts may be off for it, and the rights have to be bound until they have been released.
func (u *Uninstaller) neverHeldHosts(ctx context.Context) bool {
	_, err := u.list(ctx, u.Live, mendv1.GroupVersion.WithKind("HostRemediation"), u.Namespace)
	return remediationrequest.Missing(err)
}

func (u *Uninstaller) observeLeases(ctx context.Context, s *look) error {
	if !s.nodeChecks {
		return nil // a NodeHealthCheck of somebody else's holds them by the same name
	}
	list := &coordinationv1.LeaseList{}
	if err := u.Live.List(ctx, list, client.InNamespace(u.LeaseNamespace)); err != nil {
		return fmt.Errorf("list the leases in %s: %w", u.LeaseNamespace, err)
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), nhcv1.LeaseHolderPrefix) {
			s.found(nodeLease, &metadata{TypeMeta: kindOf(leaseKind), ObjectMeta: lease.ObjectMeta})
		}
	}
	return nil
}

// observeNodes looks at the nodes of all workload clusters that ever had any. One that does not answer holds up no other.
func (u *Uninstaller) observeNodes(ctx context.Context, s *look) {
	failed := map[client.ObjectKey]time.Time{}
	for key, cluster := range s.clusters {
		initialized := meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition)
		if !initialized || !u.watched(s, cluster) {
			continue
		}
		fenced, err := u.fenced(ctx, key)
		if err != nil {
			failed[key] = u.failed[key]
			if failed[key].IsZero() {
				failed[key] = u.Clock.Now()
			}
			t := s.found(unseen, &metadata{TypeMeta: kindOf(clusterKind), ObjectMeta: cluster.ObjectMeta})
			t.failed, t.cause = failed[key], err
		}
		for _, node := range fenced {
			by := types.UID(node.Annotations[fence.FencedByAnnotation])
			if s.others[by] {
				continue // the host may be held off for it: to unfence the node could run its workload twice
			}
			t := s.found(nodeFence, node)
			t.cluster, t.orphaned = key, !s.atWork[by]
		}
	}
	u.failed = failed
	slices.SortStableFunc(s.owned, func(a, b *owned) int { return cmp.Compare(a.String(), b.String()) })
}

// fenced are the nodes of a cluster that bear our mark.
func (u *Uninstaller) fenced(ctx context.Context, cluster client.ObjectKey) ([]*metadata, error) {
	ctx, end := context.WithTimeout(ctx, answerWithin)
	defer end()
	there, err := u.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes, err := u.list(ctx, there, corev1.SchemeGroupVersion.WithKind("Node"), "")
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	var marked []*metadata
	for i := range nodes {
		if _, is := nodes[i].Annotations[fence.FencedByAnnotation]; is {
			marked = append(marked, &nodes[i])
		}
	}
	return marked, nil
}
