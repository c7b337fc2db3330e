package snapshot

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// mostNamed is how many clusters a list of machines names; more of them are read with all others.
const mostNamed = 100

// restless reads all that is in scope, but for the machines and nodes of clusters of which nothing is to be said but that all are healthy. In a fleet
// these are nearly all, and their machines and nodes nearly all of what there is to read.
func (r *reading) restless(ctx context.Context) {
	r.each(ctx, append(r.clusters(), r.first()...))
	wanted := r.restlessClusters(ctx)
	if len(wanted) > 0 {
		r.each(ctx, append(r.machinesIn(wanted), r.hosts()...))
	}
	r.each(ctx, r.second(ctx))
	r.beyond(ctx)
	if r.Nodes {
		r.workloads(ctx, func(c *clusterv1.Cluster) bool { return slices.Contains(wanted, client.ObjectKeyFromObject(c)) })
	}
}

// restlessClusters are those with something to judge. Of the others it is noted that the status of their checks counts the machines.
func (r *reading) restlessClusters(ctx context.Context) []client.ObjectKey {
	managers, err := managerlease.Of(ctx, r.snapshot.ReadOnly(), r.snapshot.Taken)
	acted := func(check *clusterv1.MachineHealthCheck) bool {
		return err == nil && slices.ContainsFunc(managers, func(m managerlease.Manager) bool {
			return m.Announcement != nil && !m.Announcement.Teardown && m.StandsOff(check).Because == ""
		})
	}
	r.snapshot.mu.RLock()
	all, checks := slices.Clone(r.all(clusterGVK)), slices.Clone(r.all(machineCheckGVK))
	everywhere := len(r.all(nodeCheckGVK)) > 0 || r.AllMachines // a NodeHealthCheck looks at the machines of all nodes
	r.snapshot.mu.RUnlock()
	var wanted []client.ObjectKey
	for _, rec := range all {
		cluster := rec.is.(*clusterv1.Cluster)
		judged := func(other *record) bool {
			check := other.is.(*clusterv1.MachineHealthCheck)
			return check.Namespace == cluster.Namespace && check.Spec.ClusterName == cluster.Name && !(acted(check) && machinehealthcheck.Calm(check, cluster))
		}
		if everywhere || slices.ContainsFunc(checks, judged) {
			wanted = append(wanted, rec.key)
			continue
		}
		r.snapshot.SetCounted(rec.key)
		r.snapshot.SetNodes(rec.key, nil)
	}
	return wanted
}

// machinesIn are the machines of some clusters in scope. Of the others none is kept: without their nodes they would look as if these were gone.
func (r *reading) machinesIn(clusters []client.ObjectKey) []task {
	tasks := r.machines()
	r.snapshot.mu.RLock()
	all := len(clusters) == len(r.all(clusterGVK))
	r.snapshot.mu.RUnlock()
	if all {
		return tasks
	}
	tasks[0].keep = func(obj client.Object) bool {
		m, whole := obj.(*clusterv1.Machine)
		return !whole || !r.snapshot.Counted(client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName})
	}
	if r.Cluster != "" || len(clusters) > mostNamed {
		return tasks
	}
	names := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		names = append(names, cluster.Name)
	}
	if of, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.In, names); err == nil {
		tasks[0].options = []client.ListOption{client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)}}
	}
	return tasks
}
