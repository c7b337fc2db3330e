package report

import (
	"testing"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func observed(r *Remediation) { r.Mode = mendv1.RecordObserved }

func TestARecordOfWhatWasObservedShowsOneComparison(t *testing.T) {
	unknown := map[string]bool{"it was cancelled": true, "nothing was done, and the target is gone": true, "it was replaced by what is not known": true}
	for name, tc := range map[string]struct {
		edit       func(*Remediation)
		want       cliv1.Comparison
		difference time.Duration
	}{
		"others began later":                                      {both(90), cliv1.BothBegin, 90 * time.Second},
		"others began earlier":                                    {both(-45), cliv1.BothBegin, -45 * time.Second},
		"others began while the timeout ran":                      {func(r *Remediation) { r.Due = r.Decided.Add(1) }, cliv1.OnlyOthersBegin, 0},
		"others began what a limit blocks":                        {others("TooManyUnhealthy"), cliv1.OnlyOthersBegin, 0},
		"others began what is healthy":                            {func(r *Remediation) { r.Due, r.Evident = time.Time{}, false }, cliv1.OnlyOthersBegin, 0},
		"a finding without a timeout":                             {func(r *Remediation) { r.Due = time.Time{} }, cliv1.BothBegin, 5 * time.Second},
		"a user asked":                                            {byHand, cliv1.BothBegin, 5 * time.Second},
		"nothing was done yet":                                    {alone, cliv1.OnlyKubemendBegins, 0},
		"nothing was done, and the target is gone":                {func(r *Remediation) { alone(r); r.Outcome = mendv1.RecordGone }, cliv1.NotComparable, 0},
		"it was replaced by what is not known":                    {func(r *Remediation) { r.Begun = time.Time{} }, cliv1.NotComparable, 0},
		"it healed after":                                         {healed(60), cliv1.HealedAfterKubemend, 0},
		"it has healed, and the record is open":                   {func(r *Remediation) { healed(60)(r); r.Ended, r.Outcome = time.Time{}, "" }, cliv1.HealedAfterKubemend, 0},
		"it healed before":                                        {func(r *Remediation) { healed(60)(r); r.Due = r.Ended }, cliv1.HealedBeforeKubemend, 0},
		"others began, and it healed":                             {func(r *Remediation) { both(90)(r); r.Outcome = mendv1.RecordHealed }, cliv1.BothBegin, 90 * time.Second},
		"it was cancelled":                                        {notBegun, cliv1.NotComparable, 0},
		"kubemend would not have begun, and nothing was done yet": {func(r *Remediation) { alone(r); r.BlockedBy = "Pending" }, cliv1.NotComparable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			report := ShadowOf([]Remediation{one("a", observed, tc.edit)}, Question{})
			s := &report.Shadows[0]
			difference, is := s.Difference()
			if s.Comparison != tc.want || report.Count[tc.want] != 1 || is != (tc.want == cliv1.BothBegin) || is && difference != tc.difference {
				t.Errorf("got %s by %s, want %s by %s", s.Comparison, difference, tc.want, tc.difference)
			}
			if would := !s.WouldBegin().IsZero(); would != (tc.want == cliv1.BothBegin || tc.want == cliv1.OnlyKubemendBegins || tc.want == cliv1.HealedAfterKubemend || unknown[name]) {
				t.Errorf("that kubemend would have begun: %t", would)
			}
		})
	}
	if report := ShadowOf([]Remediation{one("a")}, Question{}); report.Active != 1 || len(report.Shadows) != 0 {
		t.Errorf("of one that kubemend began: %+v", report)
	}
	if report := ShadowOf([]Remediation{one("a", observed)}, Question{Cluster: "test"}); len(report.Shadows) != 0 {
		t.Errorf("of another cluster: %+v", report)
	}
}
