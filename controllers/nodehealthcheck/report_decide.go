package nodehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// TerminatingText is why nothing is done about a node that another controller ends, in medik8s' words.
const TerminatingText = "it is terminating and will be handled by MHC"

// Report is what the escalation and the remediators say of the node at place i: one sentence or more, without a full stop at the end.
func (p *Plan) Report(f *Facts, i int) string {
	n, d := &f.Nodes[i], &p.Decisions[i]
	var sentences []string
	add := func(text string) {
		if text = strings.TrimSuffix(text, "."); text != "" {
			sentences = append(sentences, text)
		}
	}
	add(EscalationText(f, d.GaveUp))
	if (len(n.Requests)+len(n.Gone) > 0 || d.GaveUp.Reason != "" || d.Answer.Reason == escalation.NotMade) && len(d.End) == 0 {
		add(EscalationText(f, d.Answer))
	}
	add(d.fateOfRequests(f, n))
	if d.Missing && !n.Remediated() {
		add("A remediation took the node away, and no new one has come in its place")
	}
	for j := range n.Requests {
		for _, text := range n.Requests[j].report() {
			add(text)
		}
	}
	return strings.Join(sentences, ". ")
}

// fateOfRequests says what becomes of the requests for n, and why; nothing while they go on.
func (d *Decision) fateOfRequests(f *Facts, n *Node) string {
	switch {
	case len(n.Unseen) > 0:
		return "What has become of its requests cannot be read"
	case len(d.End) > 0 && !n.Exists():
		return "The node is gone, its requests are deleted"
	case len(d.End) > 0 && d.Verdict.State == health.Unhealthy:
		return "The remediation has succeeded, and the node has become unhealthy once more: its request is deleted, and it begins anew"
	case len(d.End) > 0:
		return "The node is healthy, its requests are deleted"
	case d.Delayed && f.healthyDelay() < 0:
		return "The node is healthy, its requests are kept until a person confirms that"
	case d.Delayed:
		return "The node is healthy, its requests are kept for the healthy delay of " + f.healthyDelay().String()
	}
	return ""
}

func (r *Request) report() []string {
	name := r.Ref().String()
	var texts []string
	if !r.Deleting().IsZero() {
		texts = append(texts, name+" is being deleted")
	}
	for _, kind := range []string{nhcv1.ProcessingCondition, nhcv1.SucceededCondition, nhcv1.NodeDeletionExpectedCondition} {
		cond := escalation.Condition(r.Object, kind)
		if cond == nil {
			continue
		}
		text := fmt.Sprintf("%s says %s=%s", name, kind, cond["status"])
		if reason, _ := cond["reason"].(string); reason != "" {
			text += " (" + reason + ")"
		}
		if message, _ := cond["message"].(string); message != "" {
			text += ": " + message
		}
		texts = append(texts, text)
	}
	return texts
}

// escalationTexts are by reason. {step} is the template, {before} the one before it, {until} when its time is over, {timeout} how long
// that is.
var escalationTexts = map[string]string{
	escalation.FirstStep:        "{step} is the first step",
	escalation.NextStep:         "{before} was given up, {step} is next",
	passedOver:                  "{before} cannot be about the node, {step} is next",
	noneFits:                    "None of the templates that are left can be about the node",
	escalation.Vanished:         "The request of {step} was deleted, it is made again",
	escalation.NotMade:          "The request of {step} could not be made, it is tried again",
	escalation.InProgress:       "{step} is waited for{until}",
	escalation.AwaitingNode:     "{step} says that it has succeeded, the node is waited for{until}",
	escalation.AwaitingDeletion: "The request of {step} is being deleted, it is made again when it is gone",
	escalation.ToldToStop:       "{step} was notified to stop, though not by this check; delete its request to have it tried again",
	escalation.Failed:           "{step} says that it has failed",
	escalation.Stopped:          fmt.Sprintf("{step} stopped %s ago or longer and does not say whether it succeeded", escalation.StoppedFor),
	escalation.TimedOut:         "{step} did not bring the node back within {timeout}",
	escalation.NeverMade:        "{step} could not be requested within {timeout}",
	escalation.NotNotified:      "{step} was given up, and does not know of it",
	escalation.NoTemplateLeft:   "{step} was given up, and no template is left to try",
}

var singleTexts = map[string]string{
	escalation.Failed:     "{step} says that it has failed, and the check names no other template",
	escalation.Stopped:    "{step} has stopped, and the check names no other template",
	escalation.InProgress: "{step} is waited for, without end",
}

