package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// reachPatience is how long a workload cluster may take until it begins to answer. One that is out of reach must not hold up the others for longer;
// all that it has to say may take as long as that of the management cluster.
const reachPatience = 5 * time.Second

// longestAnswer is how long an answer of a workload cluster may be, in bytes: all nodes at once, 4600 of them with 50 images each. Who controls the cluster
// decides what it answers, on the machine of the person who asks.
const longestAnswer = 64 << 20

// workloads reads the nodes of the workload clusters that are wanted.
func (r *reading) workloads(ctx context.Context, wanted func(*clusterv1.Cluster) bool) {
	var tasks []func()
	for _, c := range All[clusterv1.Cluster](r.snapshot, "") {
		if wanted(c) {
			tasks = append(tasks, func() { r.workload(ctx, c) })
		}
	}
	inParallel(tasks)
}

func (r *reading) workload(ctx context.Context, cluster *clusterv1.Cluster) {
	key := client.ObjectKeyFromObject(cluster)
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		r.snapshot.SetUnseen(key, explain.ControlPlaneNotInitialized, time.Time{})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, err := r.nodes(ctx, cluster)
	if err != nil {
		since := time.Time{} // since when the management cluster cannot reach it either
		probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
		if probe != nil && probe.Status != metav1.ConditionTrue {
			since = probe.LastTransitionTime.Time
		}
		r.snapshot.SetUnseen(key, why(err), since)
		r.snapshot.Lacks("Nodes of cluster "+key.String(), why(err))
		return
	}
	r.snapshot.SetNodes(key, nodes)
}

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

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

// nodes reads the nodes of a workload cluster.
func (r *reading) nodes(ctx context.Context, c *clusterv1.Cluster) ([]corev1.Node, error) {
	cluster := client.ObjectKeyFromObject(c)
	reader, err := r.snapshot.WorkloadReader(ctx, r.client, cluster)
	if err != nil {
		return nil, err
	}
	all, err := r.nodesWith(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	if kept := workload.Kept(c); kept != "" {
		if found, err := workload.UIDOf(ctx, reader); err == nil && kept != found { // what cannot be read says nothing
			return nil, &workload.ChangedError{Cluster: cluster, Kept: kept, Found: found}
		}
	}
	r.mu.Lock()
	r.live[cluster] = reader
	r.mu.Unlock()
	nodes := make([]corev1.Node, 0, len(all))
	for i := range all { // who controls the cluster decides how long names and texts are, and a page shows them
		if kept := slimNode(&all[i]); kept != nil {
			nodes = append(nodes, *kept)
		}
	}
	return nodes, nil
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
	known := empty(w.scheme, inWorkloads).RESTMapper() // so that no cluster has to be asked which kinds it serves
	reader, err := client.New(config, client.Options{Scheme: w.scheme, Mapper: known})
	if err != nil {
		return nil, fmt.Errorf("use its kubeconfig: %w", err)
	}
	return reader, nil
}

// nodesWith reads the nodes of a workload cluster: those of the machines that were read, or all if one of these is not Ready, for another
// node may have its provider ID.
func (r *reading) nodesWith(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]corev1.Node, error) {
	var nodes []corev1.Node
	known := r.Machine != ""
	for _, m := range All[clusterv1.Machine](r.snapshot, cluster.Namespace) {
		if !known || m.Spec.ClusterName != cluster.Name {
			continue
		}
		node := corev1.Node{}
		if m.Status.NodeRef.Name != "" {
			err := reader.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &node)
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			if err == nil {
				nodes = append(nodes, node)
			}
		}
		ready := func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		known = m.Spec.ProviderID == "" || health.IsNodeOf(m, &node) && slices.ContainsFunc(node.Status.Conditions, ready)
	}
	if known {
		return nodes, nil
	}
	list := &corev1.NodeList{}
	err := reader.List(ctx, list, fromMemory())
	return list.Items, err
}
