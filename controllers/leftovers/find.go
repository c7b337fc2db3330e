package leftovers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	// patience is how long a teardown waits for a workload cluster that does not answer, and for a remediator that does not release a
	// request that is being deleted. Power cycles have deadlines of their own.
	patience = remediationrequest.ClingingFor
	// nodeCheckCRD is the CRD of NodeHealthChecks. If kubemend serves it, the requests of these checks and the leases on nodes are
	// kubemend's.
	nodeCheckCRD = "nodehealthchecks.remediation.medik8s.io"
	// coreGoesOn is why a check, or a request of a check, stays for Cluster API core.
	coreGoesOn = "Cluster API core acts on it from now on"
)

var (
	leaseKind   = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	checkKind   = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
)

// look has what one reconcile of a teardown has read and found.
type look struct {
	*Teardown
	now      time.Time
	left     []*leftover
	checks   map[client.ObjectKey]*clusterv1.MachineHealthCheck // all, whichever controller acts on them
	clusters map[client.ObjectKey]*clusterv1.Cluster
	// atWork has the UIDs of remediations that a controller of this manager will end, also the UIDs that they had before a move.
	atWork map[types.UID]bool
	// others has the UIDs of remediations that belong to another controller or to another manager of kubemend.
	others map[types.UID]bool
	// nodeChecks says that kubemend serves NodeHealthChecks.
	nodeChecks bool
}

func (s *look) found(on *metadata, do action, why string, marks ...string) *leftover {
	l := &leftover{on: on, do: do, why: why, marks: marks}
	s.left = append(s.left, l)
	return l
}

// find reads from the API server what kubemend wrote. Only the leader reads nodes, because only the leader is connected to workload
// clusters.
func (t *Teardown) find(ctx context.Context, leads bool) ([]*leftover, error) {
	s := &look{
		Teardown: t, now: t.Clock.Now(), atWork: map[types.UID]bool{}, others: map[types.UID]bool{},
		checks: map[client.ObjectKey]*clusterv1.MachineHealthCheck{}, clusters: map[client.ObjectKey]*clusterv1.Cluster{},
	}
	var err error
	if s.nodeChecks, err = t.Serves(ctx, nodeCheckCRD); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{
		s.findClusters, s.findClaims, s.findConditions, s.findRequests, s.findHosts, s.findLeases,
	} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	if leads {
		s.findFences(ctx)
	}
	return s.left, nil
}

func (s *look) findClusters(ctx context.Context) error {
	list := &clusterv1.ClusterList{}
	if err := s.Live.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	for i := range list.Items {
		s.clusters[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return nil
}

// watched reports whether --watch-filter selects an object, by its own label or by the label of its Cluster.
func (s *look) watched(obj client.Object) bool {
	name := obj.GetLabels()[clusterv1.ClusterNameLabel]
	if check, ok := obj.(*clusterv1.MachineHealthCheck); ok {
		name = check.Spec.ClusterName
	}
	return capi.Covers(s.WatchFilterValue, obj, s.clusters[client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}])
}

func (s *look) findClaims(ctx context.Context) error {
	list := &clusterv1.MachineHealthCheckList{}
	if err := s.Live.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	for i := range list.Items {
		check := &list.Items[i]
		s.checks[client.ObjectKeyFromObject(check)] = check
		if check.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim || !s.watched(check) {
			continue
		}
		l := s.found(as(checkKind, check.ObjectMeta), release, coreGoesOn, clusterv1.PausedAnnotation, mendv1.ClaimedByAnnotation)
		if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
			l.template = remediationrequest.TemplateKind(ref).GroupKind()
		}
	}
	return nil
}

// findConditions finds conditions of Machines that only kubemend sets. It lists in pages, because there may be thousands of Machines.
func (s *look) findConditions(ctx context.Context) error {
	next := ""
	for more := true; more; more = next != "" {
		list := &clusterv1.MachineList{}
		if err := s.Live.List(ctx, list, client.InNamespace(s.Namespace), client.Limit(500), client.Continue(next)); err != nil {
			return fmt.Errorf("list Machines: %w", err)
		}
		next = list.Continue
		for i := range list.Items {
			if machine := &list.Items[i]; capi.HasOwn(machine) && s.watched(machine) {
				on := as(machineKind, machine.ObjectMeta)
				s.found(on, strip, "no controller would update its conditions any more").machine = machine
			}
		}
	}
	return nil
}

