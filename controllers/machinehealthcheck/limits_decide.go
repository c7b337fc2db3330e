package machinehealthcheck

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// Settings are what the spec and the annotations of a check limit.
type Settings struct {
	// Limits are absolute numbers. Invalid is what is wrong with the limits, the cooldown or the wait for a spare host; nil if they can be
	// read.
	Limits  budget.Limits
	Invalid *InvalidField
	// Limited says that more unhealthy machines could forbid to remediate any.
	Limited bool
	// Cooldown is how long nothing begins after a storm; nil if the check does not ask for that.
	Cooldown *time.Duration
	// SpareWait is for how long after a machine became unhealthy its owner is not asked to replace it while no spare host fits; nil if the
	// check does not wait for one.
	SpareWait *time.Duration
}

// SettingsOf are the settings of check, which has so many targets.
func SettingsOf(check *clusterv1.MachineHealthCheck, total int) Settings {
	var settings Settings
	var invalidLimits, invalidCooldown, invalidWait *InvalidField
	settings.Limits, invalidLimits = limitsOf(check, total)
	settings.Cooldown, invalidCooldown = cooldownOf(check)
	settings.SpareWait, invalidWait = SpareWaitOf(check)
	settings.Invalid = cmp.Or(invalidLimits, invalidCooldown, invalidWait)
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	settings.Limited = trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
	return settings
}

// InvalidField is a field of a check that cannot be read.
type InvalidField struct {
	Field string // as a path
	Err   error
}

// Error names the field.
func (e *InvalidField) Error() string { return e.Field + ": " + e.Err.Error() }

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

// durationOf is the duration that an annotation of check has; nil if it is not there. The error names the field, and says what is wanted.
func durationOf(
	check *clusterv1.MachineHealthCheck, key string, valid func(time.Duration) bool, wanted string,
) (*time.Duration, *InvalidField) {
	value, set := check.Annotations[key]
	if !set {
		return nil, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || !valid(d) {
		return nil, &InvalidField{annotation(key), fmt.Errorf("%q is no duration of %s", value, wanted)}
	}
	return &d, nil
}

// cooldownOf is how long nothing begins after a storm; nil if the check does not ask for that.
func cooldownOf(check *clusterv1.MachineHealthCheck) (*time.Duration, *InvalidField) {
	valid := func(d time.Duration) bool { return d >= 0 }
	return durationOf(check, mendv1.StormCooldownAnnotation, valid, "zero or more, such as 10m or 1h30m")
}

// SpareWaitOf is for how long remediations by the owner wait for a spare host; nil if the check does not ask for that. The error names the
// field.
func SpareWaitOf(check *clusterv1.MachineHealthCheck) (*time.Duration, *InvalidField) {
	wait, invalid := durationOf(check, mendv1.WaitForSpareTimeoutAnnotation,
		func(d time.Duration) bool { return d > 0 && d <= LongestSpareWait }, "more than zero and at most 24h, such as 30m or 1h30m")
	value, set := check.Annotations[mendv1.WaitForSpareAnnotation]
	switch {
	case invalid != nil || !set || value == "false":
		return nil, invalid
	case value == "true":
		return cmp.Or(wait, new(SpareWait)), nil
	}
	return nil, &InvalidField{annotation(mendv1.WaitForSpareAnnotation), fmt.Errorf("%q is neither true nor false", value)}
}

// StormOf is the storm as the condition StormCooldown of check says it. It is the memory of the cooldown, which so outlives a
// restart: the condition turned True when the cooldown began.
func StormOf(check *clusterv1.MachineHealthCheck) budget.Storm {
	cond := ConditionOf(check, mendv1.StormCooldown)
	if cond == nil {
		return budget.Storm{}
	}
	storm := budget.Storm{Active: true}
	if cond.Status == metav1.ConditionTrue {
		storm.CoolingSince = cond.LastTransitionTime.Time
	}
	return storm
}

// MostUnhealthy is the limit of a check without a range, as it is written.
func MostUnhealthy(check *clusterv1.MachineHealthCheck) string {
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
		return limit.String()
	}
	return budget.All.String()
}

// LimitText is the limits of check as they are written, with the words of the version that is served, and not of one that is not.
func LimitText(check *clusterv1.MachineHealthCheck) string {
	text := "unhealthyLessThanOrEqualTo " + MostUnhealthy(check)
	if written := check.Spec.Remediation.TriggerIf.UnhealthyInRange; written != "" {
		text = "unhealthyInRange " + written
	}
	if written, set := check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		text += ", " + written + " at once"
	}
	if written, set := check.Annotations[mendv1.StormCooldownAnnotation]; set {
		text += ", " + written + " of cooldown after a storm"
	}
	if wait, _ := SpareWaitOf(check); wait != nil && !check.Spec.Remediation.TemplateRef.IsDefined() {
		text += ", waits up to " + cmp.Or(check.Annotations[mendv1.WaitForSpareTimeoutAnnotation], "1h") + " for a spare host"
	}
	return text
}
