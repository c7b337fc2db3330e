package nodes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/suite"
)

// start starts the controller of an environment as setup/nodehealthcheck.go does, for the first time or after kill: with the environment's clock, and for its nodes,
// checks and namespaces alone.
func (s *environment) start() {
	GinkgoHelper()
	if s.memory != nil {
		s.startInMemory()
		return
	}
	kubeconfig, err := way.Workload(s.name)
	Expect(err).NotTo(HaveOccurred())
	through, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	through.Impersonate.UserName = s.wanted.user
	ctx, stop := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(suite.Unhurried(through), s.managerOptions())
	Expect(err).NotTo(HaveOccurred())
	s.control(mgr)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.kill = sync.OnceFunc(func() {
		s.ears = nil
		stop()
		Expect(<-ended).To(Or(Succeed(), MatchError(context.DeadlineExceeded)))
	})
	Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
}

func (s *environment) managerOptions() ctrl.Options {
	return ctrl.Options{
		Scheme:                  scheme,
		Logger:                  s.logger(),
		Cache:                   cache.Options{DefaultNamespaces: s.namespaces()},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)}, // there are many environments
		GracefulShutdownTimeout: ptr.To(2 * time.Second),
	}
}

func (s *environment) namespaces() map[string]cache.Config {
	return map[string]cache.Config{s.name: {}, s.elsewhere: {}, s.missing: {}, machineAPI: {}}
}

func (s *environment) control(mgr ctrl.Manager) {
	GinkgoHelper()
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{environmentLabel: s.name})}
	node := ours
	node.Transform = nodehealthcheck.SlimNode
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mapper, DefaultTransform: s.births.transform, DefaultNamespaces: s.namespaces(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:           node,
			&nhcv1.NodeHealthCheck{}: ours,
			&coordinationv1.Lease{}:  {Namespaces: map[string]cache.Config{s.leases: {}}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(mgr.Add(own)).To(Succeed())
	whole, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: own, Unstructured: true},
	})
	Expect(err).NotTo(HaveOccurred())
	writer := client.WithFieldOwner(dated{whole, s.births}, mendv1.FieldOwner)
	s.recorder = &teller{EventRecorder: &events.FakeRecorder{}}
	if !s.wanted.mute {
		s.recorder.EventRecorder = mgr.GetEventRecorder("NodeHealthCheck")
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	Expect(err).NotTo(HaveOccurred())
	kinds := remediationrequest.NewKinds(own, mgr.GetAPIReader(), "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	kinds.KeepWhileAny()
	kinds.AskFirst(remediationrequest.MayWatchAll(writer, mapper))
	s.ears = &ears{environment: s, own: own, management: mgr.GetClient(), kinds: kinds}
	Expect((&nodehealthcheck.Reconciler{
		Client: writer, Management: mgr.GetClient(), Live: alone{mgr.GetAPIReader(), s.namespaces()}, Mapper: mapper, Kinds: kinds, Watches: kinds,
		Requests:  &remediationrequest.Requests{Client: writer, Live: mgr.GetAPIReader()},
		Discovery: api,
		Installed: (&crdgate.Reconciler{Client: mgr.GetClient()}).Installed,
		Recorder:  s.recorder, Clock: s.pace, Log: mgr.GetLogger(), LeaseNamespace: s.leases, Resync: s.wanted.resync,
	}).SetupWithManager(mgr, own, controller.Options{MaxConcurrentReconciles: 5, NewQueue: s.pace.NewQueue})).To(Succeed())
}

// alone reads as if the requests of the environment were all that there are: those of others may still be on their way out.
type alone struct {
	client.Reader
	namespaces map[string]cache.Config
}

func (a alone) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := a.Reader.List(ctx, list, opts...)
	if all, is := list.(*metav1.PartialObjectMetadataList); is {
		all.Items = slices.DeleteFunc(all.Items, func(m metav1.PartialObjectMetadata) bool {
			_, ours := a.namespaces[m.Namespace]
			return m.Namespace != "" && !ours
		})
	}
	return err
}

// born is when a request was made, by the clock of the environment.
func (s *environment) born(u *unstructured.Unstructured) time.Time {
	if s.memory != nil {
		return u.GetCreationTimestamp().Time
	}
	return s.births.when(u.GetUID()).Time
}

// births are the moments, by the clock of an environment, at which objects were made. An API server stamps what it makes by the only clock that it
// knows, and to a controller whose clock has leapt a new request would seem old.
type births struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[types.UID]metav1.Time
}

// when is the birth of an object; it is now if it was not seen before.
func (b *births) when(uid types.UID) metav1.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, known := b.of[uid]
	if !known {
		at = metav1.NewTime(b.now().Truncate(time.Second))
		b.of[uid] = at
	}
	return at
}

// transform is that of the controller's cache, with the births of the environment.
func (b *births) transform(obj any) (any, error) {
	if u, is := obj.(*unstructured.Unstructured); is {
		u.SetCreationTimestamp(b.when(u.GetUID()))
	}
	return nodehealthcheck.Slim(obj)
}

// dated is a client whose answers have the births of the environment.
type dated struct {
	client.Client
	births *births
}

// Create creates obj.
func (d dated) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := d.Client.Create(ctx, obj, opts...)
	d.date(obj, err)
	return err
}

// Patch patches obj.
func (d dated) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := d.Client.Patch(ctx, obj, patch, opts...)
	d.date(obj, err)
	return err
}

func (d dated) date(obj client.Object, err error) {
	if u, is := obj.(*unstructured.Unstructured); is && err == nil {
		u.SetCreationTimestamp(d.births.when(u.GetUID()))
	}
}

// teller sends events, and counts those that it was given: they arrive later.
type teller struct {
	events.EventRecorder
	told atomic.Int32
}

// Eventf sends an event.
func (t *teller) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	t.told.Add(1)
	t.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
}

// logger writes where it is shown if a spec fails, and keeps what the controller says for specs about that.
func (s *environment) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		GinkgoWriter.Printf("%s: %s %s\n", s.name, prefix, args)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, fmt.Sprintf("%s %s", prefix, args))
	}, funcr.Options{LogTimestamp: true})
}
