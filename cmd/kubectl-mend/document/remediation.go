package document

import (
	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Remediation is the power cycle of a host.
func Remediation(r *explain.Remediation) cliv1.HostRemediation {
	is := cliv1.HostRemediation{
		Reference: Reference(r.Ref), Machine: Optional(r.Machine), Node: r.Node, Host: r.Host, RemediationPhase: r.Phase, State: r.State,
		Phase: r.Answer().Phase(), Attempt: r.Attempt, Attempts: r.Attempts, Reason: r.Reason, Acts: r.Acts, AttemptStarted: Moment(r.AttemptStarted),
		StateSince: Moment(r.StateSince), Deadline: Moment(r.Deadline), Blockers: blockers(nil, r.Blockers), Evidence: r.Evidence, ReadErrors: r.ReadErrors,
		Next: OptionalStep(r.Next), Message: r.Text,
	}
	return is
}
