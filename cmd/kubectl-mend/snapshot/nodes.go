package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// reachPatience is how long a workload cluster may take until it begins to answer. One that is out of reach must not hold up the others for
// longer; all that it has to say may take as long as that of the management cluster.
const reachPatience = 5 * time.Second

// longestAnswer is how long an answer of a workload cluster may be, in bytes: all nodes at once, 4600 of them with 50 images each. Who
// controls the cluster decides what it answers, on the machine of the person who asks.
const longestAnswer = 64 << 20

// workloads reads the nodes of the workload clusters that are wanted.
func (r *reading) workloads(ctx context.Context, wanted func(client.ObjectKey) bool) {
	clusters := slices.DeleteFunc(All[clusterv1.Cluster](r.snapshot, ""), func(cluster *clusterv1.Cluster) bool {
		return !wanted(client.ObjectKeyFromObject(cluster))
	})
	inParallel(clusters, func(cluster *clusterv1.Cluster) { r.workload(ctx, cluster) })
}

func (r *reading) workload(ctx context.Context, cluster *clusterv1.Cluster) {
	key := client.ObjectKeyFromObject(cluster)
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		r.snapshot.SetUnseen(key, explain.ControlPlaneNotInitialized, time.Time{})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, reader, err := r.nodes(ctx, cluster)
	if err != nil {
		since := time.Time{} // since when the management cluster cannot reach it either
		probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
		if probe != nil && probe.Status != metav1.ConditionTrue {
			since = probe.LastTransitionTime.Time
		}
		r.snapshot.SetUnseen(key, why(err), since)
		r.snapshot.Lacks(NodesOf+key.String(), why(err))
		return
	}
	r.snapshot.SetNodes(key, nodes)
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	r.snapshot.workload(key).live = reader
}

// nodes reads the nodes of a workload cluster, and returns how it can be read.
func (r *reading) nodes(ctx context.Context, cluster *clusterv1.Cluster) ([]corev1.Node, client.Reader, error) {
	key := client.ObjectKeyFromObject(cluster)
	reader, err := r.snapshot.WorkloadReader(ctx, r.client, key)
	if err != nil {
		return nil, nil, err
	}
	list, err := r.nodesWith(ctx, reader, key)
	if err != nil {
		return nil, nil, err
	}
	if kept := workload.Kept(cluster); kept != "" {
		if found, err := workload.UIDOf(ctx, reader); err == nil && kept != found { // what cannot be read says nothing
			return nil, nil, &workload.ChangedError{Cluster: key, Kept: kept, Found: found}
		}
	}
	nodes := make([]corev1.Node, 0, len(list))
	for i := range list { // who controls the cluster decides how long names and texts are, and a page shows them
		if kept := slimNode(&list[i]); kept != nil {
			nodes = append(nodes, *kept)
		}
	}
	return nodes, reader, nil
}

// nodesWith reads the nodes of a workload cluster: those of the machines that were read, or all if one of these is not Ready, for another
// node may have its provider ID.
func (r *reading) nodesWith(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]corev1.Node, error) {
	var nodes []corev1.Node
	known := r.one
	for _, machine := range All[clusterv1.Machine](r.snapshot, cluster.Namespace) {
		if !known || machine.Spec.ClusterName != cluster.Name {
			continue
		}
		node := corev1.Node{}
		if machine.Status.NodeRef.Name != "" {
			err := reader.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, &node)
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			if err == nil {
				nodes = append(nodes, node)
			}
		}
		ready := func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		}
		known = machine.Spec.ProviderID == "" || health.IsNodeOf(machine, &node) && slices.ContainsFunc(node.Status.Conditions, ready)
	}
	if known {
		return nodes, nil
	}
	list := &corev1.NodeList{}
	err := reader.List(ctx, list, fromMemory())
	return list.Items, err
}

// WorkloadReader reads a workload cluster with its kubeconfig from the management cluster, which is kept nowhere.
func (w *Snapshot) WorkloadReader(ctx context.Context, management client.Reader, cluster client.ObjectKey) (client.Reader, error) {
	data, err := kubeconfig.FromSecret(ctx, management, cluster)
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	config, err := workload.RESTConfig(data)
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	config.Timeout, config.QPS, config.WarningHandler = patience, -1, rest.NoWarnings{}
	config.Wrap(answering(reachPatience))
	config.Wrap(workload.Bounded(longestAnswer, w.Clock.Now))
	reader, err := client.New(config, client.Options{Scheme: w.scheme, Mapper: inWorkloads()})
	if err != nil {
		return nil, fmt.Errorf("use its kubeconfig: %w", err)
	}
	return reader, nil
}

// inWorkloads knows the kinds that anybody reads in a workload cluster, so that none has to be asked which kinds it serves.
func inWorkloads() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		corev1.SchemeGroupVersion, policyv1.SchemeGroupVersion, storagev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
	})
	for _, gvk := range []schema.GroupVersionKind{namespaceGVK, nodeGVK, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")} {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	for _, gvk := range []schema.GroupVersionKind{podGVK, budgetGVK, leaseGVK} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return mapper
}

// answering ends requests to which no answer has begun in time, however long the rest of it takes then.
func answering(within time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			ctx, end := context.WithCancel(request.Context()) // while the answer is read, it lasts as long as the request
			late := time.AfterFunc(within, end)
			response, err := next.RoundTrip(request.WithContext(ctx))
			if began := late.Stop(); began || request.Context().Err() != nil {
				return response, err
			}
			if response != nil {
				err = errors.Join(err, response.Body.Close())
			}
			return nil, errors.Join(err, context.DeadlineExceeded)
		})
	}
}
