package capacity

import "regexp"

// evictionRefused is how Cluster API quotes the API server that refuses to evict pods because of a budget; it goes by that text itself. (Cluster API,
// core/reconcilers/machine, machine_controller_status.go and drain/drain.go; Kubernetes, pkg/registry/core/pod/storage/eviction.go.)
var evictionRefused = regexp.MustCompile(
	`(?m)^\* Pods? ([a-z0-9-]{1,63})/.*: cannot evict pod as it would violate the pod's disruption budget\. The disruption budget ([a-z0-9.-]{1,253}) needs `)

// quotedBudget is the PodDisruptionBudget that blocks the drain, as Cluster API quotes it; none if the pods themselves were read, which are newer.
func (d *Deletion) quotedBudget() Object {
	if d.PodsRead {
		return Object{}
	}
	if quoted := evictionRefused.FindStringSubmatch(d.Condition.Message); quoted != nil {
		return Object{Kind: "PodDisruptionBudget", Namespace: quoted[1], Name: quoted[2]}
	}
	return Object{}
}
