package simulate

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	clidoc "github.com/kubemend/kubemend/cmd/kubectl-mend/document"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// note adds to the answer what has started since the checks decided last, and what their limits answer now.
func (s *simulation) note(checks []explain.Check) {
	before := s.starting
	s.starting = map[explain.Ref]cliv1.SimulatedStart{}
	for i := range checks {
		check := &checks[i]
		concerned := s.concerns(check.Ref)
		for j := range check.Targets {
			target := &check.Targets[j]
			if concerned && target.Skipped == "" {
				s.targets[target.Ref] = true
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
	ref, now := clidoc.Reference(check.Ref), s.clock.Now()
	if target.State == health.Unhealthy {
		delete(s.unnoticed, s.nodeOf(check, target))
	}
	switch {
	case target.StartsNow:
		s.starting[target.Ref] = cliv1.SimulatedStart{
			After: s.after(), Time: clidoc.Time(now), Target: clidoc.Reference(target.Ref), Check: ref, Action: target.Action,
		}
	case target.State == health.Unhealthy && !target.InFlight && len(target.Blockers) > 0 && s.targets[target.Ref]:
		s.waiting[target.Ref] = cliv1.SimulatedTarget{
			Reference: clidoc.Reference(target.Ref), Check: &ref, Reason: target.Blockers[0].Reason, Message: target.Blockers[0].Text,
		}
	}
	if !target.InFlight {
		return
	}
	if start, started := before[target.Ref]; started && s.targets[target.Ref] {
		s.answer.Starts = append(s.answer.Starts, start)
		delete(before, target.Ref)
	}
	if _, known := s.underway[target.Ref]; !known && check.Mode == explain.Acting {
		s.underway[target.Ref] = remediation{s.nodeOf(check, target), now.Add(s.Takes)}
	}
	delete(s.waiting, target.Ref)
}

// noteLimit adds what the limits of a check answer, if that has changed.
func (s *simulation) noteLimit(check *explain.Check) {
	parts := []string{check.Text}
	if check.Text == "" {
		parts[0] = check.Allowance()
	}
	changed := check.Blocked()
	if check.Mode != explain.Acting {
		changed, parts = changed+string(check.Mode), append([]string{"kubemend does not act on it: " + check.ModeText}, parts...)
	}
	for _, name := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable} {
		cond := meta.FindStatusCondition(check.Conditions, name)
		if cond != nil && cond.Status == metav1.ConditionFalse && cond.Message != check.Text {
			changed, parts = changed+cond.Reason, append(parts, cond.Message)
		}
	}
	if check.NodesUnknown != "" && check.NodesUnknown != check.Text {
		parts = append(parts, check.NodesUnknown)
	}
	for _, unread := range check.ReadErrors {
		parts = append(parts, explain.CouldNotBeRead(unread))
	}
	if before, noted := s.limits[check.Ref]; noted && before == changed {
		return
	}
	s.limits[check.Ref] = changed
	s.answer.Limits = append(s.answer.Limits, cliv1.SimulatedLimit{
		After: s.after(), Time: clidoc.Time(s.clock.Now()), Check: clidoc.Reference(check.Ref), Reason: check.Blocked(),
		Message: strings.Join(parts, ". "),
	})
}

// after is how long after the beginning it is.
func (s *simulation) after() metav1.Duration {
	return metav1.Duration{Duration: s.clock.Since(s.From).Truncate(time.Second)}
}
