package hosts

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// pods plays the controllers of the workload cluster: node-lifecycle, taint eviction, the collection of orphaned pods, and the CSI driver's
// attacher.
type pods struct {
	e *environment
	// stuck says that nothing leaves the node; unreachable, that the cluster cannot be reached by kubemend.
	stuck, unreachable bool
	// since is since when what is on the node has to leave it, volumes since when the pods are gone.
	since, volumes time.Time
}

// step lets happen what is due. It reports whether anything has changed.
func (p *pods) step(now time.Time) bool {
	changed := p.notice(now)
	pods, volumes := p.left()
	gone := p.e.node() == nil
	switch {
	case !gone && !outOfService(p.e.node()) || p.stuck || len(pods)+len(volumes) == 0:
		p.since, p.volumes = time.Time{}, time.Time{}
		return changed
	case p.since.IsZero():
		p.since = now
	}
	patience := takesPods
	if gone {
		patience = takesOrphan
	}
	left := pods
	at := p.since.Add(patience)
	if len(pods) == 0 {
		if p.volumes.IsZero() {
			p.volumes = now
		}
		left, at = volumes, p.volumes.Add(takesPods)
	}
	if now.Before(at) {
		return changed
	}
	for _, o := range left {
		if _, detached := o.(*storagev1.VolumeAttachment); detached && p.e.box.writes && !p.e.lies() {
			p.e.fault("a volume is attached elsewhere while a pod on the host, which runs, writes to it")
		}
		p.e.do(p.e.work.Delete(p.e.t.Context(), o))
	}
	return true
}

// next is the next moment at which something is due; zero if nothing is.
func (p *pods) next() time.Time {
	var at, silent time.Time
	switch {
	case p.since.IsZero():
	case !p.volumes.IsZero():
		at = p.volumes.Add(takesPods)
	case p.e.node() == nil:
		at = p.since.Add(takesOrphan)
	default:
		at = p.since.Add(takesPods)
	}
	if node := p.e.node(); node != nil && !p.e.box.runs && ready(node) == corev1.ConditionTrue {
		silent = p.e.box.silent.Add(takesSilent)
	}
	return earliest(at, silent)
}

// notice calls a node unknown whose kubelet is silent.
func (p *pods) notice(now time.Time) bool {
	node := p.e.node()
	if node == nil || p.e.box.runs || ready(node) == corev1.ConditionUnknown || now.Before(p.e.box.silent.Add(takesSilent)) {
		return false
	}
	edit(p.e, p.e.work, node, true, func(n *corev1.Node) { readiness(n, corev1.ConditionUnknown, now) })
	return true
}

// left is what is left on the node.
func (p *pods) left() (pods, volumes []client.Object) {
	return p.e.work.Of(corev1.SchemeGroupVersion.WithKind("Pod")), p.e.work.Of(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"))
}

// registers is what a kubelet does that has started: its node is there, and Ready.
func (e *environment) registers(boot int) {
	e.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.nodeName, Labels: map[string]string{corev1.LabelHostname: e.nodeName}}}
	err := e.work.Create(e.t.Context(), e.named(node))
	switch {
	case err == nil && boot == 1: // the provider has labelled the new node
		edit(e, e.work, e.node(), false, func(n *corev1.Node) {
			n.Labels["example.org/rack"] = "7"
			n.Annotations["example.org/note"] = "keep"
		})
	case !apierrors.IsAlreadyExists(err):
		e.do(err)
	}
	edit(e, e.work, e.node(), true, func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = fmt.Sprintf("boot-%d", boot)
		readiness(n, corev1.ConditionTrue, e.clock.Now())
	})
}

func readiness(n *corev1.Node, status corev1.ConditionStatus, now time.Time) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now)}}
}

func ready(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}
