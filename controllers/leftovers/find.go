package leftovers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	// patience is how long a teardown waits for a workload cluster that does not answer, and for a remediator that does not finish its
	// request. Power cycles have deadlines of their own.
	patience = remediationrequest.ClingingFor
	// answerWithin is how long a workload cluster is waited for in one reconcile.
	answerWithin = 10 * time.Second
	// nodeCheckCRD is the kind whose requests and leases are ours if we serve it.
	nodeCheckCRD = "nodehealthchecks.remediation.medik8s.io"
	// coreGoesOn is why a check, or a request of one, is left to Cluster API core.
	coreGoesOn = "Cluster API core goes on with it"
)

var (
	leaseKind   = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	clusterKind = clusterv1.GroupVersion.WithKind("Cluster")
	checkKind   = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
)

// action is what becomes of a leftover.
type action string

const (
	wait    action = "wait for it"
	release action = "give the check back" // in one patch, so that Cluster API core takes it up at once
	unmark  action = "take our marks off"
	erase   action = "delete it"
	strip   action = "remove our conditions"
	unfence action = "unfence the node"
	pass    action = "pass it over" // with a warning: there may be something of ours behind it
)

// metadata is an object as far as kubemend writes on it.
type metadata = metav1.PartialObjectMetadata

// as is an object of this kind with this metadata.
func as(kind schema.GroupVersionKind, object metav1.ObjectMeta) *metadata {
	obj := &metadata{ObjectMeta: object}
	obj.SetGroupVersionKind(kind)
	return obj
}

// leftover is something that kubemend wrote on an object, what becomes of it, and why.
type leftover struct {
	// on is the object, with its kind; of a node it is in cluster.
	on      *metadata
	cluster client.ObjectKey
	do      action
	why     string
	// marks are the annotations and labels on it that say something to kubemend alone, finalizer is one that nothing else removes.
	marks     []string
	finalizer string
	// template is the kind of the template of a check that is claimed.
	template schema.GroupKind
	// machine is the one whose conditions are to be removed, read live.
	machine *clusterv1.Machine
	// cause is why the nodes of a cluster could not be read.
	cause error
}

// object names the object.
func (l *leftover) object() string {
	name := fmt.Sprintf("%s %s", l.on.Kind, client.ObjectKeyFromObject(l.on))
	if l.cluster.Name != "" {
		return fmt.Sprintf("%s of cluster %s", name, l.cluster)
	}
	return name
}

func (l *leftover) String() string { return fmt.Sprintf("%s: %s (%s)", l.object(), l.why, l.do) }

// look is everything that one reconcile reads.
type look struct {
	*Teardown
	now  time.Time
	left []*leftover
	// checks are the MachineHealthChecks that there are, whichever controller acts on them, clusters the Clusters.
	checks   map[client.ObjectKey]*clusterv1.MachineHealthCheck
	clusters map[client.ObjectKey]*clusterv1.Cluster
	// atWork are the remediations that a controller of ours ends, by all their UIDs; others are those that are none of ours.
	atWork, others map[types.UID]bool
	// nodeChecks says that NodeHealthChecks are ours.
	nodeChecks bool
}

func (s *look) found(on *metadata, do action, why string, marks ...string) *leftover {
	l := &leftover{on: on, do: do, why: why, marks: marks}
	s.left = append(s.left, l)
	return l
}

// find finds what kubemend wrote, past all caches. Only the leader reads nodes: it is connected to workload clusters.
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

// watched reports whether an object, or the Cluster that it names, has the label that --watch-filter asks for.
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

// findConditions finds conditions of Machines that only kubemend sets. It reads some Machines at a time: there may be thousands.
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
				s.found(on, strip, "nobody would bring them up to date").machine = machine
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
	if remediationrequest.Missing(err) || apierrors.IsForbidden(err) && s.neverHeldHosts(ctx) {
		return nil
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

// neverHeldHosts reports whether kubemend was installed without the kind of remediations by which it holds hosts, where it may not read
// hosts. If the kind is there, hosts may be off for it, and the rights have to be bound until they have been released.
func (s *look) neverHeldHosts(ctx context.Context) bool {
	_, err := listOf(ctx, s.Live, mendv1.GroupVersion.WithKind("HostRemediation"), s.Namespace)
	return remediationrequest.Missing(err)
}

func (s *look) findLeases(ctx context.Context) error {
	if !s.nodeChecks {
		return nil // a NodeHealthCheck of somebody else's holds them by the same name
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

// findFences reads the nodes of all workload clusters that ever had any. One that does not answer holds up no other.
func (s *look) findFences(ctx context.Context) {
	failed := map[client.ObjectKey]time.Time{}
	for key, cluster := range s.clusters {
		initialized := meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition)
		if !initialized || !s.watched(cluster) {
			continue
		}
		fenced, err := s.fenced(ctx, key)
		if err != nil {
			since, known := s.failed[key]
			if !known {
				since = s.now
			}
			failed[key] = since
			do, why := waitOr(pass, since, s.now, "its nodes cannot be read")
			s.found(as(clusterKind, cluster.ObjectMeta), do, why).cause = err
		}
		for _, node := range fenced {
			switch by := types.UID(node.Annotations[fence.FencedByAnnotation]); {
			case s.others[by]: // the host may be held off for it: to unfence the node could run its workload twice
			case s.atWork[by]:
				s.found(node, wait, "its remediation takes the fence away").cluster = key
			default:
				s.found(node, unfence, "the remediation that fenced it is gone").cluster = key
			}
		}
	}
	s.failed = failed
	slices.SortStableFunc(s.left, func(a, b *leftover) int { return cmp.Compare(a.object(), b.object()) })
}

// fenced are the nodes of a cluster that bear our mark.
func (t *Teardown) fenced(ctx context.Context, cluster client.ObjectKey) ([]*metadata, error) {
	ctx, end := context.WithTimeout(ctx, answerWithin)
	defer end()
	there, err := t.Clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes, err := listOf(ctx, there, corev1.SchemeGroupVersion.WithKind("Node"), "")
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
