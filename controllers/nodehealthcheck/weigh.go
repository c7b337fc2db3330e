package nodehealthcheck

import (
	"fmt"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/budget"
	"github.com/kubemend/kubemend/controllers/health"
)

// summary is what the population as a whole allows.
type summary struct {
	population budget.Population
	limits     budget.Limits
	grant      budget.Grant
	storm      budget.StormStep
	// hold is why nothing new begins; empty if it may.
	hold hold
}

// hold is why no remediation begins that would add a node, for the condition RemediationAllowed. What has begun goes on.
type hold struct{ reason, message string }

// weigh counts the population and says what it allows.
func weigh(w *world) summary {
	s := summary{population: count(w)}
	limits, err := limitsOf(&w.check.Spec, s.population.Total())
	if err != nil && w.disabled == nil {
		w.disabled = &disabling{nhcv1.LimitInvalidReason, err.Error()}
	}
	s.limits = limits
	s.grant = budget.Decide(s.population, limits)
	tooMany := s.grant.ShortCircuited()
	storm := stormOf(w.check)
	// Nodes that are not due yet make no storm: they would in every rollout.
	s.storm = storm.Next(cooldownOf(&w.check.Spec), tooMany && (storm.Active || s.population.Unhealthy > 0), w.now)
	switch {
	case w.disabled != nil:
		s.hold = hold{nhcv1.DisabledReason, w.disabled.message}
	case w.unread():
		s.hold = hold{nhcv1.UnreadReason, "A remediation template could not be read for the moment"}
	case len(w.check.Spec.PauseRequests) > 0:
		s.hold = hold{nhcv1.PausedReason, postponedByPause}
	case w.upgrading != "":
		s.hold = hold{nhcv1.UpgradeReason, postponedByUpgrade + ": " + w.upgrading}
	case tooMany:
		s.hold = hold{nhcv1.TooManyReason, arithmetic(s)}
	case s.storm.Blocks:
		s.hold = hold{nhcv1.StormReason, skippedByStorm}
	}
	return s
}

const (
	postponedByPause   = "Postponing potential remediations because of pause requests"
	postponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"
	skippedByStorm     = "Storm recovery active: skipping creation of new remediations"
)

// arithmetic is the sum that forbids remediation.
func arithmetic(s summary) string {
	p := s.population
	return fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or exceed %d "+
		"(%d nodes: %d healthy, %d unhealthy, %d soon unhealthy, %d recovering)",
		p.Healthy, s.minimum(), p.Total(), p.Healthy, p.Unhealthy, p.Suspect, p.Recovering)
}

// minimum is how many nodes have to be healthy.
func (s summary) minimum() int { return s.population.Total() - s.limits.AtMost }

// count sorts the selected nodes into the classes that the limits are about.
func count(w *world) budget.Population {
	var p budget.Population
	for i := range w.targets {
		t := &w.targets[i]
		if !t.selected {
			continue
		}
		if t.remediated() {
			p.InFlight++
		}
		switch {
		case t.verdict.State == health.Unhealthy:
			p.Unhealthy++
			if !t.remediated() {
				p.Waiting++
			}
		case t.verdict.State == health.Suspect:
			p.Suspect++
		case t.remediated(), len(t.leftovers) > 0:
			p.Recovering++
		default:
			p.Healthy++
		}
	}
	return p
}
