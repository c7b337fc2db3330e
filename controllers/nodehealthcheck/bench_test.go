package nodehealthcheck

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkDecide is all of a reconcile but its I/O: 5000 nodes, two remedies, 50 nodes that are unhealthy.
func BenchmarkDecide(b *testing.B) {
	const nodes, unhealthy = 5000, 50
	w := &observed{memory: &memory{}, now: epoch, check: check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))}
	w.policy, w.remedies = policyOf(&w.check.Spec), remediesOf(&w.check.Spec)
	w.rungs = rungsOf(w.remedies)
	for i := range w.remedies {
		w.remedies[i].object = template("Reboot", "reboot", false)
	}
	for i := range nodes {
		n := node(fmt.Sprintf("worker-%04d", i), nil)
		if i < unhealthy {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		w.targets = append(w.targets, target{name: n.Name, node: n, selected: true})
	}
	b.ReportAllocs()
	for b.Loop() {
		w.judge()
		s := decide(w)
		if steps := stepsOf(w, s); len(steps) != unhealthy {
			b.Fatalf("%d steps", len(steps))
		}
		statusAfter(w, s, nil)
	}
}
