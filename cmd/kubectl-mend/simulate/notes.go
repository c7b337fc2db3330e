package simulate

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// note adds to the answer what has started since the checks decided last, and what their limits answer now.
func (s *simulation) note(checks []explain.Check) {
	before := s.starting
	s.starting = map[explain.Ref]cliv1.SimulatedStart{}
	for i := range checks {
		check := &checks[i]
		concerned := s.concerns(check.Reference)
		for j := range check.Targets {
			target := &check.Targets[j]
			if concerned && target.Skipped == "" {
				s.targets[target.Reference] = true
			}
			s.noteTarget(check, target, before)
		}
		if concerned {
			s.noteLimit(check)
		}
	}
}

// noteTarget adds the remediation of a target if it has started, and why it has not if the target is unhealthy.
func (s *simulation) noteTarget(check *explain.Check, target *explain.Target, before map[explain.Ref]cliv1.SimulatedStart) {
	ref, now := check.Reference, s.clock.Now()
	if target.State == cliv1.StateUnhealthy {
		delete(s.unnoticed, s.nodeOf(check, target))
	}
	switch {
	case target.StartsNow:
		s.starting[target.Reference] = cliv1.SimulatedStart{
			After: s.after(), Time: metav1.NewTime(now.UTC()), Target: target.Reference, Check: ref, Action: target.Action.Message,
		}
	case target.State == cliv1.StateUnhealthy && !target.InFlight && len(target.Blockers) > 0 && s.targets[target.Reference]:
		s.waiting[target.Reference] = cliv1.SimulatedTarget{
			Reference: target.Reference, Check: &ref, Reason: target.Blockers[0].Reason, Message: target.Blockers[0].Text,
		}
	}
	if !target.InFlight {
		return
	}
	if start, started := before[target.Reference]; started && s.targets[target.Reference] {
		s.answer.Starts = append(s.answer.Starts, start)
		delete(before, target.Reference)
	}
	if _, known := s.underway[target.Reference]; !known && check.Mode == explain.Acting {
		s.underway[target.Reference] = remediation{s.nodeOf(check, target), now.Add(s.Takes)}
	}
	delete(s.waiting, target.Reference)
}

// noteLimit adds what the limits of a check answer, if that has changed.
func (s *simulation) noteLimit(check *explain.Check) {
	parts := []string{check.Message}
	if check.Message == "" {
		parts[0] = check.Allowance()
	}
	changed := check.Blocked()
	if check.Mode != explain.Acting {
		changed, parts = changed+string(check.Mode), append([]string{"kubemend does not act on it: " + check.ModeMessage}, parts...)
	}
	for _, name := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable} {
		cond := meta.FindStatusCondition(check.Conditions, name)
		if cond != nil && cond.Status == metav1.ConditionFalse && cond.Message != check.Message {
			changed, parts = changed+cond.Reason, append(parts, cond.Message)
		}
	}
	if check.NodesUnknown != nil && check.NodesUnknown.Message != check.Message {
		parts = append(parts, check.NodesUnknown.Message)
	}
	for _, unread := range check.ReadErrors {
		parts = append(parts, explain.CouldNotBeRead(unread))
	}
	if before, noted := s.limits[check.Reference]; noted && before == changed {
		return
	}
	s.limits[check.Reference] = changed
	s.answer.Limits = append(s.answer.Limits, cliv1.SimulatedLimit{
		After: s.after(), Time: metav1.NewTime(s.clock.Now().UTC()), Check: check.Reference, Reason: check.Blocked(),
		Message: strings.Join(parts, ". "),
	})
}

// after is how long after the beginning it is.
func (s *simulation) after() metav1.Duration {
	return metav1.Duration{Duration: s.clock.Since(s.From).Truncate(time.Second)}
}
