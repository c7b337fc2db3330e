package nodehealthcheck

import (
	"context"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explain is what a reconcile of the check called name would see and decide at now. It returns nil, nil if there is no such check. Nothing is written,
// reported or measured, and later reconciles are not influenced.
//
// Whether kubemend serves the kind in a cluster, and whether it is there at all, the caller has to know.
func (r *Reconciler) Explain(ctx context.Context, name string, now time.Time) (*explain.Check, error) {
	facts, err := r.Observe(ctx, name, now)
	if facts == nil || err != nil {
		return nil, err
	}
	plan := nodes.Decide(*facts)
	c := explain.NodeCheck(facts, &plan)
	if r.idle.Load() {
		c.Mode, c.Because = explain.Nobody, "another controller acts on NodeHealthChecks"
	}
	return c, nil
}
