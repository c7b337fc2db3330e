package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// NodeConditions are the conditions of a NodeHealthCheck after a reconcile. Where kinds are awaited nothing is decided, and p may be empty.
func NodeConditions(f *nodes.Facts, p *nodes.Plan) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(f.Conditions))
	for _, c := range f.Conditions {
		all = append(all, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, ObservedGeneration: c.Generation,
			LastTransitionTime: metav1.NewTime(c.Since),
		})
	}
	set := func(c metav1.Condition) {
		c.LastTransitionTime = metav1.NewTime(f.Now.Truncate(time.Second))
		meta.SetStatusCondition(&all, c)
	}
	if len(f.Awaited) == 0 {
		if enabled, known := nodeEnabled(f, p); known {
			set(enabled)
		}
		for _, c := range stormConditions(f, p) {
			set(c)
		}
	}
	allowed := nodeAllowed(f, p)
	was := meta.FindStatusCondition(all, allowed.Type)
	another := was != nil && allowed.Reason == nhcv1.KubeletsAwaitedReason && was.Reason != allowed.Reason
	set(allowed)
	if another { // it is waited for them since now, whatever was the matter before
		was.LastTransitionTime = metav1.NewTime(f.Now.Truncate(time.Second))
	}
	return all
}

// EnabledMessage is what a check says that is not disabled.
const EnabledMessage = "No issues found, NodeHealthCheck is enabled."

// nodeEnabled is the condition Disabled; it is not known while a template could be read as little as not: that is neither there nor missing.
func nodeEnabled(f *nodes.Facts, p *nodes.Plan) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: nhcv1.DisabledCondition, Status: metav1.ConditionFalse, Reason: nhcv1.EnabledReason, Message: EnabledMessage}
	switch {
	case p.Disabled.Is():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, p.Disabled.Reason, p.Disabled.Message
	case slices.ContainsFunc(f.Templates, func(t nodes.Template) bool { return !t.Usable }):
		return c, false
	}
	return c, true
}

// stormTexts are medik8s' own.
var stormTexts = map[budget.StormTurn][2]string{
	budget.StormBegan: {
		"Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired",
		"Cooldown cleared - storm threshold triggered",
	},
	budget.StormCooling: {"", "Storm cooldown delay started - waiting before resuming normal remediation"},
	budget.StormEnded:   {"Storm mode is deactivated, remediation can occur normally", "Storm cooldown completed"},
}

// stormConditions are the storm's two conditions, as far as they turn. They are also its memory.
func stormConditions(f *nodes.Facts, p *nodes.Plan) []metav1.Condition {
	was, is := f.Storm, p.Storm
	var turned []metav1.Condition
	if was.Active != is.Active || is.Turn == budget.StormBegan {
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormActiveCondition, Status: truth(is.Active), Reason: nhcv1.ThresholdReason, Message: stormTexts[is.Turn][0],
		})
	}
	if was.CoolingSince.IsZero() != is.CoolingSince.IsZero() || is.Turn == budget.StormBegan {
		text := stormTexts[is.Turn][1]
		if text == "" {
			text = stormTexts[budget.StormBegan][1]
		}
		turned = append(turned, metav1.Condition{
			Type: nhcv1.StormCooldownActiveCondition, Status: truth(!is.CoolingSince.IsZero()), Reason: nhcv1.ThresholdReason, Message: text,
		})
	}
	return turned
}

// nodeAllowed is the condition RemediationAllowed.
func nodeAllowed(f *nodes.Facts, p *nodes.Plan) metav1.Condition {
	c := metav1.Condition{Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionTrue, Reason: nhcv1.AllowedReason}
	switch {
	case len(f.Awaited) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, nhcv1.KindUnreadReason, KindsAwaited(f)
	case len(p.Blockers) > 0:
		is := NodeBlocker(f, p, "", p.Blockers[0])
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, is.Reason, is.Text
	}
	return c
}

// KindsAwaited says what a check waits for before anything is decided.
func KindsAwaited(f *nodes.Facts) string {
	return "Nothing is decided until all objects of these kinds were read, which the API server has not allowed so far: " +
		strings.Join(slices.Sorted(slices.Values(f.Awaited)), ", ")
}

