// Package program runs one of Cluster API's managers with upstream's controllers and webhooks. The manager listens only on 127.0.0.1 and
// ends when its standard input closes. Upstream's programs can do neither.
package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/contract"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// Loopback is the only address on which a program listens.
	Loopback = "127.0.0.1"
	// Resync is upstream's default --sync-period.
	Resync = 10 * time.Minute
	// RemoteQPS is upstream's default for the requests per second to a workload cluster.
	RemoteQPS = 20
	// RemoteBurst is upstream's default for a burst of such requests.
	RemoteBurst = 30
	// ConditionsGrace is upstream's default --remote-conditions-grace-period.
	ConditionsGrace = 5 * time.Minute
)

// Settings are the common flags of all programs.
type Settings struct {
	kubeconfig  string
	webhookPort int
	webhookCert string
	healthPort  int
	metricsPort int
	qps         float32
	burst       int
}

// AddFlags adds the flags to a flag set.
func (s *Settings) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "The management cluster.")
	flags.IntVar(&s.webhookPort, "webhook-port", 0, "The port of the webhooks on 127.0.0.1.")
	flags.StringVar(&s.webhookCert, "webhook-cert-dir", "", "The folder with tls.crt and tls.key for the webhooks.")
	flags.IntVar(&s.healthPort, "health-port", 0, "The port of /healthz and /readyz on 127.0.0.1; 0 leaves them out.")
	flags.IntVar(&s.metricsPort, "metrics-port", 0, "The port of /metrics on 127.0.0.1, without TLS; 0 leaves it out.")
	flags.Float32Var(&s.qps, "kube-api-qps", 100, "Requests per second to the management cluster.")
	flags.IntVar(&s.burst, "kube-api-burst", 200, "Requests in one burst to the management cluster.")
	feature.MutableGates.AddFlag(flags)
}

// Manager is one of Cluster API's managers.
type Manager struct {
	// Name is upstream's name of the manager, for user agents and field managers.
	Name   string
	Scheme *runtime.Scheme
	Cache  cache.Options
	Client client.Options
	// SetUp sets up the controllers and webhooks.
	SetUp func(context.Context, ctrl.Manager) error
}

// Main runs a manager until it gets a signal or its standard input closes. If the manager fails, Main exits with code 1.
func Main(m Manager, s Settings) {
	ctrl.SetLogger(klog.Background())
	if err := m.run(untilStdinCloses(ctrl.SetupSignalHandler()), s); err != nil {
		klog.Background().Error(err, m.Name+" ends")
		os.Exit(1)
	}
}

// untilStdinCloses ends the context when standard input closes: the parent process holds the other end of that pipe, and the kernel closes
// it however the parent ends.
func untilStdinCloses(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end of it is the end
		cancel()
	}()
	return ctx
}

func (m Manager) run(ctx context.Context, s Settings) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", s.kubeconfig, err)
	}
	cfg.QPS, cfg.Burst = s.qps, s.burst
	cfg.UserAgent = remote.DefaultClusterAPIUserAgent(m.Name)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: m.Scheme,
		Controller: config.Controller{
			UsePriorityQueue: ptr.To(feature.Gates.Enabled(feature.PriorityQueue)),
		},
		Cache:                  m.Cache,
		Client:                 m.Client,
		HealthProbeBindAddress: address(s.healthPort),
		Metrics:                metricsserver.Options{BindAddress: address(s.metricsPort)},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: Loopback, Port: s.webhookPort, CertDir: s.webhookCert,
		}),
		// The cluster is deleted after this process, so there is nothing to finish.
		GracefulShutdownTimeout: ptr.To(time.Second),
	})
	if err != nil {
		return fmt.Errorf("create the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return fmt.Errorf("add the ready check: %w", err)
	}
	if err := m.SetUp(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

// address returns a loopback address for controller-runtime, where "0" means off.
func address(port int) string {
	if port == 0 {
		return "0"
	}
	return fmt.Sprintf("%s:%d", Loopback, port)
}

// Workers returns the options of a controller with n workers.
func Workers(n int) controller.Options { return controller.Options{MaxConcurrentReconciles: n} }

// contracts are the versions of the provider contract that Cluster API supports, the preferred one first.
var contracts = []string{"v1beta2", "v1beta1"}

// ServedVersion returns the apiVersion of a v1beta1 reference to a kind, from the labels of the provider's CRD: the label of a contract
// lists its versions, joined by underscores, and the newest one is returned.
func ServedVersion(ctx context.Context, c client.Reader, gk schema.GroupKind) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName(contract.CalculateCRDName(gk.Group, gk.Kind))
	if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return "", fmt.Errorf("read the CRD of %s: %w", gk, err)
	}
	for _, agreed := range contracts {
		label := crd.Labels[clusterv1.GroupVersion.Group+"/"+agreed]
		if label == "" {
			continue
		}
		newest := slices.MaxFunc(strings.Split(label, "_"), apiversion.CompareKubeAwareVersionStrings)
		return schema.GroupVersion{Group: gk.Group, Version: newest}.String(), nil
	}
	return "", fmt.Errorf("choose a version of %s: CRD %s has no label for contract %s", gk, crd.Name, strings.Join(contracts, " or "))
}
