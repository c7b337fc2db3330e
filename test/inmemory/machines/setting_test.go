// Package machines tests the controllers of MachineHealthChecks, of what they leave behind and of records, as they run in the manager: with their queues,
// watches and caches, on virtual time. What it reads and writes is in memory, and what its machines and nodes report, the tests write.
package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/inmemory"
)

// The time of a bubble: what an event causes is there within three seconds, one of which a manager waits that begins to watch a kind, and what stays does
// so for a minute.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // one waits by the time of the process before
	SetDefaultEventuallyTimeout(3 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Minute)
	SetDefaultConsistentlyPollingInterval(time.Second)
	m.Run()
}

// registered are the metrics that packages export when they are loaded.
var registered = metrics.Registry

// managementKinds are those of the management cluster, unstructured where the manager has no type for them.
func managementKinds() []inmemory.Kind {
	kinds := []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: bmov1alpha1.GroupVersion.WithKind("BareMetalHost")},
		{GroupVersionKind: mendv1.GroupVersion.WithKind("RemediationRecord"), Whole: true},
		{GroupVersionKind: schema.FromAPIVersionAndKind("infrastructure.cluster.x-k8s.io/v1beta2", "Metal3Machine")},
	}
	for _, kind := range []string{"Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
		kinds = append(kinds, inmemory.Kind{GroupVersionKind: clusterv1.GroupVersion.WithKind(kind)})
	}
	for _, p := range []provider{metal3, another} {
		for _, suffix := range []string{"", "Template"} {
			kinds = append(kinds, inmemory.Kind{GroupVersionKind: schema.FromAPIVersionAndKind(p.apiVersion, p.kind+suffix)})
		}
	}
	return kinds
}

var theScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme, bmov1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	inmemory.Register(s, managementKinds()...)
	return s
})

// setting is a management cluster, its workload cluster, and the managers that run.
type setting struct {
	*WithT
	t        *testing.T
	ctx      context.Context
	here     *inmemory.Server
	there    *inmemory.Workload
	writes   faults.Writes
	told     notes
	programs []*program
	// unreachable are the Clusters, by name, to which no kubeconfig leads.
	unreachable map[string]bool
}

var environments atomic.Int64

// run runs a test in a bubble, with an environment and a manager that acts on all checks.
func run(t *testing.T, test func(s *environment)) { runWith(t, machinehealthcheck.Act, test) }

// runWith runs a test with a manager that does that with checks which nobody has claimed.
func runWith(t *testing.T, unclaimed machinehealthcheck.Unclaimed, test func(s *environment)) {
	t.Helper()
	alone(t, func(s *environment) {
		s.start(unclaimed)
		test(s)
	})
}

// alone runs a test whose managers it starts itself.
func alone(t *testing.T, test func(s *environment)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newSetting(t)
		defer w.end()
		test(w.environment(w.namespace(), "c1"))
	})
}

func newSetting(t *testing.T) *setting {
	w := &setting{WithT: NewWithT(t), t: t, ctx: t.Context(), unreachable: map[string]bool{}}
	w.writes.Ignore = []string{"Event"}
	w.here = inmemory.New(theScheme(), nil, managementKinds()...)
	w.there = &inmemory.Workload{Server: inmemory.New(theScheme(), nil, inmemory.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), Global: true})}
	return w
}

// namespace makes one.
func (w *setting) namespace() string {
	name := fmt.Sprintf("scene-%d", environments.Add(1))
	w.Expect(w.here.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

// end ends the managers: nothing may go on in a bubble that is over.
func (w *setting) end() {
	for _, p := range slices.Clone(w.programs) {
		p.kill()
	}
}

// program is a manager with the controllers of MachineHealthChecks.
type program struct {
	*inmemory.Manager
	setting *setting
}

// start starts a manager, as setup_machinehealthcheck.go and setup_remediationrecord.go set it up.
func (w *setting) start(unclaimed machinehealthcheck.Unclaimed) {
	w.t.Helper()
	w.writes.Restart()
	m, err := inmemory.NewManager(w.here, cacheOptions(), &w.writes, &teller{notes: &w.told, writes: &w.writes})
	w.Expect(err).NotTo(HaveOccurred())
	// The collectors of this manager are registered anew with each of them.
	fresh := prometheus.NewRegistry()
	metrics.Registry = struct {
		prometheus.Registerer
		prometheus.Gatherer
	}{fresh, prometheus.Gatherers{registered, fresh}}
	cc, err := inmemory.NewClusterCache(w.ctx, m, w.workloadOf, cache.Options{
		DefaultTransform: machinehealthcheck.SlimMetadata,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: workload.SlimNode}},
	})
	w.Expect(err).NotTo(HaveOccurred())
	clusters := workload.NewClusters(cc)
	w.Expect(clusters.ForgetDeleted(w.ctx, m.GetCache())).To(Succeed())
	w.Expect(setUp(w.ctx, m, cc, clusters, unclaimed)).To(Succeed())
	m.Shown = w.shown
	p := &program{m, w}
	w.programs = append(w.programs, p)
	w.Expect(m.Run(w.ctx, &clusterv1.Cluster{}, &clusterv1.Machine{}, &clusterv1.MachineHealthCheck{}, &mendv1.RemediationRecord{})).To(Succeed())
}

