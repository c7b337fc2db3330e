// Command capi-core runs Cluster API's own core controllers and webhooks for the rig.
//
// The controllers and webhooks are upstream's, unchanged; only their set-up is ours, because upstream's program
// cannot bind its webhook server to loopback and outlives the process that started it. This one listens on 127.0.0.1 alone
// and ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1alpha1 "sigs.k8s.io/cluster-api/api/ipam/v1alpha1"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1alpha1 "sigs.k8s.io/cluster-api/api/runtime/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/version"
)

const (
	// name is what upstream calls itself: it ends up in user agents and field managers.
	name     = "cluster-api-controller-manager"
	loopback = "127.0.0.1"
	// resync is upstream's default --sync-period.
	resync = 10 * time.Minute
)

// settings are the command line.
type settings struct {
	kubeconfig  string
	webhookPort int
	webhookCert string
	healthPort  int
	metricsPort int
	leaveOut    []string
	qps         float32
	burst       int
}

func main() {
	s := settings{}
	flags := pflag.NewFlagSet("capi-core", pflag.ExitOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "The management cluster.")
	flags.IntVar(&s.webhookPort, "webhook-port", 0, "The port of the webhooks on 127.0.0.1.")
	flags.StringVar(&s.webhookCert, "webhook-cert-dir", "", "The folder with tls.crt and tls.key for the webhooks.")
	flags.IntVar(&s.healthPort, "health-port", 0, "The port of /healthz and /readyz on 127.0.0.1; 0 leaves them out.")
	flags.IntVar(&s.metricsPort, "metrics-port", 0, "The port of /metrics on 127.0.0.1, without TLS; 0 leaves it out.")
	flags.StringSliceVar(&s.leaveOut, "leave-out", nil, "Controllers that shall not run, for example MachineHealthCheck.")
	flags.Float32Var(&s.qps, "kube-api-qps", 100, "Requests per second to the management cluster.")
	flags.IntVar(&s.burst, "kube-api-burst", 200, "Requests in one burst to the management cluster.")
	feature.MutableGates.AddFlag(flags)
	_ = flags.Parse(os.Args[1:]) // ExitOnError: it never returns an error
	ctrl.SetLogger(klog.Background())

	if err := run(untilStdinCloses(ctrl.SetupSignalHandler()), s); err != nil {
		klog.Background().Error(err, "Cluster API core ends")
		os.Exit(1)
	}
}

// untilStdinCloses ends the context with the standard input: the process that started this one holds the other end of that pipe,
// which closes however that process ends.
func untilStdinCloses(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end of it is the end
		cancel()
	}()
	return ctx
}

func run(ctx context.Context, s settings) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", s.kubeconfig, err)
	}
	cfg.QPS, cfg.Burst = s.qps, s.burst
	cfg.UserAgent = remote.DefaultClusterAPIUserAgent(name)
	if err := version.CheckKubernetesVersion(cfg, version.MinimumKubernetesVersion); err != nil {
		return fmt.Errorf("check the version of the management cluster: %w", err)
	}
	mgr, err := newManager(cfg, s)
	if err != nil {
		return err
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return fmt.Errorf("set up indexes: %w", err)
	}
	clusters, err := setUpControllers(ctx, mgr, s.leaveOut)
	if err != nil {
		return err
	}
	if err := setUpWebhooks(mgr, clusters); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func newManager(cfg *rest.Config, s settings) (ctrl.Manager, error) {
	scheme := newScheme()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			UsePriorityQueue: ptr.To(feature.Gates.Enabled(feature.PriorityQueue)),
		},
		Cache:                  setup.ManagerCacheOptions(scheme, name, "", resync),
		Client:                 setup.ManagerClientOptions(),
		HealthProbeBindAddress: address(s.healthPort),
		Metrics:                metricsserver.Options{BindAddress: address(s.metricsPort)},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: loopback, Port: s.webhookPort, CertDir: s.webhookCert,
		}),
		// The process that ends this one throws the cluster away: nothing is worth waiting for.
		GracefulShutdownTimeout: ptr.To(time.Second),
	})
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return nil, fmt.Errorf("add the ready check: %w", err)
	}
	return mgr, nil
}

// address is a loopback address in the form in which controller-runtime takes it, where "0" means off.
func address(port int) string {
	if port == 0 {
		return "0"
	}
	return fmt.Sprintf("%s:%d", loopback, port)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, storagev1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1.AddToScheme,
		addonsv1beta1.AddToScheme, addonsv1.AddToScheme,
		runtimev1alpha1.AddToScheme, runtimev1.AddToScheme,
		ipamv1alpha1.AddToScheme, ipamv1beta1.AddToScheme, ipamv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
