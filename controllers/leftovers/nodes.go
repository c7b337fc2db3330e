package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// Nodes unfences nodes of workload clusters that a remediation has signed which does not exist any more: because its finalizer was
// removed by hand, or its namespace was restored without it. Such a node stays empty for ever, also when it is healthy.
//
// It knows only the nodes of clusters that are cached for others, and watches none itself.
type Nodes struct {
	*Sweep
	// Fenced returns the nodes of a cluster that are signed; workload.Clusters has it.
	Fenced func(cluster client.ObjectKey) []*corev1.Node
	Nodes  interface {
		Unfencer
		Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
	}
	// Events are the clusters in which a node is signed.
	Events enqueue.Broadcast[client.ObjectKey]
}

// Reconcile checks the nodes of the cluster called req that are signed. A failure for one delays no other.
func (s *Nodes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	nodes, next := s.Fenced(req.NamespacedName), time.Time{}
	errs := make([]error, 0, len(nodes))
	for _, node := range nodes {
		again, err := s.unfence(ctx, req.NamespacedName, node)
		next, errs = earlier(next, again), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return enqueue.At(next, s.Clock.Now()), nil
}

// looks is how soon a fenced node is looked at again whose workload has not moved.
const looks = 20 * time.Second

// stays is for how long after the grace period a fence stays from which the workload has not moved: as long as an attempt lasts.
const stays = infrav1.DefaultTimeoutSeconds * time.Second

// unfence unfences a node whose fence is orphaned, once its workload has moved: on a node that is unfenced before, Kubernetes finishes
// neither its pods nor their volumes while its host is off. It returns when to check again; zero if not before something changes.
func (s *Nodes) unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node) (time.Time, error) {
	by := types.UID(node.Annotations[fence.FencedByAnnotation])
	gone, next, err := s.orphaned(ctx, cluster.Namespace, node.UID, []types.UID{by})
	if err != nil || len(gone) == 0 {
		return next, err
	}
	if until := s.waitsUntil(orphan{node.UID, by}); s.Clock.Now().Before(until) && !ready(node) {
		seen, err := s.Nodes.Look(ctx, cluster, node.Name, fence.Owner{UID: by})
		if err != nil || seen.Presence == fence.Unseen || seen.Fenced && !seen.Drained {
			return earlier(until, s.Clock.Now().Add(looks)), err
		}
	}
	if err := s.Nodes.Unfence(ctx, cluster, node, fence.Owner{UID: by}); err != nil {
		return time.Time{}, err
	}
	recorder.Send(s.Recorder, recorder.Event{
		About: as(clusterKind, metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}), Kind: corev1.EventTypeNormal,
		Reason: mendv1.EventOrphanSwept, Action: "Unfence",
		Text: fmt.Sprintf("Unfenced node %s: remediation %s, which had fenced it, does not exist any more", node.Name, by),
	})
	return time.Time{}, nil
}

// waitsUntil is until when the workload of an orphaned fence is waited for.
func (s *Nodes) waitsUntil(o orphan) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since[o].Add(s.Grace + stays)
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
		return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
	})
}

// SetupWithManager makes s a controller of mgr. It checks a cluster when a node of it is signed, and when a remediation of it goes.
func (s *Nodes) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options.ReconciliationTimeout = time.Minute
	b := ctrl.NewControllerManagedBy(mgr).Named("nodesweep").WithOptions(options).
		WatchesRawSource(s.Events.Source(func(_ context.Context, cluster client.ObjectKey) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: cluster}}
		}))
	if err := s.watchDeletions(b, func(record remediation.Record) string { return record.Cluster }); err != nil {
		return err
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that unfences orphaned nodes: %w", err)
	}
	return nil
}
