package inspect

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
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
func (m Managers) Attend(c *look.Check, check *clusterv1.MachineHealthCheck) {
	if m.Unknown != "" || m.of(check) != nil {
		return
	}
	because, person := m.nobody(m.offs(check))
	switch {
	case c.Stance == look.Acting && person == "":
		hold := look.Hold{Reason: NoManager, Text: because, Ends: "the manager that leaves has given the check back to Cluster API core"}
		unattended(c, look.Nobody, hold, look.Step{Text: "nothing, until " + hold.Ends})
	case c.Stance == look.Acting:
		person += ", or hand the check back to Cluster API core: kubectl mend release mhc/" + check.Name + " -n " + check.Namespace
		unattended(c, look.Nobody, look.Hold{Reason: NoManager, Text: because, Person: person}, look.Step{Text: person, Person: true})
	case c.Stance == look.Observing: // there is nobody to observe it, or to hand it to
		c.Stance, c.Because = look.Core, "The check is not claimed for kubemend: Cluster API core acts on it. "+because
		elsewhere(c)
	}
}

// elsewhere says in c, on which Cluster API core acts, that nobody can hand it to kubemend.
func elsewhere(c *look.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		at := slices.IndexFunc(t.Holds, func(h look.Hold) bool { return h.Reason == machinehealthcheck.NotActing })
		if at < 0 {
			continue
		}
		t.Holds[at].Text, t.Holds[at].Person = c.Because, ""
		if t.Next.Person {
			t.Next = look.Step{Text: "Cluster API core acts on it"}
		}
	}
}

// Serve says in c, which is of a kind that belongs to no namespace, if no manager acts on it.
func (m Managers) Serve(c *look.Check, crd string) {
	served, not := m.serves(crd)
	switch {
	case served || c.Stance != look.Acting:
	case not == nil:
		because, person := m.nobody(m.leaving())
		unattended(c, look.Nobody, look.Hold{Reason: NoManager, Text: because, Person: person}, step(person, "nothing: what was begun is taken back"))
	default:
		stance, next := otherwise(not)
		hold := look.Hold{Reason: NotServed, Text: notServed(not)}
		if next.Person {
			hold.Person = next.Text
		}
		unattended(c, stance, hold, next)
	}
}

// step is what a person has to do, or what happens if that is nothing.
func step(person, otherwise string) look.Step {
	if person == "" {
		return look.Step{Text: otherwise}
	}
	return look.Step{Text: person, Person: true}
}

func notServed(kind *managerlease.Kind) string {
	return "kubemend does not serve the kind: " + kind.Because
}

// otherwise is who acts on a kind that kubemend does not serve, and what happens to its objects.
func otherwise(kind *managerlease.Kind) (look.Stance, look.Step) {
	switch kind.Reason {
	case crdgate.ForeignReason:
		return look.Other, look.Step{Text: "the controller that serves the kind acts on it"}
	case crdgate.OffReason:
		return look.Other, look.Step{Text: "another controller acts on it, if one serves the kind"}
	}
	return look.Nobody, look.Step{Text: "See to what keeps kubemend from serving the kind", Person: true}
}

// unattended says in c that hold keeps everything of it from being done.
func unattended(c *look.Check, stance look.Stance, hold look.Hold, next look.Step) {
	c.Stance, c.Because, c.Next = stance, hold.Text, next
	for i := range c.Targets {
		t := &c.Targets[i]
		t.Begins = false
		if t.Left != "" || t.State == health.Healthy && !t.InFlight {
			continue
		}
		t.Next, t.Holds = next, slices.Insert(t.Holds, 0, hold)
	}
}
