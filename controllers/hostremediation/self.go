package hostremediation

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Self is where the manager runs, and what it does about it when that is to be switched off. The zero value runs nowhere.
type Self struct {
	// Node is the name of its node, BootID of what boot: together they tell it from a node of that name in another cluster.
	Node, BootID string
	// Elsewhere reports whether another replica is ready on another node, to take over. It may be nil, if there is none ever.
	Elsewhere func(context.Context) (bool, error)
	// StandDown ends this replica, so that another one acts.
	StandDown func()
}

// on reports whether the manager runs on the host of obs, as far as its node is known.
func (s Self) on(obs *observed) bool {
	if s.Node == "" || s.BootID == "" || obs.nodeName() != s.Node {
		return false
	}
	return obs.node != nil && obs.node.Status.NodeInfo.BootID == s.BootID || obs.node == nil && obs.record.BootID == s.BootID
}

// giveUpLeadership ends this replica if another one can take over, which may switch off the host that this one runs on. To stay is safe, so
// in doubt it stays.
func (s Self) giveUpLeadership(ctx context.Context) {
	if s.Elsewhere == nil || s.StandDown == nil {
		return
	}
	switch ready, err := s.Elsewhere(ctx); {
	case err != nil:
		log.FromContext(ctx).Error(err, "Cannot tell whether another replica could take over")
	case ready:
		log.FromContext(ctx).Info("Giving up leadership: another replica has to power-cycle the host that this one runs on", "Node", s.Node)
		s.StandDown()
	}
}
