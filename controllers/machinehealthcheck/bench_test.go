package machinehealthcheck

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/workload"
)

// What a reconcile of a check of 5000 machines costs of which one has changed, without its reads and writes.
func BenchmarkOneChangeAmongFiveThousand(b *testing.B) { oneChange(b, 0, func() {}) }

// The same where four other checks are for machines of the cluster, as with one for each MachineDeployment.
func BenchmarkOneChangeAmongFiveThousandOfFiveChecks(b *testing.B) { oneChange(b, 4, func() {}) }

// The same where everything else has used the processor's caches since the last change, as between two changes of a real cluster.
func BenchmarkOneChangeAmongFiveThousandWithColdCaches(b *testing.B) {
	other := make([]byte, 64<<20)
	oneChange(b, 0, func() {
		b.StopTimer()
		for i := 0; i < len(other); i += 64 {
			other[i]++
		}
		b.StartTimer()
	})
}

func oneChange(b *testing.B, others int, between func()) {
	f, r := newFleet(), &Reconciler{Clusters: none{}}
	r.machines = f.machines
	for i := range 5000 {
		name := fmt.Sprintf("cluster-1-md-0-%05d", i)
		f.change(name, func(m *clusterv1.Machine) { markedBefore(&target{machine: m}) })
		f.ready(name, corev1.ConditionTrue, noon)
	}
	var m memory
	for b.Loop() {
		between()
		f.ready("cluster-1-md-0-02500", corev1.ConditionTrue, noon)
		f.handle(r)
		w := aCheck().limited("40%")
		w.link = workload.Seen(workload.Up, f.nodes)
		w.check.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
		w.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
		}
		w.selector, _ = selectorOf(w.check)
		for i := range others {
			name := fmt.Sprintf("pool-%d", i)
			w.others = append(w.others, otherCheck{name: name, uid: types.UID(name), selector: labels.SelectorFromSet(labels.Set{"pool": name})})
		}
		m.recall(w)
		if err := r.observeMachines(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		r.observeNodes(b.Context(), w)
		s := w.decide()
		_ = stepsOf(w, s)
		next := statusAfter(w, s, result{})
		m.leave(w, s)
		if sameStatus(w.check.Status, next.Status) {
			b.Fatal("the status is that of no machines")
		}
	}
}
