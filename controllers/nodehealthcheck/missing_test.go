package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// Machine Deletion Remediation says Succeeded when the Machine is gone, long before its new node is there.
func TestNodesThatAreNotReplacedYetCountForTheThreshold(t *testing.T) {
	k := ten(t)
	for _, fail := range [][]string{{"n0", "n1", "n2", "n3"}, {"n4", "n5"}, {"n6"}, {"n7"}} {
		for _, n := range fail {
			k.turn(n, corev1.ConditionUnknown)
		}
		k.after(300 * time.Second)
		k.settle("nhc")
		for _, obj := range k.objects() {
			k.goneNode(obj.GetName())
		}
		k.says(nhcv1.NodeDeletionExpectedCondition, "True", "MachineDeleted", "")
		k.settle("nhc")
		k.after(time.Minute)
		k.answers("Replace", nhcv1.SucceededCondition, "True")
		k.settle("nhc")
		k.restart()
	}
	if len(k.made) != 4 {
		t.Errorf("%d of 10 nodes are replaced at once, none is back, 4 may be away: %v", len(k.made), k.made)
	}
	if is := k.look("nhc").Population; is.Total() != 10 || is.InFlight != 4 || is.Unhealthy != 8 {
		t.Errorf("population %+v", is)
	}
}

// goneNode removes a node, if it is there.
func (k *fixture) goneNode(name string) { _ = k.client.Delete(k.t.Context(), node(name, nil)) }

// comes makes a node of that name, now.
func (k *fixture) comes(name string) {
	k.t.Helper()
	n := node(name, nil)
	n.UID, n.CreationTimestamp = "new-"+n.UID, metav1.NewTime(k.clock.Now())
	n.Status.Conditions[0].LastTransitionTime = n.CreationTimestamp
	k.create(n)
}

func TestWhatEndsThatANodeIsMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		happens             func(*fixture)
		total, unhealthy, n int // n is how many are listed
	}{
		"nothing": {func(*fixture) {}, 10, 2, 2},
		"the manager was started anew, and its memory is lost": {func(k *fixture) { k.restart() }, 10, 2, 2},
		"it comes back under its name":                         {func(k *fixture) { k.comes("n0") }, 10, 1, 1},
		"it came back, and that is known no more":              {func(k *fixture) { k.comes("n0"); k.settle("nhc"); k.restart(); k.after(time.Minute) }, 10, 1, 1},
		"it comes back, and is not well yet":                   {func(k *fixture) { k.comes("n0"); k.turn("n0", corev1.ConditionUnknown) }, 10, 1, 1},
		"another one comes":                                    {func(k *fixture) { k.comes("n10") }, 10, 1, 1},
		"another one came, and replaces but one of them":       {func(k *fixture) { k.comes("n10"); k.settle("nhc"); k.restart(); k.after(time.Minute) }, 10, 1, 1},
		"others come for all of them":                          {func(k *fixture) { k.comes("n10"); k.settle("nhc"); k.after(time.Second); k.comes("n11") }, 10, 0, 0},
		"it takes too long":                                    {func(k *fixture) { k.after(controlplane.ReplacementPatience) }, 8, 0, 0},
		"it takes long":                                        {func(k *fixture) { k.after(controlplane.ReplacementPatience - time.Minute - time.Second) }, 10, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			k := ten(t)
			k.turn("n1", corev1.ConditionUnknown)
			k.bad("n0")
			k.settle("nhc")
			k.replaces("n0", "n1")
			k.settle("nhc")
			k.after(time.Minute)
			k.answers("Replace", nhcv1.SucceededCondition, "True")
			k.settle("nhc")
			k.wants("both have succeeded")
			tc.happens(k)
			k.settle("nhc")
			p, listed := k.look("nhc").Population, k.check("nhc").Status.UnhealthyNodes
			if p.Total() != tc.total || p.Unhealthy != tc.unhealthy || p.InFlight != tc.unhealthy || len(listed) != tc.n {
				t.Errorf("population %+v; listed %+v", p, listed)
			}
		})
	}
}

func TestANodeThatAPersonDeletedIsNotMissed(t *testing.T) {
	k := ten(t)
	k.bad("n0")
	k.settle("nhc")
	k.remove(node("n0", nil))
	k.settle("nhc")
	k.wants("there is nothing to remediate")
	if st := k.check("nhc").Status; *st.ObservedNodes != 9 || len(st.UnhealthyNodes) != 0 {
		t.Errorf("%d nodes; listed %+v", *st.ObservedNodes, st.UnhealthyNodes)
	}
}
