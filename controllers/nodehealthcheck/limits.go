package nodehealthcheck

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// noDelay is a healthy delay that is not set.
var noDelay = metav1.Duration{}

// limitsOf turns the thresholds of a spec into numbers. The error names the field.
func limitsOf(spec *nhcv1.NodeHealthCheckSpec, total int) (budget.Limits, error) {
	return budget.NodeLimits(spelled(spec.MinHealthy), spelled(spec.MaxUnhealthy), total)
}

// observeLimits disables a check whose limits cannot be read.
func (w *observed) observeLimits() {
	if _, err := limitsOf(&w.check.Spec, 0); err != nil && w.disabled == nil {
		w.disabled = &disabling{nhcv1.InvalidLimitReason, err.Error()}
	}
}

func spelled(amount *intstr.IntOrString) string {
	if amount == nil {
		return ""
	}
	return amount.String()
}

// limitText is the threshold that counts, as the spec has it.
func limitText(spec *nhcv1.NodeHealthCheckSpec) string {
	smallest, most := spelled(spec.MinHealthy), spelled(spec.MaxUnhealthy)
	switch {
	case smallest != "" && most != "":
		return "minHealthy " + smallest + " and maxUnhealthy " + most
	case most != "":
		return "maxUnhealthy " + most
	default:
		return "minHealthy " + cmp.Or(smallest, budget.DefaultMinHealthy)
	}
}

func cooldownOf(spec *nhcv1.NodeHealthCheckSpec) *time.Duration {
	if spec.StormCooldownDuration == nil {
		return nil
	}
	return &spec.StormCooldownDuration.Duration
}

// stormOf is the storm as the check's conditions say it.
func stormOf(check *nhcv1.NodeHealthCheck) budget.Storm {
	s := budget.Storm{Active: meta.IsStatusConditionTrue(check.Status.Conditions, nhcv1.StormActiveCondition)}
	for _, c := range check.Status.Conditions {
		if c.Type == nhcv1.StormCooldownActiveCondition && c.Status == metav1.ConditionTrue {
			s.CoolingSince = c.LastTransitionTime.Time
		}
	}
	return s
}
