package nodehealthcheck

import (
	"context"
	"slices"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// Annotations of the machine-config operator on a node; they differ while the node is being updated. (OpenShift, hosted control planes.)
const (
	desiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	currentConfig = "machineconfiguration.openshift.io/currentConfig"
)

// observeUpgrade finds out whether OpenShift is upgrading the cluster. It is asked only if there may be a remediation to start.
func (r *Reconciler) observeUpgrade(ctx context.Context, w *observed) {
	if !slices.ContainsFunc(w.facts.Nodes, func(n nodes.Node) bool { return n.Concerns() }) {
		return
	}
	versions, ready, err := r.all(ctx, "clusterversions."+openshiftConfig, clusterVersions)
	if err != nil {
		w.facts.Upgrade.Unread = true
		w.trouble = append(w.trouble, err)
		return
	}
	w.awaits(clusterVersions, ready)
	for i := range versions {
		if answer, _ := condition(&versions[i], "Progressing"); answer == escalation.Yes {
			w.facts.Upgrade.Progressing = versions[i].GetName()
			return
		}
	}
}
