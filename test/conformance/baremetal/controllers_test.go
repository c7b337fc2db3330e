package baremetal

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/hostremediation/sweeper"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/suite"
)

// controllers are those of one environment, as main.go sets them up, with the environment's clock and for its namespace alone.
type controllers struct {
	mgr      ctrl.Manager
	cc       clustercache.ClusterCache
	clusters *workload.Clusters
	writer   client.Client
	options  controller.Options
	end      func()
}

// wanted is what a spec may want of its controllers.
type wanted struct {
	fencing fence.Mode
	checks  bool          // the MachineHealthCheck controller, too
	sweeps  time.Duration // for how long an orphaned annotation stays; 0 for ever
	down    bool          // the workload cluster cannot be connected to
	mute    bool          // events go nowhere, which saves time
}

// start starts the controllers of an environment, for the first time or after kill.
func (s *environment) start() {
	GinkgoHelper()
	c := &controllers{options: controller.Options{MaxConcurrentReconciles: 5, NewQueue: s.clock.NewQueue}}
	ctx, stop := context.WithCancel(context.Background())
	var err error
	c.mgr, err = ctrl.NewManager(suite.Unhurried(way.Config()), s.managerOptions())
	Expect(err).NotTo(HaveOccurred())
	c.writer = client.WithFieldOwner(c.mgr.GetClient(), mendv1.FieldOwner)
	c.connect(ctx)
	c.remediate(ctx, s)
	if s.wanted.checks {
		c.check(ctx, s)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.mgr.Start(ctx) }()
	c.end = sync.OnceFunc(func() {
		stop()
		// ClusterCache may be sending an event to a watcher that is gone. In a process of its own that would end with it.
		Expect(<-ended).To(Or(Succeed(), MatchError(context.DeadlineExceeded)))
		c.cc.(interface{ Shutdown() }).Shutdown()
	})
	s.controllers = c
	if !s.wanted.down {
		Eventually(func() error {
			_, err := c.cc.GetClient(ctx, client.ObjectKeyFromObject(s.cluster))
			return err
		}).Should(Succeed())
	}
}

// kill ends the controllers. What they were about to write is not written.
func (s *environment) kill() {
	GinkgoHelper()
	if s.controllers != nil {
		s.controllers.end()
	}
	s.controllers = nil
}

func (s *environment) managerOptions() ctrl.Options {
	return ctrl.Options{
		Scheme: scheme,
		Logger: s.log.logger(),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
			DefaultTransform:  machinehealthcheck.SlimMetadata,
			ByObject: map[client.Object]cache.ByObject{
				&clusterv1.Machine{}: {Transform: machinehealthcheck.SlimMachine}, &bmov1alpha1.BareMetalHost{}: {Transform: host.SlimHost},
				&corev1.Secret{}: {Transform: workload.SlimSecret},
			},
		},
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)}, // there are many environments
		GracefulShutdownTimeout: ptr.To(2 * time.Second),
	}
}

func (c *controllers) connect(ctx context.Context) {
	GinkgoHelper()
	secrets, err := setup.CreateSecretCachingClient(c.mgr)
	Expect(err).NotTo(HaveOccurred())
	c.cc, err = clustercache.SetupWithManager(ctx, c.mgr, clustercache.Options{
		SecretClient: secrets,
		Cache: clustercache.CacheOptions{
			DefaultTransform: machinehealthcheck.SlimMetadata,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: workload.SlimNode}, &storagev1.VolumeAttachment{}: {Transform: fence.SlimAttachment},
			},
		},
		Client: clustercache.ClientOptions{QPS: 100, Burst: 200, UserAgent: "conformance"},
	}, controller.Options{MaxConcurrentReconciles: 1})
	Expect(err).NotTo(HaveOccurred())
	c.clusters = workload.NewClusters(c.cc)
}

func (c *controllers) remediate(ctx context.Context, s *environment) {
	GinkgoHelper()
	left, claims := &enqueue.Broadcast[fence.Place]{}, &hostremediation.Claims{}
	nodes := fence.NewNodes(c.cc, left.Send)
	Expect(c.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		nodes.Close()
		return nil
	}))).To(Succeed())
	recorder := c.mgr.GetEventRecorder("kubemend")
	if s.wanted.mute {
		recorder = &events.FakeRecorder{}
	}
	installed := func() ([]remediation.Kind, error) {
		return []remediation.Kind{remediation.Metal3, remediation.Own}, nil
	}
	for _, k := range kinds {
		Expect((&hostremediation.Reconciler{
			Kind: k.Kind, Installed: installed, Client: c.writer, Live: c.mgr.GetAPIReader(),
			Hosts: &host.Hosts{Client: c.writer, Live: c.mgr.GetAPIReader()}, Clusters: c.clusters, Nodes: nodes, Fencer: nodes, Left: left, Claims: claims,
			Fencing: s.wanted.fencing, Recorder: recorder, Clock: s.clock,
		}).SetupWithManager(ctx, c.mgr, c.cc, c.options)).To(Succeed())
	}
	if s.wanted.sweeps > 0 {
		Expect((&sweeper.Hosts{
			Installed: installed, Client: c.writer, Live: c.mgr.GetAPIReader(),
			Hosts: &host.Hosts{Client: c.writer, Live: c.mgr.GetAPIReader()}, Recorder: recorder, Clock: s.clock, Grace: s.wanted.sweeps,
		}).SetupWithManager(c.mgr, c.options)).To(Succeed())
	}
}

func (c *controllers) check(ctx context.Context, s *environment) {
	GinkgoHelper()
	Expect((&machinehealthcheck.Reconciler{
		Client: c.writer, Clusters: c.clusters,
		Requests: &remediationrequest.Requests{Client: c.writer, Live: c.mgr.GetAPIReader()}, Kinds: remediationrequest.NewKinds(c.mgr.GetCache(), c.mgr.GetAPIReader(), s.namespace, remediationrequest.NewMetadata),
		Recorder: c.mgr.GetEventRecorder("kubemend"), Clock: s.clock, Unclaimed: machinehealthcheck.Act, Resync: 10 * time.Minute,
	}).SetupWithManager(ctx, c.mgr, c.cc, c.options)).To(Succeed())
}

// record is the log of an environment's controllers, for when a spec fails.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, fmt.Sprintf("%s %s", prefix, args))
	}, funcr.Options{LogTimestamp: true})
}

// tail is the end of the log.
func (r *record) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	const last = 80
	return strings.Join(r.lines[max(0, len(r.lines)-last):], "\n")
}
