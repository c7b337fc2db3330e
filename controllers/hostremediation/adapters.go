package hostremediation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Hosts reads hosts, asks for changes of their power, and marks them as unhealthy, so that CAPM3 puts no machine on them; host.Hosts
// implements it for BareMetalHosts. Another provider of power has to keep its contract: every ask and mark is safe to repeat and changes
// nothing of others; what turns a host off or on fails with a conflict if the host has changed since it was read; and Power says no more
// than the provider has itself read from the hardware, with the moment at which it last did.
type Hosts interface {
	Of(ctx context.Context, m *clusterv1.Machine) (host.Found, error)
	Named(ctx context.Context, key client.ObjectKey) (*host.Host, error)
	Refresh(ctx context.Context, found *host.Found) error

	KeepOff(ctx context.Context, h metav1.Object, by host.Remediation) error
	AskReceipt(ctx context.Context, h metav1.Object, by host.Remediation, asked time.Time) error
	Reboot(ctx context.Context, h metav1.Object, by host.Remediation, attempt int) error
	Release(ctx context.Context, h metav1.Object, by host.Remediation) error
	ReleaseUnstored(ctx context.Context, h metav1.Object, by host.Remediation, attempt int) error

	MarkUnhealthy(ctx context.Context, h metav1.Object, machine types.UID) error
	MarkHealthy(ctx context.Context, h metav1.Object, machine types.UID) error
	Disprove(ctx context.Context, h metav1.Object, now time.Time) error
}

// Nodes reads and fences the nodes of hosts, and watches what leaves them; fence.Nodes implements it.
type Nodes interface {
	Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
	Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
	Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error

	Watch(ctx context.Context, cluster client.ObjectKey, node string) error
	Unwatch(cluster client.ObjectKey, node string)
	Forget(cluster client.ObjectKey)
}

// Clusters are the workload clusters; workload.Clusters implements it.
type Clusters interface {
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
}

var (
	_ Hosts    = (*host.Hosts)(nil)
	_ Nodes    = (*fence.Nodes)(nil)
	_ Clusters = (*workload.Clusters)(nil)
)
