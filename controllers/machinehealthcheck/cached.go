package machinehealthcheck

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byCluster is an index of the machine cache itself, by the namespace and name of the Cluster. A list through the client copies every machine.
const byCluster = "kubemend.machinesByCluster"

// machineIndexer returns the store of the machines that c caches, indexed by cluster; nil if c is one of several namespaces, which has several.
func machineIndexer(ctx context.Context, c cache.Cache) (toolscache.Indexer, error) {
	informer, err := c.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache Machines: %w", err)
	}
	shared, one := informer.(toolscache.SharedIndexInformer)
	if !one {
		return nil, nil
	}
	err = shared.AddIndexers(toolscache.Indexers{byCluster: func(obj any) ([]string, error) {
		m, is := obj.(*clusterv1.Machine)
		if !is {
			return nil, fmt.Errorf("index a Machine by its cluster: it is a %T", obj)
		}
		return []string{client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}.String()}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index Machines by cluster: %w", err)
	}
	return shared.GetIndexer(), nil
}

// machinesOf returns the machines of a cluster, in no order. They are shared: read only. Where there is a store of them, a machine that has not
// changed is the same pointer as the last time.
func (r *Reconciler) machinesOf(ctx context.Context, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	if r.machines != nil {
		objs, err := r.machines.ByIndex(byCluster, cluster.String())
		if err != nil {
			return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
		}
		all := make([]*clusterv1.Machine, len(objs))
		for i, obj := range objs {
			all[i] = obj.(*clusterv1.Machine)
		}
		return all, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{clusterIndex: cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	all := make([]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}
