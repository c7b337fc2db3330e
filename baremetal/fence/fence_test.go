package fence

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cluster = client.ObjectKey{Namespace: "ns", Name: "c"}
	us      = Owner{UID: "us", Former: []types.UID{"us-before-the-move"}}
)

// fakeCluster is the only workload cluster.
type fakeCluster struct {
	client client.Client
	down   bool
}

func (w *fakeCluster) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if w.down {
		return nil, clustercache.ErrClusterNotConnected
	}
	return w.client, nil
}

// clusterOf returns a cluster with these objects, whose calls fail as fails says.
func clusterOf(fails interceptor.Funcs, objs ...client.Object) *fakeCluster {
	byNode := func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
	return &fakeCluster{
		client: fake.NewClientBuilder().WithObjects(objs...).WithIndex(&corev1.Pod{}, nodeNameField, byNode).WithInterceptorFuncs(fails).Build(),
	}
}

// look returns what Look sees of the node.
func (w *fakeCluster) look(t *testing.T, by Owner) Seen {
	t.Helper()
	seen, err := nodesOf(w).Look(t.Context(), cluster, "n", by)
	must.Do(t, err)
	return seen
}

func nodesOf(w *fakeCluster) Nodes { return Nodes{Clusters: w} }

func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func marked(by types.UID) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, FencedByAnnotation, string(by)) }
}

const oosKey = "node.kubernetes.io/out-of-service"

var (
	outage   = tainted(oosKey, "nodeshutdown", corev1.TaintEffectNoExecute)
	notReady = tainted("node.kubernetes.io/not-ready", "", corev1.TaintEffectNoSchedule)
)

// lines returns the taints and annotations of a node that the tests compare.
func lines(n *corev1.Node) []string {
	if n == nil {
		return []string{"no node"}
	}
	var out []string
	for _, t := range n.Spec.Taints {
		since := "" // Rancher loses a cluster over a taint of ours with it (rancher/rancher#51795)
		if t.TimeAdded != nil {
			since = " since " + t.TimeAdded.UTC().Format(time.TimeOnly)
		}
		out = append(out, t.ToString()+since)
	}
	if mark, has := n.Annotations[FencedByAnnotation]; has {
		out = append(out, "mark "+mark)
	}
	return out
}

// now returns the node in the cluster; nil if there is none.
func now(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, n)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Do(t, err)
	return n
}

// meanwhile changes the node in the cluster after the test has read it.
func meanwhile(changes ...func(*corev1.Node)) func(*testing.T, client.Client) {
	return func(t *testing.T, c client.Client) {
		t.Helper()
		n := now(t, c)
		for _, change := range changes {
			change(n)
		}
		must.Do(t, c.Update(t.Context(), n))
	}
}

func vanished(t *testing.T, c client.Client) {
	t.Helper()
	must.Do(t, c.Delete(t.Context(), node()))
}

func replaced(t *testing.T, c client.Client) {
	t.Helper()
	vanished(t, c)
	must.Do(t, c.Create(t.Context(), node(func(n *corev1.Node) { n.UID = "v" })))
}

const (
	oos      = oosKey + "=nodeshutdown:NoExecute"
	oosOther = oosKey + "=maintenance:NoExecute"
	oosMild  = oosKey + "=nodeshutdown:NoSchedule"
	silent   = "node.kubernetes.io/not-ready:NoSchedule"
)

func TestFence(t *testing.T) {
	cases := map[string]struct {
		seen      *corev1.Node
		meanwhile func(*testing.T, client.Client)
		want      []string
		fails     bool
		steady    bool // nothing is written
	}{
		"the taint and our mark come together":             {seen: node(notReady), want: []string{silent, oos, "mark us"}},
		"W14: a taint of somebody else will do, unsigned":  {seen: node(outage), want: []string{oos}},
		"one of another value will do as well":             {seen: node(tainted(oosKey, "maintenance", "NoExecute")), want: []string{oosOther}},
		"one that evicts no pod will not":                  {seen: node(tainted(oosKey, "nodeshutdown", "NoSchedule")), want: []string{oosMild, oos, "mark us"}},
		"what we signed is left as it is":                  {seen: node(outage, marked("us")), want: []string{oos, "mark us"}, steady: true},
		"N10: what we signed before a move is signed anew": {seen: node(outage, marked("us-before-the-move")), want: []string{oos, "mark us"}},
		"a mark whose taint is gone is written over":       {seen: node(marked("them")), want: []string{oos, "mark us"}},
		"W15: a node that has changed is looked at again":  {seen: node(), meanwhile: meanwhile(notReady), want: []string{silent}, fails: true},
		"a node that is gone needs no fence":               {seen: node(), meanwhile: vanished, want: []string{"no node"}},
		"another node of the name is not fenced":           {seen: node(), meanwhile: replaced, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := clusterOf(interceptor.Funcs{}, tc.seen)
			seen := now(t, w.client)
			if tc.meanwhile != nil {
				tc.meanwhile(t, w.client)
			}
			first := seen.ResourceVersion
			for range 2 { // to repeat it does no harm
				was := seen.DeepCopy()
				err := nodesOf(w).Fence(t.Context(), cluster, seen, us)
				if (err != nil) != tc.fails {
					t.Fatalf("Fence() = %v, fails: want %t", err, tc.fails)
				}
				if diff := cmp.Diff(tc.want, lines(now(t, w.client))); diff != "" {
					t.Fatalf("node (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(was, seen); diff != "" {
					t.Errorf("the node that was seen, and is shared with others that read (-before +after):\n%s", diff)
				}
				if is := now(t, w.client); is != nil && !tc.fails {
					seen = is
				}
			}
			if tc.steady && seen.ResourceVersion != first {
				t.Errorf("a steady node was written: version %s, want %s", seen.ResourceVersion, first)
			}
		})
	}
}

