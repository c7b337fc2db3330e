package inspect

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Attend says in c, which is of check, if no manager looks at it.
func (m Managers) Attend(c *explain.Check, check *clusterv1.MachineHealthCheck) {
	if m.Unknown != "" || m.of(check) != nil {
		return
	}
	because, person := m.nobody(m.offs(check))
	switch {
	case c.Mode == explain.Acting && person == "":
		leaving := explain.Leaving(because)
		unattended(c, explain.Nobody, leaving, explain.NothingUntil(leaving))
	case c.Mode == explain.Acting:
		unmanaged := explain.Unmanaged(because, person, check.Namespace, check.Name)
		unattended(c, explain.Nobody, unmanaged, explain.Step{Text: unmanaged.Person, Person: true})
	case c.Mode == explain.Observing: // there is nobody to observe it, or to hand it to
		c.Mode, c.Because = explain.Core, explain.NotClaimed(because)
		elsewhere(c)
	}
}

// elsewhere says in c, on which Cluster API core acts, that nobody can hand it to kubemend.
func elsewhere(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		at := slices.IndexFunc(t.Blockers, func(h explain.Blocker) bool { return h.Reason == explain.NotActing })
		if at < 0 {
			continue
		}
		t.Blockers[at].Text, t.Blockers[at].Person = c.Because, ""
		if t.Next.Person {
			t.Next = explain.CoreActs
		}
	}
}

// Serve says in c, which is of a kind that belongs to no namespace, if no manager acts on it.
func (m Managers) Serve(c *explain.Check, crd string) {
	served, not := m.serves(crd)
	switch {
	case served || c.Mode != explain.Acting:
	case not == nil:
		because, person := m.nobody(m.leaving())
		unattended(c, explain.Nobody, explain.Blocker{Reason: explain.NoManager, Text: because, Person: person}, step(person, explain.TakenBack))
	default:
		mode, next := otherwise(not)
		hold := explain.Blocker{Reason: explain.NotServed, Text: explain.KindNotServed(not.Because)}
		if next.Person {
			hold.Person = next.Text
		}
		unattended(c, mode, hold, next)
	}
}

// step is what a person has to do, or what happens if that is nothing.
func step(person, otherwise string) explain.Step {
	if person == "" {
		return explain.Step{Text: otherwise}
	}
	return explain.Step{Text: person, Person: true}
}

// otherwise is who acts on a kind that kubemend does not serve, and what happens to its objects.
func otherwise(kind *managerlease.Kind) (explain.Mode, explain.Step) {
	switch kind.Reason {
	case crdgate.ForeignReason:
		return explain.Other, explain.OtherServes
	case crdgate.OffReason:
		return explain.Other, explain.OtherMayAct
	}
	return explain.Nobody, explain.NobodyServes
}

// unattended says in c that hold keeps everything of it from being done.
func unattended(c *explain.Check, mode explain.Mode, hold explain.Blocker, next explain.Step) {
	c.Mode, c.Because, c.Next = mode, hold.Text, next
	for i := range c.Targets {
		t := &c.Targets[i]
		t.Begins = false
		if t.Left != "" || t.State == health.Healthy && !t.InFlight {
			continue
		}
		t.Next, t.Blockers = next, slices.Insert(t.Blockers, 0, hold)
	}
}
