package machinehealthcheck

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A reconcile for one Node that turns, but for what it reads and writes elsewhere than in the caches of Machines and Nodes.
func BenchmarkAChangeAmong5000Machines(b *testing.B) {
	f := newFleet()
	for i := range 5000 {
		name := fmt.Sprintf("machine-%05d", i)
		f.change(name, func(m *clusterv1.Machine) {
			for c := range 10 {
				m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Condition%d", c), Status: "True"})
			}
			markedBefore(&Target{Machine: m})
		})
		f.ready(name, corev1.ConditionTrue, noon)
	}
	r, now := &Reconciler{Clusters: noNodes{}, machines: f.machines}, noon
	pass := func() {
		w := f.check(now)
		w.selector, _ = selectorOf(w.Check)
		r.memory.recall(w)
		if err := r.observeMachines(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		r.observeNodes(b.Context(), w)
		w.attachRequests()
		p := w.decide()
		statusAfter(w, p, nil)
		r.memory.leave(w, p)
	}
	pass()
	b.ReportAllocs()
	statuses := []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue}
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Second)
		f.ready("machine-02500", statuses[i%2], now)
		pass()
	}
}
