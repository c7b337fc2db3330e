package nodehealthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get

// confirm makes sure, past the caches, of what the first request for a node is made by. A watch that was broken may take half a minute to be made
// again, in which the cache shows the observed state as it was. If it is not sure it says why, and the next reconcile decides anew.
func (r *Reconciler) confirm(ctx context.Context, w *observed, o *outcome) (doubt string, err error) {
	node := &corev1.Node{}
	err = r.Live.Get(ctx, client.ObjectKey{Name: o.n.Name}, node)
	if remediationrequest.Missing(err) {
		return "the node is gone", nil
	}
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", o.n.Name, err)
	}
	live := &nodes.Node{Name: node.Name}
	describe(live, node, w.facts.Policy)
	verdict := o.Confirm(&w.facts, live)
	switch {
	case live.ID != o.n.ID:
		return "the node is another one", nil
	case verdict.State != health.Unhealthy:
		return "the node is " + verdict.State.String(), nil
	case live.Excluded:
		return "the node is excluded", nil
	case o.n.ControlPlane:
		return r.confirmTurn(ctx, w)
	}
	return "", nil
}

// confirmTurn makes sure that no request for a node of the control plane was made that w does not show: another manager may have made it a moment ago, and
// then be gone.
func (r *Reconciler) confirmTurn(ctx context.Context, w *observed) (doubt string, err error) {
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
			is := &list.Items[i]
			if seen := w.requests.byName[keyOf(kind.GroupKind(), is.Namespace, is.Name)]; seen == nil || seen.GetUID() != is.UID {
				return fmt.Sprintf("there is %s %s for a node of the control plane", kind.Kind, client.ObjectKeyFromObject(is)), nil
			}
		}
	}
	return "", nil
}

// doubtful is how many reconciles in a row may find the API server say otherwise than the cache: some 30 s, in which a broken watch is made again. After that
// it is reported that nothing starts, and why.
const doubtful = 7
