package machinehealthcheck

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/workload"
)

// byCluster is an index of the machine cache itself, by the namespace and name of the Cluster. A list through the client copies every
// machine.
const byCluster = "kubemend.machinesByCluster"

// machineIndexer returns the store of the machines that c caches, indexed by cluster; nil if c is one of several namespaces, which has
// several.
func machineIndexer(ctx context.Context, c cache.Cache) (toolscache.Indexer, error) {
	informer, err := c.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache Machines: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, nil
	}
	err = shared.AddIndexers(toolscache.Indexers{byCluster: func(obj any) ([]string, error) {
		machine, ok := obj.(*clusterv1.Machine)
		if !ok {
			return nil, fmt.Errorf("index a Machine by its cluster: it is a %T", obj)
		}
		return []string{client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}.String()}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index Machines by cluster: %w", err)
	}
	return shared.GetIndexer(), nil
}

// machinesOf returns the machines of a cluster, in no order. They are shared: read only. Where there is a store of them, a
// machine that has not changed is the same pointer as the last time.
func (r *Reconciler) machinesOf(ctx context.Context, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	if r.machines != nil {
		objs, err := r.machines.ByIndex(byCluster, cluster.String())
		if err != nil {
			return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
		}
		machines := make([]*clusterv1.Machine, len(objs))
		for i, obj := range objs {
			machines[i] = obj.(*clusterv1.Machine)
		}
		return machines, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{clusterIndex: cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	machines := make([]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		machines[i] = &list.Items[i]
	}
	return machines, nil
}

// SlimMachine is the transform of the machine cache. It drops what is not read here: managed fields, what `kubectl apply` leaves in an
// annotation, bootstrap data, addresses, node details. Conditions are kept whole, in both flavours: they are lists that are written back
// as a whole. So is a failure that is final. Texts that nearly all machines have are in memory once.
func SlimMachine(obj any) (any, error) {
	machine, ok := obj.(*clusterv1.Machine)
	if !ok {
		return obj, nil
	}
	slim := &clusterv1.Machine{TypeMeta: machine.TypeMeta, ObjectMeta: machine.ObjectMeta}
	slim.ManagedFields = nil
	delete(slim.Annotations, corev1.LastAppliedConfigAnnotation)
	slim.Labels = make(map[string]string, len(machine.Labels))
	for key, value := range machine.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	slim.Spec = clusterv1.MachineSpec{
		ClusterName: workload.Interned(machine.Spec.ClusterName), ProviderID: machine.Spec.ProviderID,
		FailureDomain: machine.Spec.FailureDomain, InfrastructureRef: machine.Spec.InfrastructureRef,
		Deletion: machine.Spec.Deletion, Bootstrap: clusterv1.Bootstrap{ConfigRef: machine.Spec.Bootstrap.ConfigRef},
	}
	slim.Status = clusterv1.MachineStatus{
		NodeRef: machine.Status.NodeRef, FailureDomain: machine.Status.FailureDomain, Initialization: machine.Status.Initialization,
		Deletion: machine.Status.Deletion, Conditions: slices.Clone(machine.Status.Conditions), // in no more memory than they need
	}
	for i := range slim.Status.Conditions {
		cond := &slim.Status.Conditions[i]
		cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
		cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
	}
	if machine.Status.Deprecated != nil && machine.Status.Deprecated.V1Beta1 != nil {
		slim.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{V1Beta1: &clusterv1.MachineV1Beta1DeprecatedStatus{}}
		slim.Status.Deprecated.V1Beta1.FailureReason = machine.Status.Deprecated.V1Beta1.FailureReason
		slim.Status.Deprecated.V1Beta1.FailureMessage = machine.Status.Deprecated.V1Beta1.FailureMessage
		slim.SetV1Beta1Conditions(slimV1Beta1(machine.GetV1Beta1Conditions()))
	}
	return slim, nil
}

func slimV1Beta1(conditions clusterv1.Conditions) clusterv1.Conditions {
	slim := slices.Clone(conditions)
	for i := range slim {
		cond := &slim[i]
		cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
		cond.Severity = workload.Interned(cond.Severity)
		cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
	}
	return slim
}

// SlimMetadata is the transform of caches of metadata and of everything else that is not judged. Of a check it keeps what was applied, by
// which a field is found that the API server has dropped.
func SlimMetadata(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		if _, check := obj.(*clusterv1.MachineHealthCheck); !check {
			delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
		}
	}
	return obj, nil
}
