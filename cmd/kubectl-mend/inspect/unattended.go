package inspect

import (
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// attended reports whether a manager reconciles a check, as far as is known. The cluster is nil if there is none.
func (m Managers) attended(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	return m.Unknown != "" || m.of(check, cluster) != nil
}

// Attend replaces the mode of c, which is of check, if no manager reconciles it. The cluster is nil if there is none.
func (m Managers) Attend(c *explain.Check, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) {
	if m.attended(check, cluster) {
		return
	}
	because, person := explain.NoManagerActs(m.All, m.offs(check, cluster))
	switch {
	case c.Mode == explain.Acting && person == "":
		leaving := explain.Blocker{Reason: explain.NoManager, Text: because,
			EndsWhen: "the manager in teardown has released the check to Cluster API core"}
		unattended(c, explain.None, leaving, explain.NothingUntil(leaving))
	case c.Mode == explain.Acting:
		unmanaged := explain.Blocker{Reason: explain.NoManager, Text: because,
			Fix: person + ", or release the check to Cluster API core: kubectl mend release mhc/" + check.Name + " -n " + check.Namespace}
		unattended(c, m.unseen(), unmanaged, explain.Step{Reason: unmanaged.Reason, Text: unmanaged.Fix, Manual: true})
	case c.Mode == explain.Observing: // no manager observes it, or could be given it
		c.Mode, c.ModeMessage = explain.Core, "The check is not claimed for kubemend: Cluster API core acts on it. "+because
		elsewhere(c)
	}
}

// elsewhere removes the advice to claim c, since no manager would act on it.
func elsewhere(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		at := slices.IndexFunc(t.Blockers, func(h explain.Blocker) bool { return h.Reason == explain.NotActing })
		if at < 0 {
			continue
		}
		t.Blockers[at].Text, t.Blockers[at].Fix = c.ModeMessage, ""
		if t.Next.Manual {
			t.Next = explain.Step{Reason: explain.OtherControllerActs, Text: "Cluster API core acts on it"}
		}
	}
}

// Serve replaces the mode of c, which is of a cluster-scoped kind, if no manager acts on it.
func (m Managers) Serve(c *explain.Check, crd string) {
	served, not := m.serves(crd)
	switch {
	case served || c.Mode != explain.Acting:
	case not == nil:
		because, person := explain.NoManagerActs(m.All, m.leaving())
		unattended(c, m.unseen(), explain.Blocker{Reason: explain.NoManager, Text: because, Fix: person}, step(person,
			"the manager reverts what it has begun, and starts nothing"))
	default:
		mode, next := otherwise(not)
		hold := explain.Blocker{Reason: explain.NotServed, Text: explain.KindNotServed(not.Because)}
		if next.Manual {
			hold.Fix = next.Text
		}
		unattended(c, mode, hold, next)
	}
}

// step is what a person has to do, or what happens if that is nothing.
func step(person, otherwise string) explain.Step {
	if person == "" {
		return explain.Step{Reason: explain.NoManager, Text: otherwise}
	}
	return explain.Step{Reason: explain.NoManager, Text: person, Manual: true}
}

// otherwise is who acts on a kind that kubemend does not serve, and what happens to its objects.
func otherwise(kind *managerlease.Kind) (explain.Mode, explain.Step) {
	switch kind.Reason {
	case crdgate.ForeignReason:
		return explain.Other, explain.Step{Reason: explain.OtherControllerActs, Text: "the controller that serves the kind acts on it"}
	case crdgate.OffReason:
		return explain.Other, explain.Step{Reason: explain.OtherControllerActs,
			Text: "another controller acts on it, if one serves the kind"}
	}
	return explain.None, explain.Step{Reason: explain.NotServed, Text: "See to what keeps kubemend from serving the kind", Manual: true}
}

// unattended puts a blocker before all others of c.
func unattended(c *explain.Check, mode explain.Mode, hold explain.Blocker, next explain.Step) {
	c.Mode, c.ModeMessage, c.Next = mode, hold.Text, next
	for i := range c.Targets {
		t := &c.Targets[i]
		t.StartsNow = false
		if t.Skipped != "" || t.State == cliv1.StateHealthy && !t.InFlight {
			continue
		}
		t.Next, t.Blockers = next, slices.Insert(t.Blockers, 0, hold)
	}
}
