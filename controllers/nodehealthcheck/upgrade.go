package nodehealthcheck

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Annotations of the machine-config operator on a node; they differ while the node is being updated. (OpenShift, hosted control planes.)
const (
	desiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	currentConfig = "machineconfiguration.openshift.io/currentConfig"
)

// observeUpgrade finds out whether the cluster is being upgraded: by OpenShift, or by a rollout of Cluster API. It is asked only if there
// is a remediation to begin. What could not be asked is not "no". (medik8s goes on then.)
func (r *Reconciler) observeUpgrade(ctx context.Context, w *observed) {
	var unhealthy []*target
	for i := range w.targets {
		if t := &w.targets[i]; t.node != nil && t.verdict.State == health.Unhealthy {
			unhealthy = append(unhealthy, t)
		}
	}
	if len(unhealthy) == 0 {
		return
	}
	versions, ready, err := r.all(ctx, "clusterversions."+openshiftConfig, clusterVersions)
	if err != nil {
		w.upgrading = "whether the cluster is being upgraded could not be found out"
		w.trouble = append(w.trouble, err)
		return
	}
	w.awaits(clusterVersions, ready)
	w.upgrading = upgrading(unhealthy, versions)
}

// upgrading says by what the cluster of the nodes is being changed; empty if by nothing.
func upgrading(nodes []*target, versions []unstructured.Unstructured) string {
	for _, t := range nodes {
		if desired := t.node.Annotations[desiredConfig]; desired != "" && desired != t.node.Annotations[currentConfig] {
			return fmt.Sprintf("the configuration of node %s is being changed", t.name)
		}
	}
	for i := range versions {
		if f := (&found{obj: &versions[i]}); f.says("Progressing") {
			return "ClusterVersion " + versions[i].GetName() + " is progressing"
		}
	}
	for _, t := range nodes {
		if cluster := t.machine.cluster; cluster != nil && rollingOut(cluster) {
			return fmt.Sprintf("Cluster %s/%s is rolling out", cluster.Namespace, cluster.Name)
		}
	}
	return ""
}

func rollingOut(cluster *clusterv1.Cluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
}
