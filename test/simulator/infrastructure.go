package simulator

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubernetesVersion is the version that the simulated nodes say they run.
const KubernetesVersion = "v1.36.3"

// Infrastructure plays CAPM3 and the hosts: it provisions Metal3Clusters and Metal3Machines in a management cluster,
// and puts the kubelet of every machine on a free BareMetalHost of its namespace, for which the machine waits.
type Infrastructure struct {
	manager ctrl.Manager
	client  client.Client
	pool    *pool

	mu      sync.Mutex
	sites   map[client.ObjectKey]*site
	tenants map[client.ObjectKey]tenancy
}

// site is where the nodes of one cluster are.
type site struct {
	client   client.Client
	endpoint clusterv1.APIEndpoint
}

// tenancy is what has become of one Metal3Machine.
type tenancy struct {
	kubelet *Kubelet
	host    *Host // which carries the kubelet
}

// NewInfrastructure makes a provider for the management cluster; Start starts it.
func NewInfrastructure(management *rest.Config, hosts *Hosts) (*Infrastructure, error) {
	manager, err := newManager(management)
	if err != nil {
		return nil, err
	}
	i := &Infrastructure{
		manager: manager,
		client:  manager.GetClient(),
		pool:    &pool{client: manager.GetClient(), hosts: hosts},
		sites:   map[client.ObjectKey]*site{},
		tenants: map[client.ObjectKey]tenancy{},
	}
	if err := (&clusterProvisioner{i}).setUp(manager); err != nil {
		return nil, err
	}
	if err := (&machineProvisioner{i}).setUp(manager); err != nil {
		return nil, err
	}
	return i, nil
}

// Start runs the provider until the context ends. Its kubelets end with their hosts.
func (i *Infrastructure) Start(ctx context.Context) error {
	if err := i.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the simulated infrastructure: %w", err)
	}
	return nil
}

// Serve says where the nodes of a Cluster shall appear. Without it the Cluster's infrastructure is never provisioned.
func (i *Infrastructure) Serve(cluster client.ObjectKey, workload *rest.Config) error {
	host, err := url.Parse(workload.Host)
	if err != nil {
		return fmt.Errorf("read the address of cluster %s: %w", cluster, err)
	}
	port, err := strconv.ParseInt(host.Port(), 10, 32)
	if err != nil {
		return fmt.Errorf("read the port of cluster %s: %w", cluster, err)
	}
	workload = rest.CopyConfig(workload)
	workload.Timeout = requestPatience
	direct, err := client.New(workload, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client for cluster %s: %w", cluster, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sites[cluster] = &site{
		client:   direct,
		endpoint: clusterv1.APIEndpoint{Host: host.Hostname(), Port: int32(port)},
	}
	return nil
}

// Kubelet is the kubelet of a machine, or nil if the machine has not been provisioned. The machine, its Metal3Machine
// and its Node have the same name.
func (i *Infrastructure) Kubelet(machine client.ObjectKey) *Kubelet { return i.tenant(machine).kubelet }

// Host is the host that carries a machine, or nil if none does yet.
func (i *Infrastructure) Host(machine client.ObjectKey) *Host { return i.tenant(machine).host }

func (i *Infrastructure) tenant(machine client.ObjectKey) tenancy {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tenants[machine]
}

func (i *Infrastructure) site(cluster client.ObjectKey) *site {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sites[cluster]
}
