package workload

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// informers is a cache with one informer.
type informers struct {
	cache.Cache
	toolscache.SharedIndexInformer
}

func (i informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i.SharedIndexInformer, nil
}

// listed is a source for list and watch, without a streaming list.
type listed struct{ *fcache.FakeControllerSource }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func informerOf(obj client.Object) (*fcache.FakeControllerSource, informers) {
	source := fcache.NewFakeControllerSource()
	return source, informers{SharedIndexInformer: toolscache.NewSharedIndexInformer(listed{source}, obj, 0, toolscache.Indexers{})}
}

// removable is a cache of nodes whose informer can be removed.
type removable struct {
	informers
	stop chan struct{}
}

func (r removable) RemoveInformer(context.Context, client.Object) error {
	close(r.stop)
	return nil
}

func TestAClusterThatInventsNodesIsOutOfReachBeforeItFillsTheMemory(t *testing.T) {
	c := NewClusters(oneServer{})
	c.Transports = NewTransports(10*bytesPerItem, clock.RealClock{})
	source, of := informerOf(&corev1.Node{})
	there := removable{of, make(chan struct{})}
	invent := func(i int) {
		source.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}})
	}
	must.Do(t, c.store(gated).Watch(there))
	go there.Run(there.stop)
	eventually(t, "it is cached", there.HasSynced)
	link := func() health.Link {
		v, err := c.View(t.Context(), gated, noon.Time)
		must.Do(t, err)
		return v.Link
	}
	for i := range 10 {
		invent(i)
	}
	eventually(t, "ten nodes are cached", func() bool { return len(there.GetStore().ListKeys()) == 10 })
	for i := range 100 { // as many go as come
		source.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}})
		invent(i + 10)
	}
	eventually(t, "the last one is cached", func() bool { _, is, _ := there.GetStore().GetByKey("node-109"); return is })
	if is := link(); is != Up {
		t.Fatalf("with as many nodes as it may have its link is %v", is)
	}
	invent(110)
	eventually(t, "the cache is gone", there.IsStopped)
	if is := link(); is == Up {
		t.Error("with one more its nodes are judged")
	}
	if nodes, _ := kept(c); nodes != 0 {
		t.Error("its nodes are kept")
	}
}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		t.Fatalf("not so: %s", what)
	}
}

// lives connects a cluster with so many nodes, lets it fail to answer, and disconnects it.
func lives(t *testing.T, c *Clusters, key client.ObjectKey, nodes int) {
	t.Helper()
	source, there := informerOf(&corev1.Node{})
	for i := range nodes {
		source.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}})
	}
	must.Do(t, c.store(key).Watch(there))
	stop := make(chan struct{})
	go there.Run(stop)
	eventually(t, "the nodes are cached", there.HasSynced)
	c.of(key).identity = identity{connection: c.of(key).connection}
	c.look(key, noon.Time, true)
	if _, d := c.look(key, noon.Time, false); d == nil {
		t.Fatal("a cluster that does not answer is not doubted")
	}
	close(stop)
	eventually(t, "the cache has stopped", there.IsStopped)
}

func kept(c *Clusters) (nodes, doubts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.states {
		if state.nodes != nil {
			nodes++
		}
		if state.doubt != nil {
			doubts++
		}
	}
	return nodes, doubts
}

// ClusterCache gets the events of Clusters too, and may have connected before.
func TestAClusterThatIsGoneIsForgottenAndOneThatIsMadeAgainInheritsNoDoubt(t *testing.T) {
	source, management := informerOf(&clusterv1.Cluster{})
	server, transports := serve(t, func(http.ResponseWriter, *http.Request) {}), NewTransports(1<<20, clock.RealClock{})
	c := NewClusters(nil)
	c.Transports = transports
	must.Do(t, c.ForgetDeleted(t.Context(), management))
	go management.Run(t.Context().Done())
	eventually(t, "Clusters are watched", management.HasSynced)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "c"}}
	key := client.ObjectKeyFromObject(cluster)
	must.Do(t, transports.use(key, kubeconfigOf(server, "token: t", "")))
	c.of(key).identity.changed = true // of one of its name before
	source.Add(cluster.DeepCopy())
	eventually(t, "the Cluster is heard of", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.states[key].identity.changed
	})
	if transports.routeOf(key) == nil {
		t.Error("the connection that was made before the Cluster was heard of is of no use")
	}
	for _, is := range []*clusterv1.Cluster{cluster, {ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "next"}}} {
		if is != cluster {
			source.Add(is.DeepCopy())
		}
		lives(t, c, client.ObjectKeyFromObject(is), 20)
	}
	if nodes, _ := kept(c); nodes != 1 {
		t.Errorf("of two clusters, one of which has stopped before the other, the nodes of %d are kept", nodes)
	}
	source.Delete(cluster)
	source.Delete(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "next"}})
	eventually(t, "all is forgotten", func() bool { nodes, doubts := kept(c); return nodes+doubts == 0 && transports.routeOf(key) == nil })
	answer, err := transports.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "workload://ci.c/", http.NoBody))
	if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a connection that is left does not end: its probe is answered with %v, %v", answer, err)
	}
	later := noon.Add(time.Hour)
	if _, d := c.look(client.ObjectKeyFromObject(cluster), later, false); d == nil || !d.since.Equal(later) {
		t.Errorf("the new cluster is doubted since %v, want since it was first looked at", d)
	}
}
