package simulate

import (
	"cmp"
	"slices"
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
	for i := range checks {
		check := &checks[i]
		for j := range check.Targets {
			s.noteTarget(check, &check.Targets[j])
		}
		if s.concerns(check.Reference) {
			s.noteLimit(check)
		}
	}
}

// noteTarget adds the remediation of a target if it has started, and why it has not if the target is unhealthy.
func (s *simulation) noteTarget(check *explain.Check, judged *explain.Target) {
	ref, now := judged.Reference, s.clock.Now()
	t := s.targets[ref]
	if t == nil {
		t = &target{}
		s.targets[ref] = t
	}
	t.counts = t.counts || s.concerns(check.Reference) && judged.Skipped == ""
	if judged.State == cliv1.StateUnhealthy {
		delete(s.unnoticed, s.nodeOf(check, judged))
	}
	switch {
	case judged.StartsNow:
		t.starting = &cliv1.SimulatedStart{
			After: s.after(), Time: metav1.NewTime(now.UTC()), Target: ref, Check: check.Reference, Action: judged.Action.Message,
		}
	case judged.State == cliv1.StateUnhealthy && !judged.InFlight && len(judged.Blockers) > 0 && t.counts:
		by := check.Reference
		t.waiting = &cliv1.SimulatedTarget{Reference: ref, Check: &by, Reason: judged.Blockers[0].Reason, Message: judged.Blockers[0].Text}
	}
	if !judged.InFlight {
		return
	}
	if t.starting != nil && t.counts {
		s.answer.Starts, t.remediated = append(s.answer.Starts, *t.starting), true
	}
	t.starting = nil
	if t.ends.IsZero() && check.Mode == explain.Acting {
		t.node, t.ends = s.nodeOf(check, judged), now.Add(s.Takes)
	}
	t.waiting = nil
}

// noteLimit adds what the limits of a check answer, if that has changed.
func (s *simulation) noteLimit(check *explain.Check) {
	parts := []string{cmp.Or(check.Message, check.Allowance())}
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

// conclude adds what is known at the end alone.
func (s *simulation) conclude() {
	for _, t := range s.targets {
		if t.counts {
			s.answer.Targets++
		}
		if t.remediated {
			s.answer.Remediated++
		} else if t.waiting != nil {
			s.answer.NotStarted = append(s.answer.NotStarted, *t.waiting)
		}
	}
	for node := range s.unnoticed {
		s.answer.NotStarted = append(s.answer.NotStarted, cliv1.SimulatedTarget{
			Reference: cliv1.Reference{Kind: "Node", Name: node.name},
			Reason:    "NotUnhealthy", Message: "No check counts it as unhealthy in this time",
		})
	}
	slices.SortFunc(s.answer.NotStarted, func(a, b cliv1.SimulatedTarget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
