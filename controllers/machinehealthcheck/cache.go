package machinehealthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/workload"
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

// machinesOf returns the machines of a cluster, in no order. They are shared: read only. Where there is a store of them, a
// machine that has not changed is the same pointer as the last time.
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

// lastApplied is what `kubectl apply` leaves on an object: the object once more.
const lastApplied = corev1.LastAppliedConfigAnnotation

// yes and no are the values of all pointers to a bool in the cache.
var yes, no = true, false

// shared is is, pointing to one of two values.
func shared(is *bool) *bool {
	switch {
	case is == nil:
		return nil
	case *is:
		return &yes
	}
	return &no
}

// SlimMachine is the transform of the machine cache. It drops what is not read here: managed fields, copies of the object
// in annotations, bootstrap data, addresses, node details. Conditions are kept whole, in both flavours: they
// are lists that are written back as a whole. So is a failure that is final.
func SlimMachine(obj any) (any, error) {
	m, ok := obj.(*clusterv1.Machine)
	if !ok {
		return obj, nil
	}
	slim := &clusterv1.Machine{TypeMeta: m.TypeMeta, ObjectMeta: m.ObjectMeta}
	slim.ManagedFields = nil
	slim.Spec.ClusterName = workload.Interned(m.Spec.ClusterName)
	slim.Spec.ProviderID, slim.Spec.FailureDomain = m.Spec.ProviderID, workload.Interned(m.Spec.FailureDomain)
	slim.Status.FailureDomain = workload.Interned(m.Status.FailureDomain)
	slim.Spec.InfrastructureRef = m.Spec.InfrastructureRef
	ref := &slim.Spec.InfrastructureRef
	ref.APIGroup, ref.Kind = workload.Interned(ref.APIGroup), workload.Interned(ref.Kind)
	slim.Spec.Deletion, slim.Status.Deletion = m.Spec.Deletion, m.Status.Deletion
	slim.Status.Initialization = clusterv1.MachineInitializationStatus{
		InfrastructureProvisioned:  shared(m.Status.Initialization.InfrastructureProvisioned),
		BootstrapDataSecretCreated: shared(m.Status.Initialization.BootstrapDataSecretCreated),
	}
	if config := m.Spec.Bootstrap.ConfigRef; config.IsDefined() {
		slim.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: workload.Interned(config.APIGroup), Kind: workload.Interned(config.Kind), Name: config.Name,
		}
	}
	slim.APIVersion, slim.Kind = workload.Interned(m.APIVersion), workload.Interned(m.Kind)
	slim.Namespace = workload.Interned(m.Namespace)
	slim.Labels, slim.Annotations = make(map[string]string, len(m.Labels)), nil
	for key, value := range m.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	for key, value := range m.Annotations {
		if key == lastApplied {
			continue
		}
		if slim.Annotations == nil {
			slim.Annotations = make(map[string]string, len(m.Annotations))
		}
		slim.Annotations[workload.Interned(key)] = value
	}
	slim.Status.NodeRef = m.Status.NodeRef
	slimConditions(slim, m)
	if finalFailure(m) != "" {
		if slim.Status.Deprecated == nil {
			slim.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{V1Beta1: &clusterv1.MachineV1Beta1DeprecatedStatus{}}
		}
		slim.Status.Deprecated.V1Beta1.FailureReason = m.Status.Deprecated.V1Beta1.FailureReason
		slim.Status.Deprecated.V1Beta1.FailureMessage = m.Status.Deprecated.V1Beta1.FailureMessage
	}
	return slim, nil
}

// slimConditions gives slim the conditions of m, in both flavours, with texts that machines share.
func slimConditions(slim, m *clusterv1.Machine) {
	slim.Status.Conditions = exact(m.Status.Conditions)
	for i := range slim.Status.Conditions {
		c := &slim.Status.Conditions[i]
		c.Type, c.Status = workload.Interned(c.Type), workload.Interned(c.Status)
		c.Reason, c.Message = workload.Interned(c.Reason), workload.Interned(c.Message)
	}
	if v1beta1 := m.GetV1Beta1Conditions(); v1beta1 != nil {
		v1beta1 = exact(v1beta1)
		for i := range v1beta1 {
			c := &v1beta1[i]
			c.Type, c.Status, c.Severity = workload.Interned(c.Type), workload.Interned(c.Status), workload.Interned(c.Severity)
			c.Reason, c.Message = workload.Interned(c.Reason), workload.Interned(c.Message)
		}
		slim.SetV1Beta1Conditions(v1beta1)
	}
}

// exact is list in no more memory than it needs: a decoder lets lists grow by half, of which as much stays unused.
func exact[T any](list []T) []T { return append(make([]T, 0, len(list)), list...) }

// SlimMetadata is the transform of caches of metadata and of everything else that is not judged.
func SlimMetadata(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), lastApplied)
	}
	return obj, nil
}
