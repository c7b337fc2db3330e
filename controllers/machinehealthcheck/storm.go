package machinehealthcheck

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
)

// CooldownOf is how long nothing begins after a storm; nil if the check does not ask for that. The error names the field.
func CooldownOf(check *clusterv1.MachineHealthCheck) (*time.Duration, *InvalidField) {
	value, set := check.Annotations[mendv1.StormCooldownAnnotation]
	if !set {
		return nil, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return nil, &InvalidField{annotation(mendv1.StormCooldownAnnotation), fmt.Errorf("%q is no duration of zero or more, such as 10m or 1h30m", value)}
	}
	return &d, nil
}

// stormOf is the storm as the check's condition StormCooldown says it. It is the memory of the cooldown, which so outlives a restart: the condition
// turned True when the cooldown began.
func stormOf(check *clusterv1.MachineHealthCheck) budget.Storm {
	c := conditionOf(check, mendv1.StormCooldown)
	if c == nil {
		return budget.Storm{}
	}
	s := budget.Storm{Active: true}
	if c.Status == metav1.ConditionTrue {
		s.CoolingSince = c.LastTransitionTime.Time
	}
	return s
}

// sayStorm writes the condition StormCooldown.
func sayStorm(next *clusterv1.MachineHealthCheck, w *observed, s plan) {
	c := metav1.Condition{Type: mendv1.StormCooldown, Status: metav1.ConditionFalse, Reason: mendv1.StormReason, LastTransitionTime: metav1.NewTime(w.now)}
	switch {
	case !s.Storm.Active:
		conditions.Delete(next, mendv1.StormCooldown)
		return
	case s.Storm.CoolingSince.IsZero():
		c.Message = "Too many machines are not healthy. When few enough are, the cooldown begins: " + next.Annotations[mendv1.StormCooldownAnnotation]
	default:
		c.Status, c.Reason = metav1.ConditionTrue, mendv1.CoolingDownReason
		c.LastTransitionTime, c.Message = metav1.NewTime(s.Storm.CoolingSince), explain.CoolingDown(&s.facts, &s.Plan)
	}
	conditions.Set(next, c)
}
