package machinehealthcheck

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/workload"
)

func BenchmarkAChangeAmong5000Machines(b *testing.B) {
	f, r := newFleet(), &Reconciler{Clusters: none{}}
	r.machines = f.machines
	for i := range 5000 {
		name := fmt.Sprintf("machine-%05d", i)
		f.change(name, func(m *clusterv1.Machine) {
			for c := range 10 {
				m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Condition%d", c), Status: "True"})
			}
			markedBefore(&target{machine: m})
		})
		f.ready(name, corev1.ConditionTrue, noon)
	}
	now := noon
	pass := func() {
		w := aCheck()
		w.now, w.link = now, workload.Seen(workload.Up, f.nodes)
		w.check.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
		w.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
		}
		w.selector, _ = selectorOf(w.check)
		r.memory.recall(w)
		if err := r.observeMachines(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		r.observeNodes(b.Context(), w)
		w.attachRequests()
		p := w.decide()
		statusAfter(w, p, result{})
		r.memory.leave(w, p)
	}
	pass()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		now = now.Add(time.Second)
		status := corev1.ConditionUnknown
		if i%2 == 1 {
			status = corev1.ConditionTrue
		}
		f.ready("machine-02500", status, now)
		pass()
	}
}
