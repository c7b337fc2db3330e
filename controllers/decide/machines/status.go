package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// CyclesUnreadFor is for how long no remediation starts for a machine on a host while it is not known which power cycles are in progress.
const CyclesUnreadFor = 10 * time.Minute

// RemediationAllowed is the type of the condition of a check, and its reason while nothing is against it. (Cluster API)
const RemediationAllowed = "RemediationAllowed"

// allowed is the condition RemediationAllowed. A number that is out of the range has the same reason, too many or too few. (Cluster API)
func allowed(f *Facts, p *Plan) Condition {
	not := func(why Reason) Condition {
		return Condition{Type: RemediationAllowed, Status: conditionFalse, Reason: string(why)}
	}
	switch {
	case f.Invalid:
		return not(InvalidLimit)
	case p.Grant.ShortCircuited():
		return not(TooManyUnhealthy)
	case p.Grant.Reason == budget.CoolingDown:
		return not(CoolingDown)
	case f.Limits.InFlight == 0:
		return not(NoneAtOnce)
	}
	return Condition{Type: RemediationAllowed, Status: conditionTrue, Reason: RemediationAllowed}
}

// restriction is why the limits keep a machine from being remediated, or cannot be read; empty if they do not.
//
// The limits are mostly exceeded before that, since pending machines count as well; but a warning before any machine is
// unhealthy would warn of every rollout. (Cluster API does not warn of those either.)
func restriction(f *Facts, p *Plan) string {
	switch {
	case f.Invalid:
		return string(InvalidLimit)
	case p.Grant.ShortCircuited() && p.Population.Unhealthy > 0:
		return string(TooManyUnhealthy)
	case p.Grant.Reason == budget.CoolingDown:
		return string(CoolingDown)
	}
	return ""
}
