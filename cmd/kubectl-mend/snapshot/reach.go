package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workloadPatience is how long a workload cluster may take to answer. One that is out of reach must not hold up the others for longer.
const workloadPatience = 5 * time.Second

func inParallel(tasks []func()) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, do := range tasks {
		work.Go(func() error {
			do()
			return nil
		})
	}
	_ = work.Wait() // what fails, says so itself
}

// workloads reads the nodes of all workload clusters in scope.
func (r *reading) workloads(ctx context.Context) {
	r.world.mu.RLock()
	clusters := slices.Clone(r.all(clusterv1.GroupVersion.WithKind("Cluster")))
	named := r.naming(r.Node)
	r.world.mu.RUnlock()
	tasks := make([]func(), 0, len(clusters))
	for _, rec := range clusters {
		cluster := rec.is.(*clusterv1.Cluster)
		if r.Node == "" || named[client.ObjectKeyFromObject(cluster)] {
			tasks = append(tasks, func() { r.workload(ctx, cluster) })
		}
	}
	inParallel(tasks)
}

// naming are the clusters with a Machine that names a node.
func (r *reading) naming(node string) map[client.ObjectKey]bool {
	clusters := map[client.ObjectKey]bool{}
	for _, rec := range r.all(machineGVK) {
		if m, whole := rec.is.(*clusterv1.Machine); whole && m.Status.NodeRef.Name == node {
			clusters[client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}] = true
		}
	}
	return clusters
}

func (r *reading) workload(ctx context.Context, cluster *clusterv1.Cluster) {
	key := client.ObjectKeyFromObject(cluster)
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		r.world.SetUnseen(key, "its control plane is not initialized yet", time.Time{})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, workloadPatience)
	defer cancel()
	nodes, err := r.nodes(ctx, key)
	if err != nil {
		r.world.SetUnseen(key, why(err), lostSince(cluster))
		r.world.Lacks("Nodes of cluster "+key.String(), why(err))
		return
	}
	r.world.SetNodes(key, nodes)
}

// lostSince is since when the management cluster cannot reach a workload cluster either; zero if it can.
func lostSince(cluster *clusterv1.Cluster) time.Time {
	probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
	if probe == nil || probe.Status == metav1.ConditionTrue {
		return time.Time{}
	}
	return probe.LastTransitionTime.Time
}

// nodes reads the nodes of a workload cluster, with its kubeconfig from the management cluster, which is kept nowhere.
func (r *reading) nodes(ctx context.Context, cluster client.ObjectKey) ([]corev1.Node, error) {
	data, err := kubeconfig.FromSecret(ctx, r.client, cluster)
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	config, err := harmless(data)
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	config.Timeout, config.QPS, config.WarningHandler = workloadPatience, -1, rest.NoWarnings{}
	reader, err := client.New(config, client.Options{Scheme: r.world.scheme, Mapper: workloadMapper()})
	if err != nil {
		return nil, fmt.Errorf("use its kubeconfig: %w", err)
	}
	list := &corev1.NodeList{}
	if err := reader.List(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, err
	}
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	r.live.workloads[cluster] = reader
	nodes := make([]corev1.Node, 0, len(list.Items))
	for i := range list.Items {
		if kept := slimNode(&list.Items[i]); kept != nil {
			nodes = append(nodes, *kept)
		}
	}
	return nodes, nil
}

// harmless is what a kubeconfig from a Secret says, unless that would run a program or read a file on the machine of the user: who may write the
// Secret is not who runs this.
func harmless(data []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it cannot be parsed") // the error may quote it
	}
	for _, user := range config.AuthInfos {
		switch {
		case user.Exec != nil, user.AuthProvider != nil:
			return nil, errors.New("it names a program to log in with, which is not run here")
		case user.TokenFile != "", user.ClientCertificate != "", user.ClientKey != "":
			return nil, errors.New("it names files, which are not read here")
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, errors.New("it names files, which are not read here")
		}
	}
	return clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// workloadMapper knows the kinds that are read of a workload cluster, so that none has to be asked which it serves.
func workloadMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	for _, is := range inWorkloads {
		scope := meta.RESTScopeRoot
		if is.namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(is.GroupVersionKind, scope)
	}
	return mapper
}
