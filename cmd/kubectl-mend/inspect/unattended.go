package inspect

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// The reasons of what holds everything back where no manager acts.
const (
	// NotServed is that of a kind that kubemend does not act on.
	NotServed = "KindNotServed"
	// NoManager is that of an object that no manager looks at.
	NoManager = "NoManager"
)

// Attend says in c, which is of check, if no manager looks at it.
func (m Managers) Attend(c *explain.Check, check *clusterv1.MachineHealthCheck) {
	if m.Unknown != "" || m.of(check) != nil {
		return
	}
	because, person := m.nobody(m.offs(check))
	switch {
	case c.Mode == explain.Acting && person == "":
		hold := explain.Blocker{Reason: NoManager, Text: because, Ends: "the manager that leaves has given the check back to Cluster API core"}
		unattended(c, explain.Nobody, hold, explain.Step{Text: "nothing, until " + hold.Ends})
	case c.Mode == explain.Acting:
		person += ", or hand the check back to Cluster API core: kubectl mend release mhc/" + check.Name + " -n " + check.Namespace
		unattended(c, explain.Nobody, explain.Blocker{Reason: NoManager, Text: because, Person: person}, explain.Step{Text: person, Person: true})
	case c.Mode == explain.Observing: // there is nobody to observe it, or to hand it to
		c.Mode, c.Because = explain.Core, "The check is not claimed for kubemend: Cluster API core acts on it. "+because
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
			t.Next = explain.Step{Text: "Cluster API core acts on it"}
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
		unattended(c, explain.Nobody, explain.Blocker{Reason: NoManager, Text: because, Person: person}, step(person, "nothing: what was begun is taken back"))
	default:
		mode, next := otherwise(not)
		hold := explain.Blocker{Reason: NotServed, Text: notServed(not)}
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

func notServed(kind *managerlease.Kind) string {
	return "kubemend does not serve the kind: " + kind.Because
}

// otherwise is who acts on a kind that kubemend does not serve, and what happens to its objects.
func otherwise(kind *managerlease.Kind) (explain.Mode, explain.Step) {
	switch kind.Reason {
	case crdgate.ForeignReason:
		return explain.Other, explain.Step{Text: "the controller that serves the kind acts on it"}
	case crdgate.OffReason:
		return explain.Other, explain.Step{Text: "another controller acts on it, if one serves the kind"}
	}
	return explain.Nobody, explain.Step{Text: "See to what keeps kubemend from serving the kind", Person: true}
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