func TestUnfence(t *testing.T) {
	cases := map[string]struct {
		seen      *corev1.Node
		meanwhile func(*testing.T, client.Client)
		want      []string
		steady    bool // nothing is written
	}{
		"our taint and our mark go together":                 {seen: node(notReady, outage, marked("us")), want: []string{silent}},
		"N10: what we signed before a move goes":             {seen: node(outage, marked("us-before-the-move")), want: nil},
		"N13: a taint without a signature stays":             {seen: node(outage), want: []string{oos}},
		"N13: a taint that another remediation signed stays": {seen: node(outage, marked("them")), want: []string{oos, "mark them"}, steady: true},
		"a taint that took the place of ours stays":          {seen: node(tainted(oosKey, "maintenance", "NoExecute"), marked("us")), want: []string{oosOther}},
		"a taint beside ours stays":                          {seen: node(tainted(oosKey, "nodeshutdown", "NoSchedule"), outage, marked("us")), want: []string{oosMild}},
		"our mark goes if our taint is gone":                 {seen: node(marked("us")), want: nil},
		"taints that came meanwhile are kept":                {seen: node(outage, marked("us")), meanwhile: meanwhile(notReady), want: []string{silent}},
		"somebody else took it away meanwhile": {seen: node(outage, marked("us")), meanwhile: meanwhile(func(n *corev1.Node) {
			n.Spec.Taints = nil
		}), want: nil},
		"a node that is gone is free":              {seen: node(outage, marked("us")), meanwhile: vanished, want: []string{"no node"}},
		"another node of the name has nothing":     {seen: node(outage, marked("us")), meanwhile: replaced, want: nil},
		"a node that was never fenced has nothing": {seen: node(notReady), want: []string{silent}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := clusterOf(interceptor.Funcs{}, tc.seen)
			seen := now(t, w.client)
			if tc.meanwhile != nil {
				tc.meanwhile(t, w.client)
			}
			for range 2 {
				must.Do(t, nodesOf(w).Unfence(t.Context(), cluster, seen, us))
				if diff := cmp.Diff(tc.want, lines(now(t, w.client))); diff != "" {
					t.Fatalf("node (-want +got):\n%s", diff)
				}
			}
			if is := now(t, w.client); tc.steady && is.ResourceVersion != seen.ResourceVersion {
				t.Errorf("a steady node was written: version %s, want %s", is.ResourceVersion, seen.ResourceVersion)
			}
		})
	}
}

// The cached node lacks most annotations and labels. The patch must not remove those from the real node.
func TestANodeThatIsKnownByNameLosesNothingButTheFence(t *testing.T) {
	whole := node(notReady, outage, marked("us"), func(n *corev1.Node) {
		n.Annotations["example.org/rack"], n.Labels = "7", map[string]string{"zone": "a"}
	})
	w := clusterOf(interceptor.Funcs{}, whole)
	must.Do(t, nodesOf(w).Unfence(t.Context(), cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: whole.Name}}, us))
	is := now(t, w.client)
	if want := map[string]string{"example.org/rack": "7"}; !maps.Equal(is.Annotations, want) || is.Labels["zone"] != "a" || len(is.Spec.Taints) != 1 {
		t.Errorf("it has %v %v %v", is.Annotations, is.Labels, is.Spec.Taints)
	}
}

// A node that has changed since it was read may have come back, so it is not fenced but read again. Unfencing is always safe, but is given
// up after a few conflicts on a node that is written all the time; the next reconcile tries again.
func TestAConflictFencesNothing(t *testing.T) {
	attempts := 0
	w := clusterOf(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		attempts++
		return apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	}}, node(outage, marked("us")))
	if err := nodesOf(w).Fence(t.Context(), cluster, node(), us); !apierrors.IsConflict(err) || attempts != 1 {
		t.Errorf("fenced after %d attempts: %v", attempts, err)
	}
	attempts = 0
	if err := nodesOf(w).Unfence(t.Context(), cluster, now(t, w.client), us); !apierrors.IsConflict(err) || attempts < 2 || attempts > 10 {
		t.Errorf("unfenced after %d attempts: %v", attempts, err)
	}
	if err := nodesOf(&fakeCluster{down: true}).Fence(t.Context(), cluster, node(), us); !errors.Is(err, clustercache.ErrClusterNotConnected) {
		t.Errorf("fenced in a cluster without a connection: %v", err)
	}
}