// listOf reads the metadata of all objects of a kind.
func listOf(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, namespace string) ([]metadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
	}
	return list.Items, nil
}

func (s *look) findHosts(ctx context.Context) error {
	hosts, err := host.List(ctx, s.Live, client.InNamespace(s.Namespace))
	if remediationrequest.Missing(err) {
		return nil
	}
	if apierrors.IsForbidden(err) && len(s.atWork) == 0 {
		// Without the kind HostRemediation and without a power cycle on a Metal3Remediation, kubemend keeps no host off.
		_, unread := listOf(ctx, s.Live, mendv1.GroupVersion.WithKind("HostRemediation"), s.Namespace)
		if remediationrequest.Missing(unread) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	for _, found := range hosts {
		about := as(host.Kind, found.ObjectMeta)
		for _, uid := range host.AllMarks(found) {
			if !s.others[uid] {
				s.found(about, wait, "its remediation, or the sweep of orphaned marks, releases it")
				break
			}
		}
		if host.MarkedFor(found) != "" && s.watched(about) {
			s.found(about, unmark, "the host stays marked as unhealthy", mendv1.MarkedForAnnotation)
		}
	}
	return nil
}

func (s *look) findLeases(ctx context.Context) error {
	if !s.nodeChecks {
		return nil // medik8s' operator holds leases by the same name
	}
	list := &coordinationv1.LeaseList{}
	if err := s.Live.List(ctx, list, client.InNamespace(s.LeaseNamespace)); err != nil {
		return fmt.Errorf("list the leases in %s: %w", s.LeaseNamespace, err)
	}
	for i := range list.Items {
		if lease := &list.Items[i]; strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), nhcv1.LeaseHolderPrefix) {
			s.found(as(leaseKind, lease.ObjectMeta), wait, "it is released after the requests for its node")
		}
	}
	return nil
}

// findFences finds fenced nodes in all workload clusters whose control plane was ever initialized. It reads the clusters side by side,
// since each of them may take answerWithin. An error in one cluster does not stop the search in the others.
func (s *look) findFences(ctx context.Context) {
	failed := map[client.ObjectKey]time.Time{}
	var one sync.Mutex // guards failed and s.left
	var reads sync.WaitGroup
	for key, cluster := range s.clusters {
		initialized := meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition)
		if !initialized || !s.watched(cluster) {
			continue
		}
		reads.Go(func() {
			fenced, err := s.fenced(ctx, key)
			one.Lock()
			defer one.Unlock()
			if err != nil {
				failed[key] = cmp.Or(s.failed[key], s.now)
				do, why := waitOr(pass, failed[key], s.now, "its nodes cannot be read")
				s.found(as(clusterKind, cluster.ObjectMeta), do, why).cause = err
			}
			for _, node := range fenced {
				switch by := types.UID(node.Annotations[fence.FencedByAnnotation]); {
				case s.others[by]: // that remediation may keep the host off: on an unfenced node, the workload could run twice
				case s.atWork[by]:
					s.found(node, wait, "its remediation removes the fence").cluster = key
				default:
					s.found(node, unfence, "the remediation that fenced it is gone").cluster = key
				}
			}
		})
	}
	reads.Wait()
	s.failed = failed
	slices.SortStableFunc(s.left, func(a, b *leftover) int { return cmp.Compare(a.object(), b.object()) })
}

// fenced returns the nodes of a cluster with the annotation fenced-by.
func (t *Teardown) fenced(ctx context.Context, cluster client.ObjectKey) ([]*metadata, error) {
	ctx, end := context.WithTimeout(ctx, answerWithin)
	defer end()
	live, err := t.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes, err := listOf(ctx, live, nodeKind, "")
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	var marked []*metadata
	for i := range nodes {
		if _, fenced := nodes[i].Annotations[fence.FencedByAnnotation]; fenced {
			marked = append(marked, &nodes[i])
		}
	}
	return marked, nil
}

// findRequests searches the objects of every kind that can be a kind of requests (remediationrequest.KindsIn). It ignores aggregated APIs
// that do not answer, because requests are custom resources, which the API server serves itself.
func (s *look) findRequests(ctx context.Context) error {
	lists, err := s.Discovery.ServerPreferredResources()
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
			served, err := s.Serves(ctx, r.Name+"."+kind.Group)
			if err != nil {
				return err
			}
			requests, err := listOf(ctx, s.Live, kind, "")
			if apierrors.IsForbidden(err) && s.Namespace != "" {
				requests, err = listOf(ctx, s.Live, kind, s.Namespace)
			}
			// If the list is forbidden or the kind is gone, kubemend has no requests of this kind.
			if err != nil && !apierrors.IsForbidden(err) && !remediationrequest.Missing(err) {
				return err
			}
			for i := range requests {
				s.findMarks(&requests[i], served)
			}
		}
	}
	return nil
}

