package simulator

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// KubernetesVersion is the version that the simulated nodes say they run.
const KubernetesVersion = "v1.36.3"

// requestPatience bounds every request of a player: an API server that is stopped must not hold one for ever.
const requestPatience = 10 * time.Second

// InfrastructureOptions are the knobs of an infrastructure provider; the zero value provisions at once.
type InfrastructureOptions struct {
	// Delay is how long the provisioning of a machine takes. SetDelay changes it.
	Delay time.Duration
	// Every and Heartbeat are those of the kubelets; see KubeletOptions.
	Every, Heartbeat time.Duration
	// Logger receives the log of the provider; nothing is logged if it is not set.
	Logger logr.Logger
}

// Infrastructure plays CAPM3 and the hosts: it provisions Metal3Clusters and Metal3Machines in a management cluster,
// and runs the kubelet of every machine that it has provisioned.
type Infrastructure struct {
	manager ctrl.Manager
	client  client.Client
	options InfrastructureOptions

	mu      sync.Mutex
	delay   time.Duration
	sites   map[client.ObjectKey]*site
	hosts   map[client.ObjectKey]*host
	refuses func(machine client.ObjectKey) bool
}

// site is where the nodes of one cluster are.
type site struct {
	client   client.Client
	endpoint clusterv1.APIEndpoint
}

// host is what has become of one Metal3Machine.
type host struct {
	uid     types.UID
	begun   time.Time
	kubelet *Kubelet
}

// NewInfrastructure makes a provider for the management cluster; Start starts it.
func NewInfrastructure(management *rest.Config, o InfrastructureOptions) (*Infrastructure, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	if o.Logger.GetSink() == nil {
		o.Logger = logr.New(logf.NullLogSink{}) // a manager takes a logger without a sink for one that is not set
	}
	manager, err := ctrl.NewManager(management, ctrl.Options{
		Scheme:  scheme,
		Logger:  o.Logger,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		// Tests start one after another in the same process, and the check is about metrics, which are off.
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(requestPatience),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager of the simulated infrastructure: %w", err)
	}
	i := &Infrastructure{
		manager: manager,
		client:  manager.GetClient(),
		options: o,
		delay:   o.Delay,
		sites:   map[client.ObjectKey]*site{},
		hosts:   map[client.ObjectKey]*host{},
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

// SetDelay changes how long the provisioning of a machine takes.
func (i *Infrastructure) SetDelay(delay time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.delay = delay
}

// RefuseToStart chooses machines whose host is provisioned, but whose kubelet does not come up by itself: those for
// which the function is true, from now on. Nil chooses none.
func (i *Infrastructure) RefuseToStart(refuses func(machine client.ObjectKey) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refuses = refuses
}

// Kubelet is the kubelet of a machine, or nil if the machine has not been provisioned. The machine, its Metal3Machine
// and its Node have the same name.
func (i *Infrastructure) Kubelet(machine client.ObjectKey) *Kubelet {
	i.mu.Lock()
	defer i.mu.Unlock()
	if h := i.hosts[machine]; h != nil {
		return h.kubelet
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
	for _, h := range i.hosts {
		if h.kubelet != nil {
			running = append(running, h.kubelet)
		}
	}
	i.mu.Unlock()
	var stops sync.WaitGroup
	for _, k := range running {
		stops.Go(k.Stop)
	}
	stops.Wait()
}
