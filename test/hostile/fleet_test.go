package hostile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// transports are those of this process.
var transports = sync.OnceValue(func() *workload.Transports {
	t := &workload.Transports{Limit: 16 << 20, Clock: clock.RealClock{}}
	if err := t.Register(); err != nil {
		panic(err)
	}
	return t
})

// connections is ClusterCache: it connects by kubeconfigs as that does, and never gives up.
type connections struct {
	clustercache.ClusterCache // of which nothing else is used
	mu                        sync.Mutex
	of                        map[client.ObjectKey]*connection
}

type connection struct {
	config *rest.Config
	client client.Client
	nodes  cache.Cache
	once   sync.Once
}

func (c *connections) to(cluster client.ObjectKey) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[cluster]
}

// GetRESTConfig implements clustercache.ClusterCache.
func (c *connections) GetRESTConfig(_ context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	return c.to(cluster).config, nil
}

// GetUncachedClient implements clustercache.ClusterCache.
func (c *connections) GetUncachedClient(_ context.Context, cluster client.ObjectKey) (client.Client, error) {
	return c.to(cluster).client, nil
}

// GetHealthCheckingState implements clustercache.ClusterCache: all probes are answered.
func (*connections) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{}
}

// Watch implements clustercache.ClusterCache. The fleet enqueues the checks itself.
func (c *connections) Watch(_ context.Context, cluster client.ObjectKey, w clustercache.Watcher) error {
	if w.Name() != "kubemend-nodes" {
		return nil
	}
	to, err := c.to(cluster), error(nil)
	to.once.Do(func() { err = w.Watch(to.nodes) })
	return err
}

// noKinds are the kinds of requests: there are none.
type noKinds struct{ machinehealthcheck.Kinds }

// InUse implements machinehealthcheck.Kinds.
func (noKinds) InUse() []schema.GroupVersionKind { return nil }

// Ready implements machinehealthcheck.Kinds.
func (noKinds) Ready(context.Context, schema.GroupVersionKind) (bool, error) { return true, nil }

// Named implements machinehealthcheck.Kinds.
func (noKinds) Named(context.Context, types.NamespacedName, ...schema.GroupVersionKind) error {
	return nil
}

// fleet is a management cluster with checks of many clusters, and the workers that reconcile them.
type fleet struct {
	*testing.T
	ctx     context.Context
	api     client.WithWatch
	links   *connections
	checks  *machinehealthcheck.Reconciler
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	workers sync.WaitGroup
	servers map[string]*Server
}

// newFleet starts a fleet of so many healthy clusters, each with one check of one machine, and of hostile ones with so many checks each.
func newFleet(t *testing.T, healthy, checksOfHostile int, hostile ...string) *fleet {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &fleet{
		T: t, ctx: ctx, links: &connections{of: map[client.ObjectKey]*connection{}}, servers: map[string]*Server{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
	scheme := runtime.NewScheme()
	f.must(corev1.AddToScheme(scheme))
	f.must(clusterv1.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker( // without managed fields, which cost most of the time
		clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).WithStatusSubresource(&clusterv1.Machine{}, &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{})
	f.must(machinehealthcheck.AddIndexes(ctx, indexer{b}))
	f.api = b.Build()
	gates := &workload.Gates{ClusterCache: f.links, Clock: clock.RealClock{}}
	clusters := workload.NewClusters(gates)
	clusters.Gates = gates
	f.checks = &machinehealthcheck.Reconciler{
		Client: f.api, Clusters: clusters, Requests: &remediationrequest.Requests{Client: f.api, Live: f.api}, Kinds: noKinds{}, Clock: clock.RealClock{},
		Recorder: silence{}, Unclaimed: machinehealthcheck.Act, Resync: time.Hour,
	}
	t.Cleanup(func() {
		stop() // before the servers, or clients would connect to them again
		f.queue.ShutDown()
		f.workers.Wait()
		for _, s := range f.servers {
			s.CloseClientConnections()
			s.Close()
		}
	})
	for i := range healthy {
		f.add(fmt.Sprintf("healthy-%d", i), nil, 1, "n", "n")
	}
	for i, what := range hostile {
		f.add(fmt.Sprintf("hostile-%d", i), Hostilities[what], checksOfHostile, "n", "missing")
	}
	return f
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(obj, field, values)
	return nil
}

// silence records no events.
type silence struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (silence) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// add makes a cluster of that name whose server has a node, and checks, each of a machine whose node is ref.
func (f *fleet) add(name string, hostility Hostility, checks int, node, ref string) {
	f.Helper()
	f.servers[name] = NewServer(hostility, node)
	key := client.ObjectKey{Namespace: name, Name: name}
	f.connect(key, f.servers[name].URL)
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(name)}}
	for _, kind := range []string{clusterv1.ClusterInfrastructureReadyCondition, clusterv1.ClusterControlPlaneInitializedCondition} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()})
	}
	f.must(f.api.Create(f.ctx, c))
	for i := range checks {
		of := metav1.ObjectMeta{Namespace: key.Namespace, Name: fmt.Sprintf("%s-%d", name, i), UID: types.UID(fmt.Sprintf("%s-%d", name, i))}
		m := &clusterv1.Machine{ObjectMeta: of, Spec: clusterv1.MachineSpec{ClusterName: name}}
		m.Labels = map[string]string{"check": of.Name}
		m.Status.NodeRef.Name = ref
		f.must(f.api.Create(f.ctx, m))
		check := &clusterv1.MachineHealthCheck{ObjectMeta: of, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: name}}
		check.Spec.Selector.MatchLabels = m.Labels
		f.must(f.api.Create(f.ctx, check))
		f.queue.Add(types.NamespacedName{Namespace: of.Namespace, Name: of.Name})
	}
}

