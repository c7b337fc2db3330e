package fence

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// link is what ClusterCache's clients cannot do, built once for each connection.
type link struct {
	config *rest.Config
	// pods opens a watch on the metadata of the pods of a node, from a version of their list on. It ends with ctx.
	pods func(ctx context.Context, node, since string) (watch.Interface, error)
}

// link returns the link to a cluster: the one at hand if the connection is still the same. It sends nothing.
func (n *Nodes) link(ctx context.Context, cluster client.ObjectKey) (*link, error) {
	// Not with n.mu held: ClusterCache holds a lock of its own when it calls attachmentStore.Watch, which takes n.mu.
	config, err := n.clusters.GetRESTConfig(ctx, cluster)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		delete(n.links, cluster)
		return nil, err
	}
	if l := n.links[cluster]; l != nil && l.config == config {
		return l, nil
	}
	l, err := n.dial(config)
	if err != nil {
		return nil, err
	}
	n.links[cluster] = l
	return l, nil
}

// dial builds a link. client-go shares the TCP connection with ClusterCache's clients, for the configuration is the same but for
// the timeout.
func dial(config *rest.Config) (*link, error) {
	patient := rest.CopyConfig(config)
	patient.Timeout = 0 // ClusterCache's 10 s would end every watch after as long
	pods, err := metadata.NewForConfig(patient)
	if err != nil {
		return nil, fmt.Errorf("build a client for pods: %w", err)
	}
	return &link{
		config: config,
		pods: func(ctx context.Context, node, since string) (watch.Interface, error) {
			return pods.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Watch(ctx, metav1.ListOptions{
				FieldSelector: fields.OneTermEqualSelector(nodeNameField, node).String(), ResourceVersion: since,
			})
		},
	}, nil
}
