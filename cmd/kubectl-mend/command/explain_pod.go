package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// nodeOf is the node that a pod runs on: of the management cluster, or of the workload cluster of a Cluster in namespace. There the pod
// needs a namespace of its own, since --namespace is that of the Cluster.
func (o *Options) nodeOf(ctx context.Context, pod, namespace, cluster string) (subject, error) {
	key := client.ObjectKey{Namespace: namespace, Name: pod}
	in, name, qualified := strings.Cut(pod, "/")
	if qualified {
		key = client.ObjectKey{Namespace: in, Name: name}
	}
	switch {
	case o.from != "":
		return subject{}, Exit{Misused, errors.New("--from: a record has no pods: name the node, as node/NAME")}
	case !qualified && (cluster != "" || namespace == ""):
		return subject{}, Exit{Misused, fmt.Errorf("pod/%[1]s: name its namespace too, as pod/NAMESPACE/%[1]s", pod)}
	case cluster != "" && namespace == "":
		return subject{}, Exit{Misused, fmt.Errorf("say with -n in which namespace Cluster %s is", cluster)}
	}
	management, err := o.client()
	if err != nil {
		return subject{}, err
	}
	reader, where := client.Reader(management), "the management cluster; --cluster reads a workload cluster"
	if cluster != "" {
		where = "Cluster " + cluster
		reader, err = snapshot.WorkloadReader(ctx, management, client.ObjectKey{Namespace: namespace, Name: cluster})
		if err != nil {
			return subject{}, fmt.Errorf("reach Cluster %s: %w", cluster, err)
		}
	}
	found := &corev1.Pod{}
	switch err := reader.Get(ctx, key, found); {
	case client.IgnoreNotFound(err) != nil:
		return subject{}, fmt.Errorf("read Pod %s: %w", key, err)
	case err != nil:
		return subject{}, fmt.Errorf("there is no Pod %s in %s", key, where)
	case found.Spec.NodeName == "":
		return subject{}, fmt.Errorf("the Pod %s is on no node", key)
	}
	return subject{kind: nodeKind, name: found.Spec.NodeName}, nil
}