// findMarks finds the annotations and labels of a check on a request, and what a power cycle wrote on it. What a power
// cycle wrote stays while kubemend's controller serves the kind, because the controller needs it to release the host.
func (s *look) findMarks(req *metadata, served bool) {
	if by := remediationrequest.NodeCheckOf(req); by.Name != "" || by.UID != "" {
		do, why := ofNodeCheck(s.nodeChecks, req.DeletionTimestamp, s.now)
		s.found(req, do, why,
			mendv1.MadeByNodeCheckAnnotation, mendv1.RecordAnnotation, mendv1.MadeByNodeCheckUIDLabel)
	}
	if s.Namespace != "" && req.Namespace != s.Namespace {
		return
	}
	by, ours := remediationrequest.MadeBy(req)
	if _, labelled := req.Labels[mendv1.MadeByUIDLabel]; ours || labelled {
		check := s.checks[client.ObjectKey{Namespace: req.Namespace, Name: by.Name}]
		if s.watched(req) || check != nil && s.watched(check) {
			do, why := ofCheck(check == nil || !check.DeletionTimestamp.IsZero(), req.DeletionTimestamp, s.now)
			s.found(req, do, why, mendv1.MadeByAnnotation, mendv1.RecordAnnotation, mendv1.MadeByUIDLabel)
		}
	}
	s.findRemediation(req, served)
}

// ofCheck returns what to do with a request of a MachineHealthCheck, and why. orphaned says that the check is gone or being deleted.
func ofCheck(orphaned bool, deleted *metav1.Time, now time.Time) (action, string) {
	switch {
	case !orphaned:
		return unmark, coreGoesOn
	case deleted != nil:
		return waitOr(unmark, deleted.Time, now, "its remediator has not released it")
	}
	return erase, "the MachineHealthCheck that made it is gone, so no check would ever end it"
}

// ofNodeCheck returns what to do with a request of a NodeHealthCheck, and why. ours says that kubemend's controller of NodeHealthChecks
// runs, which will delete the request.
func ofNodeCheck(ours bool, deleted *metav1.Time, now time.Time) (action, string) {
	switch {
	case !ours:
		return unmark, "another operator acts on NodeHealthChecks"
	case deleted != nil:
		return waitOr(unmark, deleted.Time, now, "its remediator has not released it")
	}
	return wait, "it is about to be deleted"
}

// waitOr returns wait until patience has passed since began, and after that the action then.
func waitOr(then action, began, now time.Time, why string) (action, string) {
	if now.Before(began.Add(patience)) {
		return wait, why
	}
	return then, fmt.Sprintf("%s within %s", why, patience)
}

func (s *look) findRemediation(rem *metadata, served bool) {
	_, remembers := rem.Annotations[mendv1.PowerCycleAnnotation]
	holds := slices.Contains(rem.Finalizers, mendv1.HostRemediationFinalizer) ||
		served && slices.Contains(rem.Finalizers, infrav1.RemediationFinalizer)
	if !remembers && !holds && rem.Annotations[clusterctlv1.BlockMoveAnnotation] != mendv1.Claim {
		s.others[rem.UID] = !served
		return
	}
	switch record := remediation.Remembered(rem); { // empty if the annotation cannot be parsed
	case s.WatchFilterValue != "" && record.Filter != s.WatchFilterValue && !s.watched(rem):
		s.others[rem.UID], s.others[record.UID] = true, true
		return
	case served:
		s.found(rem, wait, "its power cycle is being released; its status says how far that is")
	default:
		l := s.found(rem, unmark, "no controller of kubemend acts on its kind",
			mendv1.PowerCycleAnnotation, mendv1.RecordAnnotation, mendv1.WaitsForAnnotation)
		if l.finalizer = mendv1.HostRemediationFinalizer; rem.Annotations[clusterctlv1.BlockMoveAnnotation] == mendv1.Claim {
			l.marks = append(l.marks, clusterctlv1.BlockMoveAnnotation)
		}
	}
	s.atWork[rem.UID], s.atWork[remediation.Remembered(rem).UID] = served, served
}
