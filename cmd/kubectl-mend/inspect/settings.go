package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Managers are the managers that have announced themselves.
type Managers struct {
	All []managerlease.Manager
	// Unknown is why other managers may run as well; empty if none can.
	Unknown string
}

// ManagersOf returns the managers of a snapshot at now, running ones first.
func ManagersOf(ctx context.Context, w *snapshot.Snapshot, now time.Time) Managers {
	all, unlisted := managerlease.Of(ctx, w, now)
	order := map[bool]int{true: -1}
	slices.SortStableFunc(all, func(a, b managerlease.Manager) int { return order[a.Alive] - order[b.Alive] })
	m := Managers{All: all}
	var unknown []string
	if unlisted != nil {
		unknown = append(unknown, unlisted.Error())
	}
	for i := range all {
		if is := &all[i]; is.Alive && is.Unverified != "" {
			unknown = append(unknown,
				fmt.Sprintf("it is not known whether the lease in namespace %s belongs to a manager (%s)", is.Namespace, is.Unverified))
		}
	}
	m.Unknown = strings.Join(unknown, "; ")
	return m
}

// Doubt returns the sentence that other managers may run; empty if none can.
func (m Managers) Doubt() string {
	if m.Unknown == "" {
		return ""
	}
	if slices.ContainsFunc(m.All, func(is managerlease.Manager) bool { return is.Alive && is.Unverified == "" }) {
		return "It is not known whether other managers of kubemend run as well: " + m.Unknown
	}
	return "It is not known whether a manager of kubemend runs: " + m.Unknown
}

// clockAhead returns how far the clock of a running manager is ahead of the API server's. Its judgements depend on that.
func (m Managers) clockAhead() time.Duration {
	for _, is := range m.All {
		if is.Alive && is.Announcement != nil && is.Announcement.ClockAheadSeconds != 0 {
			return is.Announcement.ClockAhead()
		}
	}
	return 0
}

// of returns the manager that reconciles an object, or nil. A running manager whose scope could not be verified counts.
func (m Managers) of(obj client.Object, cluster *clusterv1.Cluster) *managerlease.Manager {
	for i := range m.All {
		if off := m.All[i].StandsOff(obj, cluster); off.Reason == "" || off.Unknown() {
			return &m.All[i]
		}
	}
	return nil
}

// unclaimed returns the value of --unclaimed-machine-health-checks of a manager, or the flag's default if it is not known.
func unclaimed(m *managerlease.Manager) machinehealthcheck.Unclaimed {
	if m == nil || m.Announcement == nil || m.Announcement.Unclaimed == "" {
		return machinehealthcheck.Observe
	}
	return machinehealthcheck.Unclaimed(m.Announcement.Unclaimed)
}

// PolicyNamespace returns the namespace whose RemediationPolicies apply to all namespaces.
func (m Managers) PolicyNamespace() string {
	return m.announced(managerlease.UsualNamespace, func(a *managerlease.Announcement) string { return a.PolicyNamespace })
}

func (m Managers) announced(usual string, setting func(*managerlease.Announcement) string) string {
	for _, is := range m.All {
		if is.Announcement != nil && setting(is.Announcement) != "" {
			return setting(is.Announcement)
		}
	}
	return usual
}

// unseen returns the mode of a check on which no manager is known to act: none if a manager has announced itself, and unknown if none has.
func (m Managers) unseen() cliv1.Mode {
	if len(m.All) == 0 {
		return cliv1.ModeUnknown
	}
	return cliv1.ModeNone
}

// serves reports whether a manager serves a kind. If running managers do not, it returns what the last one announced about the kind; nil if
// no manager runs. If unknown managers may run, one of them may serve it.
func (m Managers) serves(crd string) (bool, *managerlease.Kind) {
	var not *managerlease.Kind
	for _, is := range m.All {
		if !is.Alive || is.Announcement != nil && is.Announcement.Teardown || crd == crdgate.NodeCheckCRD && len(is.Within) > 0 {
			continue // a manager with rights in some namespaces only cannot serve a cluster-scoped kind
		}
		if not = is.Unserved(crd); not == nil {
			return true, nil
		}
	}
	return not == nil && m.Unknown != "", not
}

