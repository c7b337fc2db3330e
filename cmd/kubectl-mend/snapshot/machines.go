package snapshot

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// labelled selects what belongs to a cluster; everything if its name is empty.
func labelled(cluster string) []client.ListOption {
	if cluster == "" {
		return nil
	}
	return []client.ListOption{client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}}
}

// machines are those of the clusters in scope.
func (r *reading) machines() []query {
	return []query{{gvk: machineGVK, namespace: r.Namespace, options: labelled(r.Cluster)}}
}

// hosts are those that machines may run on, and what stands between them and the machines.
func (r *reading) hosts() []query {
	return append(r.spares(),
		query{gvk: hostGVK, namespace: r.Namespace},
		query{gvk: metal3MachineGVK, namespace: r.Namespace, bare: !r.Owners, options: labelled(r.Cluster)},
	)
}

// spares are the Metal3Machines whole, which say what hosts machines want: where a check waits for spare hosts, and the
// machines were read. What is known of one machine alone the manager says in its condition.
func (r *reading) spares() []query {
	if r.Spares {
		return []query{{gvk: metal3MachineGVK, namespace: r.Namespace}}
	}
	var queries []query
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		wait, _ := machines.SpareWaitOf(check)
		there := slices.ContainsFunc(queries, func(q query) bool { return q.namespace == check.Namespace })
		if wait != nil && !there && !check.Spec.Remediation.TemplateRef.IsDefined() {
			queries = append(queries, query{gvk: metal3MachineGVK, namespace: check.Namespace})
		}
	}
	return queries
}

// owners are what makes the machines of the clusters in scope, where that is asked for.
func (r *reading) owners() []query {
	if !r.Owners {
		return nil
	}
	queries := []query{
		{gvk: machineSetGVK, namespace: r.Namespace, options: labelled(r.Cluster)},
		{gvk: machineDeploymentGVK, namespace: r.Namespace, options: labelled(r.Cluster)},
		{gvk: controlPlaneGVK, namespace: r.Namespace, anyVersion: true, options: labelled(r.Cluster)},
		{gvk: drainRuleGVK, namespace: r.Namespace},
	}
	if r.Namespace != "" { // it may be being deleted
		queries = append(queries, query{gvk: namespaceGVK, bare: true, options: only(r.Namespace)})
	}
	return queries
}

// records are the RemediationRecords, if they are wanted.
func (r *reading) records() []query {
	if !r.Records {
		return nil
	}
	return []query{{gvk: recordGVK, namespace: r.Namespace, options: labelled(r.Cluster), keep: func(o client.Object) bool {
		record, ok := o.(*mendv1.RemediationRecord)
		return r.Cluster == "" || ok && record.Spec.Target.ClusterName == r.Cluster
	}}}
}
