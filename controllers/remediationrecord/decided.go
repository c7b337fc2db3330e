package remediationrecord

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Judged writes into spec why a target counts as unhealthy at now: the cause is the first finding that is due, and evidence are all that
// are. A condition is recorded with the moment of its last transition; that it counts from a later one on, as after an outage, shows in the
// moment at which it was due.
func Judged(spec *mendv1.RemediationRecordSpec, verdict health.Verdict, now time.Time) {
	spec.UnhealthySince, spec.Due = nil, moment(verdict.OverdueSince(now))
	for _, f := range verdict.Due(now) {
		found := evidenceOf(f)
		spec.Evidence = append(spec.Evidence, found)
		if spec.Cause == "" {
			spec.Cause = CauseOf(found)
		}
		if found.Since != nil && (spec.UnhealthySince == nil || found.Since.Before(spec.UnhealthySince)) {
			spec.UnhealthySince = found.Since
		}
	}
}

// CauseOf is what was found in a word, or as condition=status.
func CauseOf(found mendv1.RecordEvidence) string {
	if found.Status == "" {
		return found.Type
	}
	return found.Type + "=" + found.Status
}

func evidenceOf(f health.Finding) mendv1.RecordEvidence {
	found := mendv1.RecordEvidence{TimeoutSeconds: int64(f.Limit / time.Second)}
	if f.Signal == (health.Signal{}) {
		found.Type, found.Message = string(f.Reason), f.Failure
		return found
	}
	found.Type, found.Status, found.Message = f.Signal.Type, f.Signal.Status, f.Signal.Reason
	found.Since = moment(f.Signal.Since)
	return found
}

// moment is at as the API has it; nil if it is zero.
func moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(metav1.NewTime(at))
}

// CountsOf is the arithmetic of a check, whose spec spells its limit like this.
func CountsOf(p budget.Population, l budget.Limits, limit string) *mendv1.RecordCounts {
	counts := &mendv1.RecordCounts{Targets: int32(p.Total()), Healthy: int32(p.Healthy), InFlight: int32(p.InFlight), Limit: limit}
	if l.InFlight != budget.Unlimited {
		counts.MaxInFlight = new(int32(l.InFlight))
	}
	return counts
}