// nobodyActs returns why no manager acts on an object, and what a user can do. standsOff is why a running manager does not act on it.
func (m Managers) nobodyActs(standsOff func(*managerlease.Manager) managerlease.Off) (because, person string) {
	var offs []managerlease.Off
	for i := range m.All {
		if m.All[i].Alive {
			offs = append(offs, standsOff(&m.All[i]))
		}
	}
	return explain.NoManagerActs(m.All, offs)
}

// Attend replaces the mode of c, the explanation of check, if no manager reconciles check. The cluster is nil if it does not exist.
func (m Managers) Attend(c *explain.Check, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) {
	served, not := m.serves(crdgate.MachineCheckCRD)
	if !served && not != nil && c.Mode == cliv1.ModeActing {
		notServed(c, not)
		return
	}
	if m.Unknown != "" || m.of(check, cluster) != nil {
		return
	}
	because, person := m.nobodyActs(func(is *managerlease.Manager) managerlease.Off { return is.StandsOff(check, cluster) })
	switch {
	case c.Mode == cliv1.ModeActing && person == "":
		leaving := explain.Blocker{Reason: explain.NoManager, Text: because,
			EndsWhen: "the manager in teardown has released the check to Cluster API core"}
		unattended(c, cliv1.ModeNone, leaving, explain.Ended(&leaving))
	case c.Mode == cliv1.ModeActing:
		unmanaged := explain.Blocker{Reason: explain.NoManager, Text: because,
			Fix: person + ", or release the check to Cluster API core: kubectl mend release mhc/" + check.Name + " -n " + check.Namespace}
		unattended(c, m.unseen(), unmanaged, explain.Step{Reason: unmanaged.Reason, Text: unmanaged.Fix, Manual: true})
	case c.Mode == cliv1.ModeObserving: // no manager observes the check, so a claim would not help
		c.Mode, c.ModeMessage = cliv1.ModeCore, "The check is not claimed for kubemend: Cluster API core acts on it. "+because
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

// Serve replaces the mode of c, the explanation of a cluster-scoped check, if no manager acts on its kind.
func (m Managers) Serve(c *explain.Check, crd string) {
	served, not := m.serves(crd)
	switch {
	case served || c.Mode != cliv1.ModeActing:
	case not == nil:
		because, person := m.nobodyActs(func(is *managerlease.Manager) managerlease.Off {
			if is.Announcement != nil && is.Announcement.Teardown {
				return is.InTeardown()
			}
			return managerlease.Off{}
		})
		unattended(c, m.unseen(), explain.Blocker{Reason: explain.NoManager, Text: because, Fix: person}, step(person,
			"the manager reverts what it has begun, and starts nothing"))
	default:
		notServed(c, not)
	}
}

// notServed replaces the mode of c because a running manager announces that it does not serve the kind.
func notServed(c *explain.Check, not *managerlease.Kind) {
	mode, next := otherwise(not)
	hold := explain.Blocker{Reason: explain.NotServed, Text: explain.KindNotServed(not.Because)}
	if next.Manual {
		hold.Fix = next.Text
	}
	unattended(c, mode, hold, next)
}

// step returns what a user has to do (person) or, if that is empty, what happens otherwise.
func step(person, otherwise string) explain.Step {
	if person == "" {
		return explain.Step{Reason: explain.NoManager, Text: otherwise}
	}
	return explain.Step{Reason: explain.NoManager, Text: person, Manual: true}
}

// otherwise returns the mode and the next step of objects whose kind kubemend does not serve.
func otherwise(kind *managerlease.Kind) (cliv1.Mode, explain.Step) {
	switch kind.Reason {
	case crdgate.ForeignReason:
		return cliv1.ModeOther, explain.Step{Reason: explain.OtherControllerActs, Text: "the controller that serves the kind acts on it"}
	case crdgate.OffReason:
		return cliv1.ModeOther, explain.Step{Reason: explain.OtherControllerActs,
			Text: "another controller acts on it, if one serves the kind"}
	}
	return cliv1.ModeNone, explain.Step{Reason: explain.NotServed, Text: "Remove what keeps kubemend from serving the kind", Manual: true}
}

// unattended sets the mode of c, and puts a blocker before all others of its unhealthy targets.
func unattended(c *explain.Check, mode cliv1.Mode, hold explain.Blocker, next explain.Step) {
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
