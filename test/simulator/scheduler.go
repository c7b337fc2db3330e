package simulator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Scheduler simulates kube-scheduler in a workload cluster: it binds every unbound pod to a node that is Ready and whose taints the pod
// tolerates, to the one with the fewest pods. It waits until the claims of the pod are bound, which attaching needs. It ignores volumes
// otherwise, resources and affinity.
type Scheduler struct {
	player
	// bound has the pods that were bound here, until the cache shows it. There is one worker, so it needs no lock.
	bound map[types.UID]string
}

// NewScheduler creates a scheduler for a workload cluster; Start starts it.
func NewScheduler(workload *rest.Config) (*Scheduler, error) {
	player, err := newPlayer(workload, "scheduler")
	if err != nil {
		return nil, err
	}
	s := &Scheduler{player: player, bound: map[types.UID]string{}}
	err = ctrl.NewControllerManagedBy(s.manager).
		Named("scheduler").
		For(&corev1.Pod{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(s.waiting)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(s.waiting)).
		Complete(s)
	if err != nil {
		return nil, fmt.Errorf("set up the simulated scheduler: %w", err)
	}
	return s, nil
}

// waiting returns the unbound pods, for which a change of a node or a claim may matter.
func (s *Scheduler) waiting(ctx context.Context, _ client.Object) []reconcile.Request {
	pods := &corev1.PodList{}
	if err := s.client.List(ctx, pods); err != nil {
		return nil // only a stopping cache returns an error
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if unbound(&pods.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}

func unbound(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() }

// Reconcile binds one pod. A pod without a suitable node waits for the next change of a node or a claim.
func (s *Scheduler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := s.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !unbound(pod) {
		delete(s.bound, pod.UID)
		return ctrl.Result{}, nil
	}
	if s.bound[pod.UID] != "" {
		return ctrl.Result{}, nil
	}
	if bound, err := s.claimsBound(ctx, pod); err != nil || !bound {
		return ctrl.Result{}, err
	}
	node, err := s.nodeFor(ctx, pod)
	if err != nil || node == "" {
		return ctrl.Result{}, err
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	err = s.client.SubResource("binding").Create(ctx, pod, binding)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return ctrl.Result{}, nil // the pod was deleted, or another scheduler has bound it
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("bind pod %s to node %s: %w", request, node, err)
	}
	s.bound[pod.UID] = node
	return ctrl.Result{}, nil
}

// claimsBound reports whether all claims of a pod are bound.
func (s *Scheduler) claimsBound(ctx context.Context, pod *corev1.Pod) (bool, error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName}
		claim, err := present(claim, s.client.Get(ctx, key, claim))
		if err != nil || claim == nil || claim.Status.Phase != corev1.ClaimBound {
			return false, err
		}
	}
	return true, nil
}

// nodeFor returns the name of the node for a pod, or an empty name if no node is suitable.
func (s *Scheduler) nodeFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := s.client.List(ctx, nodes); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	if err := s.client.List(ctx, pods); err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	load := map[string]int{}
	for i := range pods.Items {
		load[cmp.Or(pods.Items[i].Spec.NodeName, s.bound[pods.Items[i].UID])]++
	}
	fit := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return !takes(&n, pod) })
	if len(fit) == 0 {
		return "", nil
	}
	best := slices.MinFunc(fit, func(a, b corev1.Node) int {
		return cmp.Or(load[a.Name]-load[b.Name], cmp.Compare(a.Name, b.Name))
	})
	return best.Name, nil
}

func takes(node *corev1.Node, pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready || node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() {
		return false
	}
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(logr.Discard(), &taint, false)
		})
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated
	})
}

// stuckAgain is how often a volume that must not be detached is read again: Stick causes no event.
const stuckAgain = 100 * time.Millisecond

// Attacher simulates the external attachers of all CSI drivers in a workload cluster: it attaches and detaches what kube-controller-manager
// requests. While volumes are stuck it detaches nothing.
type Attacher struct {
	player
	stuck atomic.Bool
}

// NewAttacher creates an attacher for a workload cluster; Start starts it.
func NewAttacher(workload *rest.Config) (*Attacher, error) {
	player, err := newPlayer(workload, "attacher")
	if err != nil {
		return nil, err
	}
	a := &Attacher{player: player}
	if err := ctrl.NewControllerManagedBy(a.manager).Named("attacher").For(&storagev1.VolumeAttachment{}).Complete(a); err != nil {
		return nil, fmt.Errorf("set up the simulated attacher: %w", err)
	}
	return a, nil
}

// Stick makes it detach nothing more; false ends that.
func (a *Attacher) Stick(stuck bool) { a.stuck.Store(stuck) }

// Reconcile attaches or detaches one volume.
func (a *Attacher) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1.VolumeAttachment{}
	if err := a.client.Get(ctx, request.NamespacedName, attachment); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	finalizer := "external-attacher/" + attachment.Spec.Attacher
	before := attachment.DeepCopy()
	if !attachment.DeletionTimestamp.IsZero() {
		if a.stuck.Load() {
			return ctrl.Result{RequeueAfter: stuckAgain}, nil
		}
		if controllerutil.RemoveFinalizer(attachment, finalizer) {
			return ctrl.Result{}, a.written("detach", attachment, a.client.Patch(ctx, attachment, client.MergeFrom(before)))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(attachment, finalizer) {
		if err := a.client.Patch(ctx, attachment, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, a.written("attach", attachment, err)
		}
	}
	if attachment.Status.Attached {
		return ctrl.Result{}, nil
	}
	before = attachment.DeepCopy()
	attachment.Status.Attached = true
	return ctrl.Result{}, a.written("attach", attachment, a.client.Status().Patch(ctx, attachment, client.MergeFrom(before)))
}

func (a *Attacher) written(what string, attachment *storagev1.VolumeAttachment, err error) error {
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("%s a volume at node %s: %w", what, attachment.Spec.NodeName, err))
	}
	return nil
}
