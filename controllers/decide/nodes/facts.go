// Package nodes decides which nodes of a NodeHealthCheck are remediated now, by which step of its escalation, and what blocks the others.
//
// Decide is a function from Facts to a Plan: it does no I/O and reads no clock, and what it has to remember goes in with the facts and
// comes out with the plan. A blocker carries the words that conditions, events and explanations repeat.
package nodes

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Facts is everything that one decision depends on, read once. Its objects are shared with the cache: read only.
type Facts struct {
	Now   time.Time
	Check *nhcv1.NodeHealthCheck
	// Awaited are the kinds of which not all objects were read. Until they are, nothing is decided.
	Awaited []string

	Policy health.Policy // of the conditions that the check names
	Storm  budget.Storm  // as of the reconcile before
	Resync time.Duration

	// Templates are the steps of the escalation, in the order of use.
	Templates []Template
	Disabled  Disabled

	// TerminatingLeft says that a MachineHealthCheck of OpenShift ends nodes with the condition Terminating.
	Upgrade         Upgrade
	TerminatingLeft bool

	// Since is when this process began to reconcile, Grace how long kubelets have to report then, and after an outage of the API server.
	Outages []Outage
	Since   time.Time
	Grace   time.Duration

	// ClockAhead is how far the clock of the manager is ahead of the API server's; less than 0 if it is behind, 0 up to 30 s.
	ClockAhead time.Duration

	// Nodes are those that the check selects or has not done with, in the order of their names.
	Nodes []Node
	// ControlPlane is nil as long as nothing is decided about one of its nodes.
	ControlPlane *ControlPlane

	// Recheck is when what no watch tells has to be read again, Retry when what could not be read is tried again.
	Recheck, Retry time.Time
	// Trouble is what could not be read, of what a decision can do without.
	Trouble []string
	Memory  Memory
}

// FactsOf is what a check itself says. This is the one place where the durations of its conditions become rules.
func FactsOf(check *nhcv1.NodeHealthCheck, now time.Time) Facts {
	f := Facts{Now: now, Check: check}
	for _, c := range check.Spec.UnhealthyConditions {
		f.Policy.Rules = append(f.Policy.Rules, health.Rule{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), For: c.Duration.Duration,
		})
	}
	f.Storm.Active = meta.IsStatusConditionTrue(check.Status.Conditions, nhcv1.StormActiveCondition)
	cooldown := f.condition(nhcv1.StormCooldownActiveCondition)
	if cooldown != nil && cooldown.Status == metav1.ConditionTrue {
		f.Storm.CoolingSince = cooldown.LastTransitionTime.Time
	}
	return f
}

func (f *Facts) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(f.Check.Status.Conditions, kind)
}

// Single reports whether the check names one template and no escalation.
func (f *Facts) Single() bool { return f.Check.Spec.RemediationTemplate != nil }

// healthyDelay is for how long the requests of a healthy node are kept; below zero a person ends that.
func (f *Facts) healthyDelay() time.Duration {
	return ptr.Deref(f.Check.Spec.HealthyDelay, metav1.Duration{}).Duration
}

// Limits are minHealthy and maxUnhealthy as the check spells them; empty if it does not set them.
func (f *Facts) Limits() (minHealthy, maxUnhealthy string) {
	spelled := func(amount *intstr.IntOrString) string {
		if amount == nil {
			return ""
		}
		return amount.String()
	}
	return spelled(f.Check.Spec.MinHealthy), spelled(f.Check.Spec.MaxUnhealthy)
}

// Outage is a time in which the API server could not be reached.
type Outage struct{ From, To time.Time }

// after is how much of o there was after at.
func (o Outage) after(at time.Time) time.Duration {
	if at.Before(o.From) {
		at = o.From
	}
	return max(0, o.To.Sub(at))
}

// Upgrade is what is known of upgrades of the cluster that no single node tells.
type Upgrade struct {
	Unread bool
	// Progressing names the ClusterVersion that is progressing; empty if none is.
	Progressing string
}

// Memory is what a decision must know of those before it. Losing it delays a remediation at worst.
type Memory struct {
	// Known says that there was a decision before; Judged is when nodes were judged last, zero if the last reconcile did not get to that.
	Known  bool
	Judged time.Time
	// Seen are the conditions of the nodes that met one of the Rules when they were judged last, by the UID of the node.
	Seen  map[string]health.Seen
	Rules []health.Rule
	// Streaks are for how long conditions have been bad, by the UID of the node and type.
	Streaks map[string]Streaks
	// Started is from when on the time of a request counts, if not from its creation, and Decided to when outages are in that.
	Started map[string]time.Time
	Decided time.Time
	// Flagged are requests that were counted as old, Unpatchable those that may not be annotated so that their remediators stop, Succeeded
	// those whose remediators have said so, Recovered those that had succeeded when their node was seen healthy; by the UID of the request.
	Flagged, Unpatchable, Succeeded, Recovered map[string]bool
	Refusals                                   map[string]Refusal
	// Recoveries are of the nodes that were healthy a moment ago, or for a moment, by their UIDs.
	Recoveries map[string]Recovery
}
