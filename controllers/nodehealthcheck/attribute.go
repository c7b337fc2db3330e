package nodehealthcheck

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	decide "github.com/kubemend/kubemend/controllers/decide/nodes"
)

// attribute finds the nodes of requests that do not say any more which one they are about, by their names: a remediator may have removed
// the annotation, and the status may have been lost. What none is found for stays under its own name.
func (r *Reconciler) attribute(ctx context.Context, w *observed, nodes []corev1.Node) error {
	for name, ours := range w.requests.ours {
		for _, f := range slices.Clone(ours) {
			if !f.guessed {
				continue
			}
			node, err := r.nodeByName(ctx, w, f.obj, nodes)
			if err != nil {
				return err
			}
			if node == "" || node == name {
				f.guessed = node == ""
				continue
			}
			f.guessed = false
			w.requests.ours[name] = slices.DeleteFunc(w.requests.ours[name], func(other *found) bool { return other == f })
			w.requests.ours[node] = append(w.requests.ours[node], f)
			slices.SortFunc(w.requests.ours[node], oldestFirst)
		}
		if len(w.requests.ours[name]) == 0 {
			delete(w.requests.ours, name)
		}
	}
	return nil
}

// nodeByName is the node after which, or after whose Machine, obj is named; empty if there is none.
func (r *Reconciler) nodeByName(ctx context.Context, w *observed, obj *unstructured.Unstructured, nodes []corev1.Node) (string, error) {
	if machineOwner(obj) != (machineRef{}) {
		m, err := r.owningMachine(ctx, obj)
		if m == nil {
			return "", err
		}
		return m.Status.NodeRef.Name, nil
	}
	for j, m := range w.templates {
		if m.kind.GroupKind() != obj.GroupVersionKind().GroupKind() || m.ref.Namespace != obj.GetNamespace() || m.object == nil {
			continue
		}
		for i := range nodes {
			if m.nameFor(w.check, &w.facts.Templates[j], &decide.Node{Name: nodes[i].Name}) == obj.GetName() {
				return nodes[i].Name, nil
			}
		}
	}
	return "", nil
}