func truth(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// NodePhase is what a check is doing, and why. Remediating is how many nodes it remediates; below zero, if it does not. (medik8s.)
func NodePhase(conditions []metav1.Condition, pauseRequests []string, remediating int) (nhcv1.Phase, string) {
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

// TerminatingText is why nothing is done about a node that another controller is ending. (medik8s.)
const TerminatingText = "it is terminating and will be handled by MHC"

// StepPassedOver is the event about a step that cannot be about a node.
func StepPassedOver(f *nodes.Facts, n *nodes.Node, step int) recorder.Event {
	t := &f.Templates[step]
	why := NodeBlocker(f, nil, n.Name, t.Unsuitable(n)).Text
	_, why, _ = strings.Cut(why, ", because ")
	return recorder.Warning(nhcv1.EventRemediationSkipped, "Escalate", "Passed over %s for node %s, because %s", t.Place(), n.Name, why)
}

// Unconfirmed is why no request can be made as long as the API server says otherwise than the cache.
func Unconfirmed(d nodes.Doubt) error {
	says := map[nodes.DoubtReason]string{
		nodes.NodeVanished: "the node is gone", nodes.NodeReplaced: "the node is another one", nodes.NodeChanged: "the node is " + d.Arg,
		nodes.ExcludedNow: "the node is excluded", nodes.RequestAppeared: "there is " + d.Arg + " for a node of the control plane",
	}
	return fmt.Errorf("the manager's cache does not show what the API server says: %s", says[d.Reason])
}

// NodeBlocked is the event about a node that is not remediated; false if there is none to send.
func NodeBlocked(f *nodes.Facts, p *nodes.Plan, name string, b nodes.Blocker) (recorder.Event, bool) {
	s := nodeSentences[b.Reason]
	if s.event == "" || s.quiet {
		return recorder.Event{}, false
	}
	return recorder.Event{Kind: corev1.EventTypeWarning, Reason: s.event, Action: "Grant", Text: NodeBlocker(f, p, name, b).Text}, true
}

// NodesBlocked is the event about what keeps all nodes from being remediated.
func NodesBlocked(f *nodes.Facts, p *nodes.Plan) recorder.Event {
	e := recorder.Event{
		Kind: corev1.EventTypeWarning, Reason: nhcv1.EventRemediationSkipped, Action: "Grant", Text: NodeBlocker(f, p, "", p.Blocker()).Text,
	}
	switch p.Blocker().Reason {
	case nodes.Paused:
		e.Kind = corev1.EventTypeNormal
	case nodes.Upgrading:
		e.Kind, e.Text = corev1.EventTypeNormal, PostponedByUpgrade
	}
	return e
}

// TeardownMessage is why a check is disabled while kubemend is being uninstalled.
const TeardownMessage = "kubemend is being uninstalled: it does not act on this check any more, and deletes its remediation requests and leases"

// ConflictMessage is why a check is disabled beside MachineHealthChecks of OpenShift. (medik8s.)
const ConflictMessage = "Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"

// CheckTurned are the events about the check itself: one for each of its conditions that turned. Enabled and disabled say which way Disabled has.
func CheckTurned(f *nodes.Facts, p *nodes.Plan, next []metav1.Condition) []recorder.Event {
	var all []recorder.Event
	add := func(kind, reason, action, text string) {
		all = append(all, recorder.Event{Kind: kind, Reason: reason, Action: action, Text: text})
	}
	is := meta.FindStatusCondition(next, nhcv1.DisabledCondition)
	i := slices.IndexFunc(f.Conditions, func(c nodes.Condition) bool { return c.Type == nhcv1.DisabledCondition })
	switch {
	case is == nil || i >= 0 && f.Conditions[i].Status == string(is.Status) && f.Conditions[i].Reason == is.Reason:
	case is.Status == metav1.ConditionFalse:
		add(corev1.EventTypeNormal, nhcv1.EventEnabled, "Validate", EnabledMessage)
	case is.Reason == nhcv1.ConflictReason:
		add(corev1.EventTypeWarning, nhcv1.EventDisabled, "Validate", ConflictMessage)
	default:
		add(corev1.EventTypeWarning, nhcv1.EventDisabled, "Validate", fmt.Sprintf("Disabling NHC. Reason: %s, Message: %s", is.Reason, is.Message))
	}
	switch p.Storm.Turn {
	case budget.StormBegan:
		add(corev1.EventTypeWarning, nhcv1.EventStormStarted, "Grant", "Storm recovery mode activated - delaying remediation until threshold is reached")
	case budget.StormCooling:
		add(corev1.EventTypeWarning, nhcv1.EventStormCooldown, "Grant", "Storm recovery mode will exit after cooldown delay")
	case budget.StormEnded:
		add(corev1.EventTypeNormal, nhcv1.EventStormEnded, "Grant", "Storm recovery mode deactivated - normal remediation resumed")
	case budget.StormUnchanged:
	}
	return all
}

// TemplateNotFound is why a check is disabled whose template is not there. It says which one: what the API server says of one that is not there has no
// namespace, and of a kind no template.
func TemplateNotFound(t *nodes.Template, err error) nodes.Disabled {
	return nodes.Disabled{
		Reason: nhcv1.TemplateNotFoundReason, Message: fmt.Sprintf("Remediation template not found: %q", t.Place()+": "+innermost(err)),
	}
}

// TemplateInvalid is why a check is disabled whose template can be none. All of the text is medik8s', with namespace and name.
func TemplateInvalid(t *nodes.Template, err error) nodes.Disabled {
	text := fmt.Sprintf("Remediation template is invalid: %q", innermost(err))
	if t.HasOrder {
		text += ", of " + t.Place()
	}
	return nodes.Disabled{Reason: nhcv1.TemplateInvalidReason, Message: text}
}

// TemplateForbidden is why a check is disabled whose template, or the requests of which kind, may not be read.
func TemplateForbidden(t *nodes.Template, kind string, err error) nodes.Disabled {
	return nodes.Disabled{Reason: nhcv1.TemplateForbiddenReason, Message: fmt.Sprintf(
		"%s may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: \"true\" has to allow it, "+
			"as the remediator brings one: %q",
		kind, t.Place()+": "+innermost(err))}
}

// innermost is the text of the innermost of err, which is the API server's: what was tried is said in the sentence around it.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
