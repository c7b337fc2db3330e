package nodehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// plan is what the population as a whole allows.
type plan struct {
	population budget.Population
	limits     budget.Limits
	grant      budget.Grant
	storm      budget.StormStep
	// holds is all that keeps anything new from beginning, in the order of what is said of it; empty if it may.
	holds []explain.Blocker
}

// hold is why no remediation begins that would add a node, for the condition RemediationAllowed. What has begun goes on. It is zero if they may
// begin.
func (s plan) hold() explain.Blocker {
	if len(s.holds) == 0 {
		return explain.Blocker{}
	}
	return s.holds[0]
}

// decide counts the population and says what it allows.
func decide(w *observed) plan {
	s := plan{population: count(w)}
	s.limits, _ = limitsOf(&w.check.Spec, s.population.Total()) // limits that cannot be read disable the check
	s.grant = budget.Decide(s.population, s.limits)
	tooMany := s.grant.ShortCircuited()
	storm := stormOf(w.check)
	// Nodes that are not due yet make no storm: they would in every rollout.
	s.storm = storm.Next(cooldownOf(&w.check.Spec), tooMany && (storm.Active || s.population.Unhealthy > 0), w.now)
	s.holds = w.holds(s)
	return s
}

// holds is all that keeps what would add a node from beginning.
func (w *observed) holds(s plan) []explain.Blocker {
	var all []explain.Blocker
	if w.disabled != nil || w.unread() {
		all = append(all, w.unusable())
	}
	if len(w.check.Spec.PauseRequests) > 0 {
		all = append(all, explain.Blocker{
			Reason: nhcv1.PausedReason, Text: postponedByPause,
			Person: "remove the entries of spec.pauseRequests: " + strings.Join(w.check.Spec.PauseRequests, ", "), Ends: "spec.pauseRequests is empty",
		})
	}
	if w.upgrading != "" {
		all = append(all, explain.Blocker{Reason: nhcv1.UpgradeReason, Text: postponedByUpgrade + ": " + w.upgrading, Ends: "the upgrade is over"})
	}
	if !w.settled.IsZero() && s.population.Unhealthy+s.population.Pending > 0 {
		all = append(all, w.unsettled())
	}
	if s.grant.ShortCircuited() {
		all = append(all, explain.Blocker{Reason: nhcv1.TooManyReason, Text: arithmetic(s), Ends: enoughHealthy(s)})
	}
	if s.storm.Blocks {
		ends := stormOver
		if s.storm.Recheck.IsZero() { // the cooldown has not begun
			ends = "the storm is over, and the cooldown after it"
		}
		all = append(all, explain.Blocker{Reason: nhcv1.StormReason, Text: skippedByStorm, Until: s.storm.Recheck, Ends: ends})
	}
	return all
}

// unusable is why nothing can be made: the check is disabled, or a template of it is not known.
func (w *observed) unusable() explain.Blocker {
	if w.disabled != nil {
		return explain.Blocker{Reason: nhcv1.DisabledReason, Text: w.disabled.message, Person: mends[w.disabled.reason]}
	}
	if i := slices.IndexFunc(w.remedies, func(m remedy) bool { return m.unread }); i >= 0 {
		return explain.TemplatesUnread(w.remedies[i].kind.Kind)
	}
	return explain.Blocker{Reason: nhcv1.UnreadReason, Text: "A remediation template could not be read for the moment"}
}

// mends are what a person has to do about a check that is disabled, by the reason of its condition.
var mends = map[string]string{
	nhcv1.ConflictReason:          "delete the MachineHealthChecks of OpenShift but the one that it brings along",
	nhcv1.TemplateNotFoundReason:  "make the template, or have the check name one that is there",
	nhcv1.TemplateInvalidReason:   "mend the template, or have the check name another one",
	nhcv1.TemplateForbiddenReason: "bind the rights that the remediator's ClusterRole is to bring",
	nhcv1.SelectorInvalidReason:   "mend spec.selector",
	nhcv1.InvalidLimitReason:      "mend spec.minHealthy or spec.maxUnhealthy",
}

const (
	postponedByPause   = "Postponing potential remediations because of pause requests"
	postponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"
	skippedByStorm     = "Storm recovery active: skipping creation of new remediations"
)

// stormOver ends what holds everything back after a storm.
const stormOver = "the cooldown after the storm is over"

// enoughHealthy is what ends that too few are healthy.
func enoughHealthy(s plan) string {
	return fmt.Sprintf("at least %d of %d nodes are healthy; %d of them are now", s.minimum(), s.population.Total(), s.population.Healthy)
}

// arithmetic is the sum that forbids remediation.
func arithmetic(s plan) string {
	p, terminating := s.population, ""
	if p.Unknown > 0 {
		terminating = fmt.Sprintf(", %d terminating", p.Unknown)
	}
	return fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or exceed %d "+
		"(%d nodes: %d healthy, %d unhealthy, %d soon unhealthy, %d recovering%s)",
		p.Healthy, s.minimum(), p.Total(), p.Healthy, p.Unhealthy, p.Pending, p.Recovering, terminating)
}

// minimum is how many nodes have to be healthy.
func (s plan) minimum() int { return s.population.Total() - s.limits.AtMost }

// count sorts into the classes that the limits are about: the selected nodes, and those that a remediation took away.
func count(w *observed) budget.Population {
	var p budget.Population
	for i := range w.targets {
		t := &w.targets[i]
		if !t.counts(w.now) {
			continue
		}
		if t.inFlight() {
			p.InFlight++
		}
		p.Count(classOf(t))
		if t.verdict.State == health.Unhealthy && !t.inFlight() {
			p.Waiting++
		}
	}
	return p
}

// counts reports whether the limits are about t. A node that is gone is selected by nothing; it counts all the same while a remediation that may have
// taken it away goes on, and after that while it is missing.
func (t *target) counts(now time.Time) bool {
	return t.selected || t.node == nil && (t.missing || len(t.unseen) > 0 || slices.ContainsFunc(t.requests, func(f *found) bool {
		return !f.guessed && !f.clings(now)
	}))
}

// classOf is what the limits count a target as.
func classOf(t *target) budget.Class {
	switch {
	case t.node == nil, t.verdict.State == health.Unhealthy:
		return budget.Unhealthy
	case t.verdict.State == health.Unknown:
		return budget.Unknown
	case t.verdict.State == health.Pending:
		return budget.Pending
	case t.remediated(), len(t.leftovers) > 0:
		return budget.Recovering
	}
	return budget.Healthy
}
