package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// NodeSweeper takes fences off nodes of workload clusters that a remediation has signed which does not exist any more: because its finalizer was taken
// away by hand, or its namespace was restored without it. Such a node stays empty for ever, also when it is healthy.
//
// It knows the nodes of those clusters alone that are cached for others, and watches none itself.
type NodeSweeper struct {
	// Installed returns the kinds of remediations that exist, whoever acts on them.
	Installed func() ([]Kind, error)
	// Client reads from caches, Live past them.
	Client client.Reader
	Live   client.Reader
	// Fenced returns the nodes of a cluster that are signed; workload.Clusters has it.
	Fenced   func(cluster client.ObjectKey) []*corev1.Node
	Nodes    Unfencer
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long a fence stays whose remediation cannot be found: what is being restored or moved may not be there yet.
	Grace time.Duration

	heard audience[client.ObjectKey]
	mu    sync.Mutex
	since map[signature]time.Time // when they were first seen without their remediation
}

// Unfencer takes fences off nodes; fence.Nodes does it.
type Unfencer interface {
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner, saved fence.Backup) error
}

// signature is a mark on a node.
type signature struct{ node, by types.UID }

// Wake is told of a cluster that has a node which is signed. It does not block.
func (s *NodeSweeper) Wake(cluster client.ObjectKey) { s.heard.tell(cluster) }

// Reconcile looks at the nodes of the cluster called req that are signed. What fails for one holds up no other.
func (s *NodeSweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	nodes := s.Fenced(req.NamespacedName)
	if len(nodes) == 0 {
		return ctrl.Result{}, nil
	}
	living, err := s.census(ctx, s.Client, req.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := s.Clock.Now().Add(marksRecheck)
	var errs []error
	for _, node := range nodes {
		at, err := s.look(ctx, req.NamespacedName, node, living)
		errs = append(errs, err)
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return enqueue.At(next, s.Clock.Now()), nil
}

// look takes the fence off a node if its remediation is gone for longer than the grace period. It returns when to look again; zero if not before
// something changes.
func (s *NodeSweeper) look(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, living census) (time.Time, error) {
	mark := signature{node.UID, types.UID(node.Annotations[fence.FencedByAnnotation])}
	if living.lives(mark.by) {
		s.forget(mark)
		return time.Time{}, nil
	}
	if due := s.first(mark).Add(s.Grace); s.Clock.Now().Before(due) {
		return due, nil
	}
	confirmed, err := s.census(ctx, s.Live, cluster.Namespace)
	if err != nil || confirmed.lives(mark.by) {
		return time.Time{}, err
	}
	if err := s.Nodes.Unfence(ctx, cluster, node, fence.Owner{UID: mark.by}, fence.Backup{}); err != nil {
		return time.Time{}, err
	}
	s.forget(mark)
	about := &clusterv1.Cluster{}
	about.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	about.Namespace, about.Name = cluster.Namespace, cluster.Name
	recorder.Send(s.Recorder, recorder.Event{
		About: about, Kind: corev1.EventTypeNormal, Reason: mendv1.EventOrphanSwept, Action: "Unfence",
		Text: fmt.Sprintf("Took the fence off node %s: remediation %s, which had fenced it, does not exist any more", node.Name, mark.by),
	})
	return time.Time{}, nil
}

func (s *NodeSweeper) census(ctx context.Context, reader client.Reader, namespace string) (census, error) {
	kinds, err := s.Installed()
	if err != nil {
		return census{}, err
	}
	return censusOf(ctx, reader, kinds, namespace)
}

func (s *NodeSweeper) first(mark signature) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil {
		s.since = map[signature]time.Time{}
	}
	if _, seen := s.since[mark]; !seen {
		s.since[mark] = s.Clock.Now()
	}
	return s.since[mark]
}

func (s *NodeSweeper) forget(mark signature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, mark)
}

// SetupWithManager makes s a controller of mgr. It looks at a cluster when a node of it is signed, and when a remediation of it goes.
func (s *NodeSweeper) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options.ReconciliationTimeout = passTimeout
	b := ctrl.NewControllerManagedBy(mgr).Named("nodesweep").WithOptions(options).
		WatchesRawSource(s.heard.source(func(_ context.Context, cluster client.ObjectKey) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: cluster}}
		}))
	if err := watchDeletions(b, s.Installed, rememberedCluster); err != nil {
		return err
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that takes orphaned fences off nodes: %w", err)
	}
	return nil
}

// rememberedCluster maps a remediation to its cluster: when it goes without having taken its fence away, the node does not change.
func rememberedCluster(_ context.Context, o client.Object) []reconcile.Request {
	rec := remembered(o)
	if rec.Cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: rec.Cluster}}}
}
