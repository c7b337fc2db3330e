package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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

// unclaimed returns the value of --unclaimed-machine-health-checks of the manager that reconciles a check, or the flag's default if that is
// not known. A running manager whose scope could not be verified counts.
func (m Managers) unclaimed(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) machinehealthcheck.Unclaimed {
	for _, is := range m.All {
		if off := is.StandsOff(check, cluster); off.Reason != "" && !off.Unknown() {
			continue
		}
		if is.Announcement == nil || is.Announcement.Unclaimed == "" {
			break
		}
		return machinehealthcheck.Unclaimed(is.Announcement.Unclaimed)
	}
	return machinehealthcheck.Observe
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

// absent returns why no manager acts on an object of a kind, with the mode of its check and the next step, which is empty if no user can do
// anything; nil if a manager may act. standsOff is why a running manager does not act on the object.
func (m Managers) absent(
	crd string, standsOff func(*managerlease.Manager) managerlease.Off,
) (cliv1.Mode, *explain.Blocker, explain.Step) {
	var unserved *managerlease.Kind
	var offs []managerlease.Off
	served, acts := false, m.Unknown != ""
	for i := range m.All {
		is := &m.All[i]
		if !is.Alive {
			continue
		}
		off := standsOff(is)
		offs = append(offs, off)
		switch not := is.Unserved(crd); {
		case ptr.Deref(is.Announcement, managerlease.Announcement{}).Teardown, crd == crdgate.NodeCheckCRD && len(is.Within) > 0:
			// a manager with rights in some namespaces only cannot serve a cluster-scoped kind
		case not != nil:
			unserved = not
		default:
			served, acts = true, acts || off.Reason == "" || off.Unknown()
		}
	}
	switch {
	case unserved != nil && !served:
		mode, next := otherwise(unserved)
		hold := &explain.Blocker{Reason: explain.NotServed, Text: explain.KindNotServed(unserved.Because)}
		if next.Manual {
			hold.Fix = next.Text
		}
		return mode, hold, next
	case acts:
		return "", nil, explain.Step{}
	}
	hold, mode, next := &explain.Blocker{Reason: explain.NoManager}, cliv1.ModeNone, explain.Step{}
	if len(m.All) == 0 {
		mode = cliv1.ModeUnknown // no manager has ever announced itself
	}
	if hold.Text, hold.Fix = explain.NoManagerActs(m.All, offs); hold.Fix != "" {
		next = explain.Step{Reason: hold.Reason, Text: hold.Fix, Manual: true}
	}
	return mode, hold, next
}

// Attend replaces the mode of c, the explanation of check, if no manager reconciles check. The cluster is nil if it does not exist.
func (m Managers) Attend(c *explain.Check, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) {
	mode, hold, next := m.absent(crdgate.MachineCheckCRD, func(is *managerlease.Manager) managerlease.Off {
		return is.StandsOff(check, cluster)
	})
	switch {
	case hold == nil:
	case c.Mode == cliv1.ModeObserving && m.Unknown == "": // no manager observes the check, so a claim would not help
		c.Mode, c.ModeMessage = cliv1.ModeCore, "The check is not claimed for kubemend: Cluster API core acts on it. "+hold.Text
		elsewhere(c)
	case c.Mode != cliv1.ModeActing:
	case hold.Reason == explain.NotServed:
		unattended(c, mode, hold, next)
	case hold.Fix == "":
		hold.EndsWhen = "the manager in teardown has released the check to Cluster API core"
		unattended(c, mode, hold, explain.Ended(hold))
	default:
		hold.Fix += ", or release the check to Cluster API core: kubectl mend release mhc/" + check.Name + " -n " + check.Namespace
		next.Text = hold.Fix
		unattended(c, mode, hold, next)
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

// Serve replaces the mode of c, the explanation of a NodeHealthCheck, if no manager acts on the kind.
func (m Managers) Serve(c *explain.Check) {
	mode, hold, next := m.absent(crdgate.NodeCheckCRD, func(is *managerlease.Manager) managerlease.Off {
		if is.Announcement != nil && is.Announcement.Teardown {
			return is.InTeardown()
		}
		return managerlease.Off{}
	})
	if hold != nil && c.Mode == cliv1.ModeActing {
		reverts := explain.Step{Reason: explain.NoManager, Text: "the manager reverts what it has begun, and starts nothing"}
		unattended(c, mode, hold, cmp.Or(next, reverts))
	}
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
func unattended(c *explain.Check, mode cliv1.Mode, hold *explain.Blocker, next explain.Step) {
	c.Mode, c.ModeMessage, c.Next = mode, hold.Text, next
	for i := range c.Targets {
		t := &c.Targets[i]
		t.StartsNow = false
		if t.Skipped != "" || t.State == cliv1.StateHealthy && !t.InFlight {
			continue
		}
		t.Next, t.Blockers = next, slices.Insert(t.Blockers, 0, *hold)
	}
}