// EscalationText says what the escalation decides, and why; nothing if it was not asked.
func EscalationText(f *Facts, d escalation.Decision) string {
	text, decided := escalationTexts[d.Reason]
	switch {
	case !decided:
		return ""
	case len(f.Templates) == 0:
		return "The check names no template"
	}
	if single, found := singleTexts[d.Reason]; found && d.Do == escalation.Wait && f.Single() {
		text = single
	}
	template, until := &f.Templates[d.Step], ""
	if !d.Expires.IsZero() {
		until = " until " + d.Expires.UTC().Format(time.RFC3339)
	}
	return strings.NewReplacer("{step}", template.String(), "{before}", f.Templates[max(d.Step-1, 0)].String(), "{until}", until,
		"{timeout}", template.timeout().String()).Replace(text)
}

// Conditions are the conditions of the check after a reconcile. While kinds are awaited nothing is decided, and p may be empty.
func Conditions(f *Facts, p *Plan) []metav1.Condition {
	conditions, now := slices.Clone(f.Check.Status.Conditions), metav1.NewTime(f.Now.Truncate(time.Second))
	set := func(cond metav1.Condition) {
		cond.LastTransitionTime = now
		meta.SetStatusCondition(&conditions, cond)
	}
	if len(f.Awaited) == 0 {
		unread := slices.ContainsFunc(f.Templates, func(t Template) bool { return t.Object == nil })
		switch {
		case p.Disabled.Is():
			set(metav1.Condition{
				Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: p.Disabled.Reason, Message: p.Disabled.Message,
			})
		case !unread: // else it is not known
			set(metav1.Condition{
				Type: nhcv1.DisabledCondition, Status: metav1.ConditionFalse, Reason: nhcv1.EnabledReason, Message: EnabledMessage,
			})
		}
		for _, cond := range stormConditions(f, p) {
			set(cond)
		}
		if reason, message := ineffective(f, p); reason != "" && !p.Disabled.Is() {
			set(metav1.Condition{Type: mendv1.Effective, Status: metav1.ConditionFalse, Reason: reason, Message: message})
		} else {
			meta.RemoveStatusCondition(&conditions, mendv1.Effective)
		}
	}
	allowed := metav1.Condition{Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionTrue, Reason: nhcv1.AllowedReason}
	switch {
	case len(f.Awaited) > 0:
		allowed.Status, allowed.Reason, allowed.Message = metav1.ConditionFalse, nhcv1.KindUnreadReason, KindsAwaited(f)
	case len(p.Blockers) > 0:
		allowed.Status, allowed.Reason, allowed.Message = metav1.ConditionFalse, string(p.Blockers[0].Reason), p.Blockers[0].Text
	}
	before := meta.FindStatusCondition(conditions, allowed.Type)
	awaitsNow := before != nil && allowed.Reason == nhcv1.KubeletsAwaitedReason && before.Reason != allowed.Reason
	set(allowed)
	if awaitsNow { // kubelets are awaited since now, though another reason made the condition False before
		before.LastTransitionTime = now
	}
	return conditions
}

// selectsWithin is how long after a check its nodes may be created.
const selectsWithin = 10 * time.Minute

// ineffective is why the check, or one of its rules, can never act as it is written: nothing else would ever show that.
func ineffective(f *Facts, p *Plan) (reason, message string) {
	specs := map[string]any{nhcv1.GroupVersion.String(): &nhcv1.NodeHealthCheckSpec{}}
	if dropped := rule.DroppedField(f.Check.Annotations, specs); dropped != "" {
		return mendv1.FieldDroppedReason, dropped
	}
	for i, cond := range f.Check.Spec.UnhealthyConditions {
		switch cond.Status {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			return mendv1.NoSuchStatusReason, fmt.Sprintf("spec.unhealthyConditions[%d] is never met: no condition has the status %q, "+
				"but True, False or Unknown", i, cond.Status)
		}
	}
	if p.Population.Total() == 0 && f.Now.Sub(f.Check.CreationTimestamp.Time) >= selectsWithin {
		return mendv1.SelectsNothingReason, "spec.selector matches no Node of this cluster: labels of Machines are not those of Nodes"
	}
	return "", ""
}

// EnabledMessage is what a check says that is not disabled.
const EnabledMessage = "No issues found, NodeHealthCheck is enabled."

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
	statusOf := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}
	began, cools := p.Storm.Turn == budget.StormBegan, !p.Storm.CoolingSince.IsZero()
	var turned []metav1.Condition
	if began || f.Storm.Active != p.Storm.Active {
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormActiveCondition, Status: statusOf[p.Storm.Active], Reason: nhcv1.ThresholdReason, Message: storm,
		})
	}
	if began || f.Storm.CoolingSince.IsZero() == cools {
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormCooldownActiveCondition, Status: statusOf[cools], Reason: nhcv1.ThresholdReason, Message: cooldown,
		})
	}
	return turned
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
