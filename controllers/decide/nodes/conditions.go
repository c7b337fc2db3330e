package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// Conditions are the conditions of the check after a reconcile. While kinds are awaited nothing is decided, and p may be empty.
func Conditions(f *Facts, p *Plan) []metav1.Condition {
	conditions, now := slices.Clone(f.Check.Status.Conditions), metav1.NewTime(f.Now.Truncate(time.Second))
	set := func(cond metav1.Condition) {
		cond.LastTransitionTime = now
		meta.SetStatusCondition(&conditions, cond)
	}
	if len(f.Awaited) == 0 {
		if cond, known := disabledCondition(f, p); known {
			set(cond)
		}
		for _, cond := range stormConditions(f, p) {
			set(cond)
		}
	}
	allowed := allowedCondition(f, p)
	before := meta.FindStatusCondition(conditions, allowed.Type)
	awaitsNow := before != nil && allowed.Reason == nhcv1.KubeletsAwaitedReason && before.Reason != allowed.Reason
	set(allowed)
	if awaitsNow { // kubelets are awaited since now, though another reason made the condition False before
		before.LastTransitionTime = now
	}
	return conditions
}

// EnabledMessage is what a check says that is not disabled.
const EnabledMessage = "No issues found, NodeHealthCheck is enabled."

// disabledCondition is the condition Disabled. It is not known while a template could not be read.
func disabledCondition(f *Facts, p *Plan) (cond metav1.Condition, known bool) {
	cond = metav1.Condition{Type: nhcv1.DisabledCondition, Status: metav1.ConditionFalse, Reason: nhcv1.EnabledReason, Message: EnabledMessage}
	switch {
	case p.Disabled.Is():
		cond.Status, cond.Reason, cond.Message = metav1.ConditionTrue, p.Disabled.Reason, p.Disabled.Message
	case slices.ContainsFunc(f.Templates, func(t Template) bool { return t.Object == nil }):
		return cond, false
	}
	return cond, true
}

// stormConditions are the two conditions of the storm that turn. The storm is remembered by them.
func stormConditions(f *Facts, p *Plan) []metav1.Condition {
	storm, cooldown := "", "Cooldown cleared - storm threshold triggered"
	switch p.Storm.Turn {
	case budget.StormBegan:
		storm = "Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired"
	case budget.StormCooling:
		cooldown = "Storm cooldown delay started - waiting before resuming normal remediation"
	case budget.StormEnded:
		storm, cooldown = "Storm mode is deactivated, remediation can occur normally", "Storm cooldown completed"
	case budget.StormUnchanged:
	}
	began, cools := p.Storm.Turn == budget.StormBegan, !p.Storm.CoolingSince.IsZero()
	var turned []metav1.Condition
	if began || f.Storm.Active != p.Storm.Active {
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormActiveCondition, Status: statusOf(p.Storm.Active), Reason: nhcv1.ThresholdReason, Message: storm,
		})
	}
	if began || f.Storm.CoolingSince.IsZero() == cools {
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormCooldownActiveCondition, Status: statusOf(cools), Reason: nhcv1.ThresholdReason, Message: cooldown,
		})
	}
	return turned
}

func statusOf(holds bool) metav1.ConditionStatus {
	if holds {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func allowedCondition(f *Facts, p *Plan) metav1.Condition {
	cond := metav1.Condition{Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionTrue, Reason: nhcv1.AllowedReason}
	switch {
	case len(f.Awaited) > 0:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, nhcv1.KindUnreadReason, KindsAwaited(f)
	case len(p.Blockers) > 0:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, string(p.Blockers[0].Reason), p.Blockers[0].Message
	}
	return cond
}

// KindsAwaited says what a check waits for before anything is decided.
func KindsAwaited(f *Facts) string {
	return "Nothing is decided until all objects of these kinds were read, which the API server has not allowed so far: " +
		strings.Join(slices.Sorted(slices.Values(f.Awaited)), ", ")
}

// Phase is what a check is doing, and why, in medik8s' words. Remediating is how many nodes it remediates; below zero if it does not.
func Phase(conditions []metav1.Condition, pauseRequests []string, remediating int) (nhcv1.Phase, string) {
	disabled := meta.FindStatusCondition(conditions, nhcv1.DisabledCondition)
	switch {
	case disabled != nil && disabled.Status == metav1.ConditionTrue:
		return nhcv1.PhaseDisabled, fmt.Sprintf("NHC is disabled: %s: %s", disabled.Reason, disabled.Message)
	case len(pauseRequests) > 0:
		return nhcv1.PhasePaused, "NHC is paused: " + strings.Join(pauseRequests, ",")
	case remediating >= 0:
		return nhcv1.PhaseRemediating, fmt.Sprintf("NHC is remediating %d nodes", remediating)
	default:
		return nhcv1.PhaseEnabled, "NHC is enabled, no ongoing remediation"
	}
}
