package hostremediation

import (
	"context"
	"errors"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/workload"
)

//go:generate mockgen -source=adapters.go -destination=mocks_test.go -package=hostremediation -exclude_interfaces=Hosts,Nodes,HostReader,NodeReader,NodeWatcher,Clusters,Sight -write_package_comment=false

// Hosts is what is asked of bare-metal hosts; host.Hosts does it.
type Hosts interface {
	HostReader
	HostPower
	HostMarker
}

// HostReader reads hosts.
type HostReader interface {
	Of(ctx context.Context, m *clusterv1.Machine) (host.Found, error)
	Named(ctx context.Context, namespace, name string) (*bmov1alpha1.BareMetalHost, error)
	Refresh(ctx context.Context, found *host.Found) error
}

// HostPower asks something of the power of a host.
type HostPower interface {
	KeepOff(ctx context.Context, h *bmov1alpha1.BareMetalHost, by host.Remediation) error
	AskReceipt(ctx context.Context, h *bmov1alpha1.BareMetalHost, by host.Remediation, asked time.Time) error
	Reboot(ctx context.Context, h *bmov1alpha1.BareMetalHost, by host.Remediation, attempt int) error
	Release(ctx context.Context, h *bmov1alpha1.BareMetalHost, by host.Remediation) error
}

// HostMarker marks hosts on which no machine is to be put.
type HostMarker interface {
	MarkUnhealthy(ctx context.Context, h *bmov1alpha1.BareMetalHost, machine types.UID) error
	MarkHealthy(ctx context.Context, h *bmov1alpha1.BareMetalHost, machine types.UID) error
}

// Nodes is what is asked of the nodes of hosts; fence.Nodes does it.
type Nodes interface {
	NodeReader
	NodeFencer
	NodeWatcher
}

// NodeReader reads a node, and how one of its cluster is to be fenced.
type NodeReader interface {
	Sight
	ModeFor(ctx context.Context, cluster client.ObjectKey, override fence.Mode) (fence.Mode, error)
}

// NodeFencer fences nodes.
type NodeFencer interface {
	Fence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner, mode fence.Mode, now time.Time) error
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner, saved fence.Backup) error
	Disown(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
}

// NodeWatcher tells of what leaves a node.
type NodeWatcher interface {
	Watch(ctx context.Context, cluster client.ObjectKey, node string, seen fence.Seen) error
	Unwatch(cluster client.ObjectKey, node string)
	Forget(cluster client.ObjectKey)
}

// Sight is what a look asks of nodes; fence.Onlooker has it, and all Nodes.
type Sight interface {
	Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
}

// Sighted returns the Nodes of a Reconciler that only looks: what would change a node is refused.
func Sighted(s Sight) Nodes { return sighted{s} }

type sighted struct{ Sight }

var errSighted = errors.New("nodes are only looked at")

// ModeFor is refused.
func (sighted) ModeFor(context.Context, client.ObjectKey, fence.Mode) (fence.Mode, error) {
	return "", errSighted
}

// Fence is refused.
func (sighted) Fence(context.Context, client.ObjectKey, *corev1.Node, fence.Owner, fence.Mode, time.Time) error {
	return errSighted
}

// Unfence is refused.
func (sighted) Unfence(context.Context, client.ObjectKey, *corev1.Node, fence.Owner, fence.Backup) error {
	return errSighted
}

// Disown is refused.
func (sighted) Disown(context.Context, client.ObjectKey, *corev1.Node, fence.Owner) error {
	return errSighted
}

// Watch is refused.
func (sighted) Watch(context.Context, client.ObjectKey, string, fence.Seen) error { return errSighted }

// Unwatch does nothing: nothing is watched.
func (sighted) Unwatch(client.ObjectKey, string) {}

// Forget does nothing: nothing is kept.
func (sighted) Forget(client.ObjectKey) {}

// Clusters is what is seen of workload clusters from here; workload.Clusters sees it.
type Clusters interface {
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
}

var (
	_ Hosts    = (*host.Hosts)(nil)
	_ Nodes    = (*fence.Nodes)(nil)
	_ Sight    = fence.Onlooker{}
	_ Clusters = (*workload.Clusters)(nil)
)
