package machinehealthcheck

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// limited reports whether more unhealthy machines could forbid to remediate any.
func limited(check *clusterv1.MachineHealthCheck) bool {
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	return trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
}

// InvalidField is a field of a check that cannot be read.
type InvalidField struct {
	Field string // as a path
	Err   error
}

// Error names the field.
func (e *InvalidField) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e *InvalidField) Unwrap() error { return e.Err }

func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// limitsOf turns the spec's limits into numbers.
//
// The range goes before the number, and without either everything may be remediated. (Cluster API.)
func limitsOf(check *clusterv1.MachineHealthCheck, total int) (budget.Limits, *InvalidField) {
	limits := budget.Limits{AtMost: budget.All.Of(total), InFlight: budget.Unlimited}
	trigger := check.Spec.Remediation.TriggerIf
	switch {
	case trigger.UnhealthyInRange != "":
		r, err := budget.ParseRange(trigger.UnhealthyInRange)
		if err != nil {
			return limits, &InvalidField{"spec.remediation.triggerIf.unhealthyInRange", err}
		}
		limits.AtLeast, limits.AtMost = r.Min, r.Max
	case trigger.UnhealthyLessThanOrEqualTo != nil:
		a, err := budget.ParseAmount(trigger.UnhealthyLessThanOrEqualTo.String())
		if err != nil {
			return limits, &InvalidField{"spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", err}
		}
		limits.AtMost = a.Of(total)
	}
	if value, set := check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		a, err := budget.ParseAmount(value)
		if err != nil {
			return limits, &InvalidField{annotation(mendv1.MaxInFlightAnnotation), err}
		}
		if limits.InFlight = 0; a.Of(100) > 0 { // who asks for none gets none; a small percentage of few is one
			limits.InFlight = max(a.Of(total), 1)
		}
	}
	return limits, nil
}
