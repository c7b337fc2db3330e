package policy

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

const (
	// longestOverride is how long after its creation an override may end.
	longestOverride = 7 * 24 * time.Hour
	// overrideKept is how long an override is kept after its end.
	overrideKept = 24 * time.Hour
)

// override is the part of a Policy that comes from a RemediationOverride. An allowance sets a limit of the Policy.
type override struct {
	mendv1.RemediationOverrideSpec

	namespace string
}

// ReadOverride reads a RemediationOverride and its condition Active at now. It has an effect only if that is True.
func ReadOverride(object *mendv1.RemediationOverride, everywhere string, now time.Time) (*Policy, metav1.Condition) {
	spec := object.Spec
	p := &Policy{
		Ref:        rule.Ref{Kind: "RemediationOverride", Namespace: object.Namespace, Name: object.Name},
		generation: object.Generation, everywhere: object.Namespace == everywhere, override: &override{spec, object.Namespace},
	}
	if spec.Allow != nil {
		p.limits = []mendv1.PolicyLimit{{Name: "maxInFlight", MaxInFlight: &spec.Allow.MaxInFlight}}
	}
	active := metav1.Condition{
		Type: mendv1.OverrideActive, Status: metav1.ConditionFalse, ObservedGeneration: object.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	latest := object.CreationTimestamp.Add(longestOverride)
	switch kind := spec.TargetRef.Kind; {
	case !p.everywhere && slices.Contains([]string{"Namespace", "FailureDomain", "RemediationPolicy"}, kind):
		active.Reason = mendv1.OverrideReachReason
		active.Message = fmt.Sprintf("spec.targetRef.kind: %s is allowed only for overrides in namespace %s", kind, everywhere)
	case spec.Until.After(latest):
		active.Reason = mendv1.OverrideTooLongReason
		active.Message = "spec.until: must be within seven days after creation, by " + stamp(latest)
	case !now.Before(spec.Until.Time):
		active.Reason = mendv1.OverrideEndedReason
	default:
		active.Status, active.Reason = metav1.ConditionTrue, mendv1.OverrideActiveReason
	}
	return p, active
}

// matches reports whether o is about target.
func (o *override) matches(target *Target) bool {
	name, here := o.TargetRef.Name, target.Namespace == o.namespace
	switch o.TargetRef.Kind {
	case "Cluster":
		return here && target.Cluster == name
	case "MachineHealthCheck":
		return here && target.Check == name
	case "MachineDeployment":
		return here && target.Labels[clusterv1.MachineDeploymentNameLabel] == name
	case "Machine":
		return here && target.Name == name
	case "BareMetalHost":
		return here && target.Host == name
	case "Namespace":
		return target.Namespace == name
	case "FailureDomain":
		return target.FailureDomain == name
	}
	return false
}

// held returns the blocker of a hold; holds is false if p is none.
func (p *Policy) held() (blocker rule.Blocker, holds bool) {
	o := p.override
	if o == nil || o.Action != mendv1.OverrideHold {
		return rule.Blocker{}, false
	}
	by := ""
	if o.By != "" {
		by = " by " + o.By
	}
	return rule.Blocker{
		Reason: place.HeldByOverride, Detail: "until " + stamp(o.Until.Time), Until: o.Until.Time, Object: p.Ref, EndsWhen: "it is deleted",
		Text: fmt.Sprintf("It is held%s: %s (%s)", by, o.Reason, p.Ref),
		Fix:  fmt.Sprintf("To let it begin earlier, run kubectl delete remediationoverride %s -n %s", p.Name, p.Namespace),
	}, true
}

// Allows returns what overrides allow a check of a Cluster; nil if none does. Of several overrides the one that ends last counts.
func (l *Ledger) Allows(check types.NamespacedName, cluster string) *place.Allowance {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var allowance *place.Allowance
	for _, p := range l.policies {
		if o := p.override; o != nil && o.Allow != nil && (allowance == nil || o.Until.After(allowance.Until)) &&
			o.matches(&Target{Namespace: check.Namespace, Check: check.Name, Cluster: cluster}) {
			allowance = &place.Allowance{Ref: p.Ref, MaxUnhealthy: o.Allow.MaxUnhealthy, Until: o.Until.Time}
		}
	}
	return allowance
}

// lifted reports whether an override lifts the limits of p.
func (l *Ledger) lifted(p *Policy) bool {
	for _, by := range l.policies {
		if o := by.override; o != nil && o.Action == mendv1.OverrideAllow && o.TargetRef.Kind == p.Kind && o.TargetRef.Name == p.Name &&
			o.namespace == p.Namespace {
			return true
		}
	}
	return false
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
