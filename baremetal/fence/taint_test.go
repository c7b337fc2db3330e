package fence

import (
	"slices"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// An older kubemend, CAPM3 and users of kubectl set timeAdded on the taint. Our patch must keep it on the taint of somebody else.
func TestATaintWithItsTimeIsTheSameTaint(t *testing.T) {
	dated := func(n *corev1.Node) {
		for i := range n.Spec.Taints {
			n.Spec.Taints[i].TimeAdded = &metav1.Time{Time: noon}
		}
	}
	w := clusterOf(interceptor.Funcs{}, node(notReady, outage, marked("us"), dated))
	before := now(t, w.client)
	if seen := SeenOf(before, us); !seen.Fenced || !seen.Ours {
		t.Fatalf("seen as %+v, want fenced, and ours", seen)
	}
	must.Do(t, nodesOf(w).Fence(t.Context(), cluster, before, us))
	if diff := cmp.Diff(before, now(t, w.client)); diff != "" {
		t.Errorf("what is fenced was fenced again (-before +after):\n%s", diff)
	}
	must.Do(t, nodesOf(w).Unfence(t.Context(), cluster, before, us))
	must.Equal(t, []string{silent + " since 12:00:00"}, lines(now(t, w.client)), "unfenced")
}

// H-A3: without this, a taint that no remediation owns any more would stay for ever, even after a successful power cycle.
func TestWhatIsInheritedIsSignedAndGoes(t *testing.T) {
	for name, row := range map[string]struct {
		seen             *corev1.Node
		heir             Owner
		fenced, unfenced []string
	}{
		"the fence of a remediation that is gone goes with the next one": {
			node(outage, marked("gone")), Owner{UID: "next", Former: []types.UID{"gone"}}, []string{oos, "mark next"}, nil,
		},
		"what CAPM3 left without a mark goes with the remediation that was taken over": {
			node(outage), Owner{UID: "next", Unsigned: true}, []string{oos, "mark next"}, nil,
		},
		"of another value it is not CAPM3's": {
			node(tainted(oosKey, "maintenance", "NoExecute")), Owner{UID: "next", Unsigned: true}, []string{oosOther}, []string{oosOther},
		},
		"what another one signed is not CAPM3's": {
			node(outage, marked("them")), Owner{UID: "next", Unsigned: true}, []string{oos, "mark them"}, []string{oos, "mark them"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterOf(interceptor.Funcs{}, row.seen)
			must.Do(t, nodesOf(w).Fence(t.Context(), cluster, now(t, w.client), row.heir))
			must.Equal(t, row.fenced, lines(now(t, w.client)), "fenced")
			must.Do(t, nodesOf(w).Unfence(t.Context(), cluster, now(t, w.client), row.heir))
			must.Equal(t, row.unfenced, lines(now(t, w.client)), "unfenced")
		})
	}
}

var anyTaint = rapid.Custom(func(t *rapid.T) corev1.Taint {
	return corev1.Taint{
		Key:    rapid.SampledFrom([]string{infrav1.OutOfServiceTaintKey, "other"}).Draw(t, "key"),
		Value:  rapid.SampledFrom([]string{infrav1.OutOfServiceTaintValue, "", "else"}).Draw(t, "value"),
		Effect: rapid.SampledFrom([]corev1.TaintEffect{"NoExecute", "NoSchedule", "PreferNoSchedule"}).Draw(t, "effect"),
	}
})

// anyNode draws a node with taints that an API server admits: one for each key and effect.
var anyNode = rapid.Custom(func(t *rapid.T) *corev1.Node {
	n := node()
	n.Spec.Taints = rapid.SliceOfNDistinct(anyTaint, 0, 5, func(taint corev1.Taint) string {
		return taint.Key + string(taint.Effect)
	}).Draw(t, "taints")
	if mark := anyMark.Draw(t, "mark"); mark != "" {
		marked(mark)(n)
	}
	return n
})

var anyMark = rapid.SampledFrom([]types.UID{"", "us", "us-before-the-move", "them"})

// Whatever two remediations do to a node, in whatever order: in the end it has all taints of others, and none of theirs.
func TestTwoRemediationsLeaveANodeAsItWas(t *testing.T) {
	them := Owner{UID: "them"}
	rapid.Check(t, func(t *rapid.T) {
		n := anyNode.Draw(t, "node")
		delete(n.Annotations, FencedByAnnotation)
		foreign := slices.Clone(n.Spec.Taints)
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 3)).Draw(t, "steps") {
			by := []Owner{us, them}[step%2]
			if step < 2 {
				putOutOfService(n, by)
			} else {
				putBackInService(n, by)
			}
			if step < 2 && outOfService(n) == nil {
				t.Fatal("fenced, and yet in service")
			}
		}
		putBackInService(n, us)
		putBackInService(n, them)
		if !slices.Equal(foreign, n.Spec.Taints) {
			t.Fatalf("there were %v, there are %v", foreign, n.Spec.Taints)
		}
		if mark, has := n.Annotations[FencedByAnnotation]; has {
			t.Fatalf("the mark of %s is left", mark)
		}
	})
}
