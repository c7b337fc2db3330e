package nodehealthcheck

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// BenchmarkDecide is all of a reconcile but its I/O: 5000 nodes, two templates, 50 nodes that are unhealthy.
func BenchmarkDecide(b *testing.B) {
	const total, unhealthy = 5000, 50
	c := check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))
	var all []candidate
	for i := range total {
		n := node(fmt.Sprintf("worker-%04d", i), nil)
		if i < unhealthy {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		all = append(all, candidate{n.Name, n, true})
	}
	w := &observed{check: c, facts: factsOf(c, epoch)}
	w.templates, w.facts.Templates = templatesOf(&c.Spec)
	for i := range w.templates {
		w.templates[i].object, w.facts.Templates[i].Usable = template("Reboot", "reboot", false), true
	}
	w.attach(all)
	b.ReportAllocs()
	for b.Loop() {
		p := nodes.Decide(w.facts)
		if len(p.Order) != unhealthy {
			b.Fatalf("%d are acted on", len(p.Order))
		}
		statusAfter(w, &p, nil)
	}
}