// connect connects to a cluster as ClusterCache does: by the kubeconfig in a Secret.
func (f *fleet) connect(key client.ObjectKey, address string) {
	f.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: address}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	f.must(err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-kubeconfig"}, Data: map[string][]byte{"value": content}}
	secrets := &workload.Kubeconfigs{Reader: fake.NewClientBuilder().WithObjects(secret).Build(), Transports: transports()}
	given, err := kubeconfig.FromSecret(f.ctx, secrets, key)
	f.must(err)
	config, err := clientcmd.RESTConfigFromKubeConfig(given)
	f.must(err)
	config.QPS, config.Timeout = -1, 10*time.Second
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	to := &connection{config: config}
	to.client, err = client.New(config, client.Options{Mapper: mapper})
	f.must(err)
	patient := rest.CopyConfig(config)
	patient.Timeout = 11 * time.Minute
	to.nodes, err = cache.New(patient, cache.Options{Mapper: mapper, ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: workload.SlimNode}}})
	f.must(err)
	nodes, err := to.nodes.GetInformer(f.ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	f.must(err)
	check := types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-0"}
	_, err = nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.queue.Add(check) }, DeleteFunc: func(any) { f.queue.Add(check) },
	})
	f.must(err)
	f.links.mu.Lock()
	f.links.of[key] = to
	f.links.mu.Unlock()
	f.workers.Go(func() { _ = to.nodes.Start(f.ctx) }) // it ends with the context
}

// work starts so many workers.
func (f *fleet) work(workers int) {
	for range workers {
		f.workers.Go(func() {
			for {
				check, ended := f.queue.Get()
				if ended {
					return
				}
				switch result, err := f.checks.Reconcile(f.ctx, ctrl.Request{NamespacedName: check}); {
				case err != nil:
					f.queue.AddRateLimited(check)
				case result.RequeueAfter > 0:
					f.queue.Forget(check)
					f.queue.AddAfter(check, result.RequeueAfter)
				default:
					f.queue.Forget(check)
				}
				f.queue.Done(check)
			}
		})
	}
}

// healthy waits until each healthy cluster is connected, and its machine was said to be healthy.
func (f *fleet) healthy(clusters int) {
	f.Helper()
	for i := range clusters {
		f.await(fmt.Sprintf("healthy-%d", i), metav1.ConditionTrue)
	}
}

// marks deletes the node of a healthy cluster, and waits until its machine is marked. Then the node comes back.
func (f *fleet) marks(i int) {
	f.Helper()
	name := fmt.Sprintf("healthy-%d", i)
	f.servers[name].Lose("n")
	f.await(name, metav1.ConditionFalse)
	f.servers[name].Gain("n")
	f.await(name, metav1.ConditionTrue)
}

func (f *fleet) await(cluster string, status metav1.ConditionStatus) {
	f.Helper()
	m := &clusterv1.Machine{}
	err := wait.PollUntilContextTimeout(f.ctx, time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := f.api.Get(ctx, client.ObjectKey{Namespace: cluster, Name: cluster + "-0"}, m); err != nil {
			return false, err
		}
		is := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition)
		return is != nil && is.Status == status, nil
	})
	if err != nil {
		f.Fatalf("HealthCheckSucceeded of %s is not %s: %+v", m.Name, status, m.Status.Conditions)
	}
}
