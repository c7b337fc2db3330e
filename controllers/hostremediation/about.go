package hostremediation

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/explain"
)

// about is what is observed, as package explain renders it.
func (w *observed) about() *explain.PowerCycle {
	p := &explain.PowerCycle{
		Facts: w.facts, Policy: w.policy, Now: w.now, After: w.record.Memory, Ownerless: w.ownerless,
		Asked: asked(w.rem), Deleted: !w.rem.GetDeletionTimestamp().IsZero(), Finalizer: w.kind.Finalizer, Pause: w.pause(),
		Host: w.aboutHost(), Node: w.aboutNode(), Ahead: w.ahead, Unasked: len(w.unasked) > 0,
	}
	if owner := ownerOf(w.rem); owner != nil {
		p.Owner = owner.Name
	}
	if w.cluster != nil {
		p.Cluster = w.cluster.Name
	}
	if w.machine != nil {
		p.Machine = w.machine.Name
		if c := conditions.Get(w.machine, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Status == metav1.ConditionFalse {
			p.MachineUnhealthy = c.Reason
		}
	}
	return p
}

func (w *observed) aboutHost() explain.HostDetails {
	h, power := w.found.Host, w.power
	is := explain.HostDetails{
		Known: h != nil, Mismatch: w.found.Why, Unmanaged: power.Unmanaged, Trouble: power.Trouble, Doubt: power.Doubt, KeptOffBy: power.KeptOffBy,
	}
	if h == nil {
		return is
	}
	is.Namespace, is.Name, is.Unhealthy = h.Namespace, h.Name, host.Unhealthy(h)
	is.KeptOffFor, is.KeptOffAs = keptOffFor(h, w.record.by(w.rem)), w.keptOffAs()
	if ref := h.Spec.ConsumerRef; ref != nil {
		is.Consumer = fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	}
	return is
}

// keptOffAs is the UID by which the remediation keeps its host powered off: that of before it was moved, if it was.
func (w *observed) keptOffAs() string {
	by := w.record.by(w.rem)
	for key := range w.found.Host.Annotations {
		if uid, hold := host.KeptOffFor(key); hold && by.Before != "" && uid == by.Before {
			return string(uid)
		}
	}
	return string(by.UID)
}

func (w *observed) aboutNode() explain.NodeDetails {
	seen := w.seen
	is := explain.NodeDetails{
		Name: w.nodeName(), Unseen: w.unseenBecause, Unhealthy: w.unhealthy, Before: w.record.BootID, Looked: seen.Presence == fence.Present,
		Answered: seen.Presence != fence.Unseen, Leaving: seen.Leaving, Fence: string(seen.Mark), Ours: seen.Ours,
		Left: seen.Left, Count: seen.Count, Drained: seen.Drained,
	}
	if w.node != nil {
		is.Ready, is.BootID = string(readyOf(w.node)), w.node.Status.NodeInfo.BootID
	}
	if seen.Node != nil {
		is.ProviderID, is.UID, is.OutOfService = seen.Node.Spec.ProviderID, string(seen.Node.UID), fence.OutOfService(seen.Node)
	}
	return is
}
