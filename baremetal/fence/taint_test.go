package fence

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// An older kubemend, CAPM3 and people with kubectl wrote the same taint with its time; that of somebody else keeps it through our patch.
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
	if err := nodesOf(w).Fence(t.Context(), cluster, before, us); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, now(t, w.client)); diff != "" {
		t.Errorf("what is fenced was fenced again (-before +after):\n%s", diff)
	}
	if err := nodesOf(w).Unfence(t.Context(), cluster, before, us); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{silent + " since 12:00:00"}, lines(now(t, w.client))); diff != "" {
		t.Errorf("unfenced (-want +got):\n%s", diff)
	}
}

// H-A3: a taint that no remediation answers for any more would stay for ever, also after a power cycle that succeeded.
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
			if err := nodesOf(w).Fence(t.Context(), cluster, now(t, w.client), row.heir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.fenced, lines(now(t, w.client))); diff != "" {
				t.Errorf("fenced (-want +got):\n%s", diff)
			}
			if err := nodesOf(w).Unfence(t.Context(), cluster, now(t, w.client), row.heir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.unfenced, lines(now(t, w.client))); diff != "" {
				t.Errorf("unfenced (-want +got):\n%s", diff)
			}
		})
	}
}
