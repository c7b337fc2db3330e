package machinehealthcheck

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// step is the part of a plan that is about one machine, with the objects that it takes.
type step struct {
	*machines.Decision
	facts  *machines.Facts
	target *target
	// request is the one to create; refused is why none can be made from the template.
	request *unstructured.Unstructured
	refused error
}

func deleting(m *clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() }

// stepsOf are the steps of p. What changes nothing is left out.
func stepsOf(w *observed, p plan) []step {
	var steps []step
	for i := range w.targets {
		t := &w.targets[i]
		if d := p.of(t); !d.Idle() {
			steps = append(steps, stepOf(w, &p, d, t))
		}
	}
	skipped := map[string]*target{}
	for i := range w.skipped {
		skipped[w.skipped[i].machine.Name] = &w.skipped[i]
	}
	for _, d := range p.Releases {
		steps = append(steps, step{Decision: d, facts: &p.facts, target: skipped[d.Target.Name]})
	}
	return steps
}

func stepOf(w *observed, p *plan, d *machines.Decision, t *target) step {
	s := step{Decision: d, facts: &p.facts, target: t}
	if d.Tried && w.remediation.external {
		s.refused = t.unusable
	}
	if d.Step == machines.CreateRequest {
		s.request, s.refused = w.requestFor(t.machine)
	}
	return s
}
