package report

import (
	"cmp"
	"slices"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Shadow is one failure of a target whose check kubemend only observes: what it would have done, beside what was done.
type Shadow struct {
	Remediation

	Comparison cliv1.Comparison
}

// ShadowReport is what kubemend would have done, beside what was done.
type ShadowReport struct {
	Question

	// Shadows are those of the question, the oldest one first.
	Shadows []Shadow
	Count   map[cliv1.Comparison]int
	// Later sums up how much later others began than kubemend would have, and Earlier how much earlier.
	Later, Earlier Summary
	// Active is how many records were left out, of remediations that kubemend began.
	Active int
	// ReadErrors are what could not be read.
	ReadErrors []string
}

// ShadowOf compares the remediations that q asks for and kubemend observed.
func ShadowOf(all []Remediation, q Question) *ShadowReport {
	report := &ShadowReport{Question: q, Count: map[cliv1.Comparison]int{}}
	var later, earlier []time.Duration
	for i := range all {
		r := &all[i]
		switch {
		case !q.asks(r):
			continue
		case r.Mode != mendv1.RecordObserved:
			report.Active++
			continue
		}
		is := Shadow{Remediation: *r, Comparison: compare(r)}
		report.Shadows = append(report.Shadows, is)
		report.Count[is.Comparison]++
		if d, both := is.Difference(); both && d >= 0 {
			later = append(later, d)
		} else if both {
			earlier = append(earlier, -d)
		}
	}
	report.Later, report.Earlier = Summarize(later), Summarize(earlier)
	slices.SortFunc(report.Shadows, func(a, b Shadow) int {
		return cmp.Or(a.Decided.Compare(b.Decided), compareRefs(a.Record, b.Record))
	})
	return report
}

// compare says what a record with mode Observed shows.
func compare(r *Remediation) cliv1.Comparison {
	began := !r.Begun.IsZero()
	switch healed := r.Outcome == mendv1.RecordHealed || r.Outcome == "" && !r.CapacityBack.IsZero(); {
	case began && r.would():
		return cliv1.BothBegin
	case began:
		return cliv1.OnlyOthersBegin
	case healed && r.would():
		return cliv1.HealedAfterKubemend
	case healed:
		return cliv1.HealedBeforeKubemend
	case r.would() && (r.Outcome == "" || r.Outcome == mendv1.RecordGivenUp):
		return cliv1.OnlyKubemendBegins
	}
	return cliv1.NotComparable // of a target that is gone others may have begun a remediation, while no manager ran
}

// would reports whether kubemend would have begun the remediation when it was decided: nothing blocked it, and a finding counted, or a user asked for it.
func (r *Remediation) would() bool {
	return r.BlockedBy == "" && !r.Due.After(r.Decided) && (!r.Due.IsZero() || r.Evident || r.ByHand)
}

// WouldBegin is when kubemend would have begun; zero if it would not have.
func (r *Remediation) WouldBegin() time.Time {
	if r.would() {
		return r.Decided
	}
	return time.Time{}
}

// Difference is how much later others began than kubemend would have; false if one of them did not.
func (s *Shadow) Difference() (time.Duration, bool) {
	return s.Begun.Sub(s.Decided), s.Comparison == cliv1.BothBegin
}