// shown gives a machine whose status the program has written what an API server keeps of that.
func (w *setting) shown(obj client.Object) {
	m, is := obj.(*clusterv1.Machine)
	if done, _ := w.writes.Done(); is && slices.Contains(done, faults.Write{Verb: "patch", Kind: "Machine", Name: m.Name, Subresource: "status"}) {
		ownedBy(mendv1.FieldOwner, m)
	}
}

// ownedBy adds to a machine what an API server keeps of who wrote its conditions, as far as these tests read it.
func ownedBy(owner string, m *clusterv1.Machine) {
	conditions := make([]string, 0, len(m.Status.Conditions))
	for _, c := range m.Status.Conditions {
		conditions = append(conditions, `"k:{\"type\":\"`+c.Type+`\"}":{}`)
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{` + strings.Join(conditions, ",") + `}}}`),
	}}
}

func (w *setting) workloadOf(cluster client.ObjectKey) *inmemory.Workload {
	if w.unreachable[cluster.Name] {
		return nil
	}
	return w.there
}

// kill ends a manager once it rests: a queue of controller-runtime that is ended while it has an item to give out never ends.
func (p *program) kill() {
	p.setting.t.Helper()
	time.Sleep(5137 * time.Millisecond)
	synctest.Wait()
	p.setting.programs = slices.DeleteFunc(p.setting.programs, func(other *program) bool { return other == p })
	p.setting.Expect(p.Kill()).To(Or(Succeed(), MatchError(context.Canceled)))
}

func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: machinehealthcheck.SlimMetadata,
		ByObject: map[client.Object]cache.ByObject{
			&clusterv1.Machine{}: {Transform: machinehealthcheck.SlimMachine}, &mendv1.RemediationRecord{}: remediationrecord.CacheOptions(),
		},
	}
}

func setUp(ctx context.Context, m *inmemory.Manager, cc *inmemory.ClusterCache, clusters *workload.Clusters, unclaimed machinehealthcheck.Unclaimed) error {
	writer := client.WithFieldOwner(m.GetClient(), mendv1.FieldOwner)
	installed := func(_ context.Context, crd string) (bool, error) { return crd != "hostremediations.kubemend.io", nil }
	kept := &remediationrecord.Records{Client: writer, Live: m.GetAPIReader(), Installed: installed, Clock: clock.RealClock{}}
	requests := &remediationrequest.Requests{Client: writer, Live: m.GetAPIReader()}
	kinds := remediationrequest.NewKinds(m.GetCache(), m.GetAPIReader(), "", remediationrequest.NewMetadata)
	newHost := func() *bmov1alpha1.BareMetalHost { return &bmov1alpha1.BareMetalHost{} }
	hosts := remediationrequest.NewKinds(m.GetCache(), m.GetAPIReader(), "", newHost)
	r := &machinehealthcheck.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Clusters: clusters, Requests: requests, Kinds: kinds, Hosts: hosts, Recorder: m.Recorder,
		Clock: clock.RealClock{}, Installed: installed, Records: kept, Metal: &host.Hosts{Client: writer, Live: m.GetAPIReader()},
		Unclaimed: unclaimed, Resync: 10 * time.Minute,
	}
	releaser := &machinehealthcheck.Releaser{
		Client: writer, Live: m.GetAPIReader(), Requests: requests, Kinds: kinds, Recorder: m.Recorder, Discovery: m.Discovery(),
		Unclaimed: unclaimed,
	}
	recent := &remediationrecord.Recent{Live: m.GetAPIReader(), Clock: clock.RealClock{}}
	follower := &remediationrecord.Reconciler{
		Client: writer, Live: m.GetAPIReader(), Recent: recent, Mapper: m.GetRESTMapper(), Clusters: clusters, Clock: clock.RealClock{},
		Cached: []remediationrecord.RequestCache{kinds.Cached}, Recorder: m.Recorder,
		Finds:           r.Finds,
		ActsOnUnclaimed: unclaimed == machinehealthcheck.Act,
		Retention:       remediationrecord.Options{Keep: 30 * 24 * time.Hour, PerCluster: 1000},
	}
	workers := controller.Options{MaxConcurrentReconciles: 10}
	return errors.Join(r.SetupWithManager(ctx, m, cc, workers), releaser.SetupWithManager(m, workers),
		follower.SetupWithManager(ctx, m, kept, workers))
}

// notes are the events that were sent.
type notes struct {
	mu  sync.Mutex
	all []note
}

type note struct {
	regarding, related   *corev1.ObjectReference
	kind, reason, action string
	text                 string
}

// teller sends the events of a program that lives.
type teller struct {
	*notes
	writes *faults.Writes
}

// Eventf implements events.EventRecorder.
func (n *teller) Eventf(regarding, related runtime.Object, kind, reason, action, text string, args ...any) {
	if n.writes.Crashed() {
		return
	}
	is := note{kind: kind, reason: reason, action: action, text: fmt.Sprintf(text, args...)}
	is.regarding, _ = reference.GetReference(theScheme(), regarding)
	if related != nil {
		is.related, _ = reference.GetReference(theScheme(), related)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, is)
}
