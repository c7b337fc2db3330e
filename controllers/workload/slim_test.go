package workload

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	listwatch "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

var noon = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{ProviderID: "metal3://n", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "t"}}},
		Status: corev1.NodeStatus{
			Images: []corev1.ContainerImage{{Names: []string{"image"}}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastTransitionTime: noon, LastHeartbeatTime: noon,
			}},
		},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

func slimmed(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	slim, err := SlimNode(n)
	must.Do(t, err)
	return slim.(*corev1.Node)
}

func TestASlimNodeSaysWhichMemberItIs(t *testing.T) {
	roles := map[string]string{"node-role.kubernetes.io/etcd": "true", corev1.LabelTopologyZone: "z"}
	n := slimmed(t, node(func(n *corev1.Node) {
		for label, value := range roles {
			n.Labels[label] = value
		}
	}))
	must.Equal(t, roles, n.Labels, "labels")
}

func TestASlimNodeIsSmallWhateverItsKubeletMakesUp(t *testing.T) {
	const long = 1 << 20
	text := strings.Repeat("x", long)
	n := slimmed(t, node(func(n *corev1.Node) {
		n.Spec.ProviderID, n.Status.NodeInfo.BootID = text, text
		n.Annotations = map[string]string{"kubemend.io/fenced-by": text}
		n.Labels[corev1.LabelTopologyZone] = text
		n.Status.Conditions[0].Reason = text
		for i := range 10_000 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(strconv.Itoa(i))})
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: strconv.Itoa(i), Value: text})
		}
	}))
	size, err := n.Marshal()
	must.Do(t, err)
	if len(size) > 16<<10 {
		t.Errorf("%d bytes are kept of it", len(size))
	}
	if c := n.Status.Conditions[0]; c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}

func TestASlimNodeHoldsWhatIsJudgedAndFenced(t *testing.T) {
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"},
		Spec:       corev1.NodeSpec{ProviderID: "metal3://n", Taints: []corev1.Taint{{Key: "t"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: noon,
		}}},
	}
	must.Equal(t, want, slimmed(t, node()), "SlimNode()")
	want.Annotations = map[string]string{"kubemend.io/fenced-by": "uid"}
	want.Labels = map[string]string{corev1.LabelTopologyZone: "row-3"}
	fenced := node(func(n *corev1.Node) {
		n.Annotations, n.Labels[corev1.LabelTopologyZone] = map[string]string{"kubemend.io/fenced-by": "uid", "note": "x"}, "row-3"
	})
	must.Equal(t, want, slimmed(t, fenced), "who has fenced it, and its zone")
}

func TestNodeChanges(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Minute))
	cases := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"W11: a heartbeat is none": {func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime, n.ResourceVersion = later, "2"
		}, false},
		"a new message is none": {func(n *corev1.Node) { n.Status.Conditions[0].Message = "still well" }, false},
		"a label is none":       {func(n *corev1.Node) { n.Labels["a"] = "c" }, false},
		"a status is one":       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"a reason is one":       {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "KubeletNotReady" }, true},
		"a transition is one":   {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = later }, true},
		"one more condition is one": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "X"})
		}, true},
		"whose it is, once the cloud has said so": {func(n *corev1.Node) { n.Spec.ProviderID = "p://other" }, true},
		"another node of the name":                {func(n *corev1.Node) { n.UID = "v" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := event.TypedUpdateEvent[*corev1.Node]{ObjectOld: slimmed(t, node()), ObjectNew: slimmed(t, node(tc.change))}
			must.Is(t, tc.want, NodeChanges().Update(e), "passes:")
		})
	}
}

func TestOnlyKubeconfigsAreKept(t *testing.T) {
	for name, kept := range map[string]bool{"c1-kubeconfig": true, "c1-ca": false} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": []byte("x")}}
		if _, err := SlimSecret(s); err != nil || (len(s.Data) > 0) != kept {
			t.Errorf("%s keeps its data: %t, want %t (%v)", name, len(s.Data) > 0, kept, err)
		}
	}
}

// As soon as the cache has a node, its machine is judged by it. If the node is then deleted and the controller gets no event, the machine
// counts as healthy until another event comes.
func TestAControllerHearsOfANodeThatIsDeletedAsSoonAsItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, node := listwatch.NewFakeControllerSource(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		defer server.Shutdown()
		server.Add(node)
		informer := toolscache.NewSharedIndexInformer(server, &corev1.Node{}, 0, nil)
		go informer.RunWithContext(t.Context())
		synctest.Wait()
		if !informer.HasSynced() {
			t.Fatal("the cache is not filled")
		}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		watch := NodeWatch{
			ID: "nodes", Controller: running(func(src source.TypedSource[reconcile.Request]) error { return src.Start(t.Context(), queue) }), Predicate: NodeChanges(),
			Hears: handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.Node) []reconcile.Request { return []reconcile.Request{{}} }),
		}

		must.Do(t, watch.Watch(filled{informer: informer}))
		synctest.Wait()
		for queue.Len() > 0 { // that it is there
			is, _ := queue.Get()
			queue.Done(is)
		}
		server.Delete(node)

		synctest.Wait()
		if _, shown, _ := informer.GetIndexer().GetByKey("n"); shown || queue.Len() != 1 {
			t.Errorf("shown: %t, %d requests; the deletion enqueues", shown, queue.Len())
		}
	})
}

// running is a running controller.
type running func(source.TypedSource[reconcile.Request]) error

// Watch starts src.
func (start running) Watch(src source.TypedSource[reconcile.Request]) error { return start(src) }

// filled is a synced cache. A caller that waits for the sync waits 100 ms, as in controller-runtime.
type filled struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
}

// GetInformer implements cache.Informers.
func (c filled) GetInformer(_ context.Context, _ client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	var asked cache.InformerGetOptions
	for _, option := range options {
		option(&asked)
	}
	if asked.BlockUntilSynced == nil || *asked.BlockUntilSynced {
		<-time.After(100 * time.Millisecond)
	}
	return c.informer, nil
}

// Conditions name one of several Nodes with the same provider ID. It must be the same Node each time, or they would be written again.
func TestOfTwoNodesOfOneProviderIDTheSameIsNamedEachTime(t *testing.T) {
	nodes := []*corev1.Node{node(func(n *corev1.Node) { n.Name = "b" }), node(func(n *corev1.Node) { n.Name = "a" })}
	m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{ProviderID: "metal3://n"}}
	for range 100 {
		if own, other := Seen(Up, nodes).NodeOf(m); own != nil || other == nil || other.Name != "a" {
			t.Fatalf("own %v, other %v", own, other)
		}
	}
}
