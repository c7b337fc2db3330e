package simulator

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubernetesVersion is the version that the simulated nodes say they run.
const KubernetesVersion = "v1.36.3"

// InfrastructureOptions are the knobs of an infrastructure provider; the zero value provisions at once.
type InfrastructureOptions struct {
	// Hosts are a pool: every Metal3Machine is put on a free BareMetalHost of its namespace, and waits for one. Without
	// it a machine has a host of its own, of which nothing can be seen.
	Hosts *Hosts
	// Logger receives the log of the provider; nothing is logged if it is not set.
	Logger logr.Logger
}

// Infrastructure plays CAPM3 and the hosts: it provisions Metal3Clusters and Metal3Machines in a management cluster,
// and runs the kubelet of every machine that it has provisioned.
type Infrastructure struct {
	manager ctrl.Manager
	client  client.Client
	options InfrastructureOptions
	pool    *pool // nil if every machine has a host of its own

	mu      sync.Mutex
	sites   map[client.ObjectKey]*site
	tenants map[client.ObjectKey]*tenancy
}

// site is where the nodes of one cluster are.
type site struct {
	client   client.Client
	endpoint clusterv1.APIEndpoint
}

// tenancy is what has become of one Metal3Machine.
type tenancy struct {
	uid     types.UID
	kubelet *Kubelet
	// host is the one of the pool that carries the kubelet; nil without a pool.
	host *Host
}

// NewInfrastructure makes a provider for the management cluster; Start starts it.
func NewInfrastructure(management *rest.Config, o InfrastructureOptions) (*Infrastructure, error) {
	manager, err := newManager(management, o.Logger)
	if err != nil {
		return nil, err
	}
	i := &Infrastructure{
		manager: manager,
		client:  manager.GetClient(),
		options: o,
		sites:   map[client.ObjectKey]*site{},
		tenants: map[client.ObjectKey]*tenancy{},
	}
	if o.Hosts != nil {
		i.pool = &pool{client: i.client, hosts: o.Hosts}
	}
	if err := (&clusterProvisioner{i}).setUp(manager); err != nil {
		return nil, err
	}
	if err := (&machineProvisioner{i}).setUp(manager); err != nil {
		return nil, err
	}
	return i, nil
}

// Start runs the provider until the context ends; then it also stops every kubelet.
func (i *Infrastructure) Start(ctx context.Context) error {
	defer i.stopKubelets()
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
func (i *Infrastructure) Kubelet(machine client.ObjectKey) *Kubelet {
	i.mu.Lock()
	defer i.mu.Unlock()
	if t := i.tenants[machine]; t != nil {
		return t.kubelet
	}
	return nil
}

// Host is the host of the pool that carries a machine, or nil if none does yet.
func (i *Infrastructure) Host(machine client.ObjectKey) *Host {
	i.mu.Lock()
	defer i.mu.Unlock()
	if t := i.tenants[machine]; t != nil {
		return t.host
	}
	return nil
}

func (i *Infrastructure) site(cluster client.ObjectKey) *site {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sites[cluster]
}

func (i *Infrastructure) stopKubelets() {
	i.mu.Lock()
	var running []*Kubelet
	for _, t := range i.tenants {
		if t.kubelet != nil {
			running = append(running, t.kubelet)
		}
	}
	i.mu.Unlock()
	var stops sync.WaitGroup
	for _, k := range running {
		stops.Go(k.Stop)
	}
	stops.Wait()
}
