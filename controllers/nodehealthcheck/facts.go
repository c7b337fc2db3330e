package nodehealthcheck

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// factsOf is what a check itself says. This is the one place where its durations become rules.
func factsOf(check *nhcv1.NodeHealthCheck, now time.Time) nodes.Facts {
	spec := &check.Spec
	f := nodes.Facts{
		Now: now, Check: check.Name, MinHealthy: spelled(spec.MinHealthy), MaxUnhealthy: spelled(spec.MaxUnhealthy),
		HealthyDelay: ptr.Deref(spec.HealthyDelay, metav1.Duration{}).Duration, PauseRequests: spec.PauseRequests,
		Single: spec.RemediationTemplate != nil, Conditions: check.Status.Conditions,
	}
	if spec.StormCooldownDuration != nil {
		f.Cooldown = &spec.StormCooldownDuration.Duration
	}
	for _, c := range spec.UnhealthyConditions {
		f.Policy.Rules = append(f.Policy.Rules, health.Rule{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), For: c.Duration.Duration,
		})
	}
	f.Storm.Active = meta.IsStatusConditionTrue(check.Status.Conditions, nhcv1.StormActiveCondition)
	if cond := conditionOf(check, nhcv1.StormCooldownActiveCondition); cond != nil && cond.Status == metav1.ConditionTrue {
		f.Storm.CoolingSince = cond.LastTransitionTime.Time
	}
	if cond := conditionOf(check, nhcv1.RemediationAllowedCondition); cond != nil && cond.Reason == nhcv1.KubeletsAwaitedReason {
		f.AwaitedSince = cond.LastTransitionTime.Time
	}
	return f
}

func spelled(amount *intstr.IntOrString) string {
	if amount == nil {
		return ""
	}
	return amount.String()
}

// describe states what n says of itself.
func describe(n *nodes.Node, node *corev1.Node, policy health.Policy) {
	n.Exists, n.ID, n.Created, n.ControlPlane = true, string(node.UID), node.CreationTimestamp.Time, controlplane.IsMember(node)
	if !node.DeletionTimestamp.IsZero() {
		n.Deleting, n.Finalizers = node.DeletionTimestamp.Time, node.Finalizers
	}
	exclude, labelled := node.Labels[nhcv1.ExcludeLabel]
	n.Excluded, n.ExcludedEmpty = exclude == nhcv1.ExcludeValue, labelled && exclude == ""
	_, n.Confirmed = node.Annotations[nhcv1.ConfirmedHealthyAnnotation]
	openshift.Describe(n, node)
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		n.Reported = n.Reported || c.Type == corev1.NodeReady
		if nodes.Concerns(policy, string(c.Type), string(c.Status)) {
			n.Conditions = append(n.Conditions, health.Signal{
				Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Since: c.LastTransitionTime.Time,
			})
		}
	}
}

// describeRequests states what is known of the requests for n.
func (state *observed) describeRequests(n *nodes.Node, objects *objects) {
	for _, f := range objects.requests {
		n.Requests = append(n.Requests, f.facts())
	}
	for i := range objects.gone {
		n.Gone = append(n.Gone, state.listedFacts(&objects.gone[i]))
	}
	for i := range objects.unseen {
		n.Unseen = append(n.Unseen, state.listedFacts(&objects.unseen[i]))
	}
	for _, obj := range objects.orphaned {
		n.Orphaned = append(n.Orphaned, foreign(obj))
	}
	for _, obj := range state.requests.byNode[n.Name] {
		n.Others = append(n.Others, foreign(obj))
	}
	if objects.listed != nil {
		n.Listed = &nodes.Listing{Delayed: ptr.Deref(objects.listed.HealthyDelayed, false), Requests: len(objects.listed.Remediations)}
		if objects.listed.ConditionsHealthyTimestamp != nil {
			n.Listed.HealthySince = objects.listed.ConditionsHealthyTimestamp.Time
		}
	}
}

// facts are what is known of f.
func (f *found) facts() nodes.Request {
	obj, annotations := f.obj, f.obj.GetAnnotations()
	_, marked := annotations[nhcv1.HealthyDelayAnnotation]
	request := nodes.Request{
		Ref: refOf(obj), ID: string(obj.GetUID()), Template: annotations[nhcv1.TemplateNameAnnotation], Step: f.step, Started: f.started(),
		Kept: len(obj.GetFinalizers()) > 0, GivenUp: f.annotated(nhcv1.TimedOutAnnotation), Flagged: annotations[nhcv1.OldRequestAnnotation] != "",
		DelayedMarked: marked, Delayed: f.annotated(nhcv1.HealthyDelayAnnotation), Relapsed: !f.annotated(mendv1.RelapsedAnnotation).IsZero(),
		Guessed: f.guessed,
	}
	request.Notified = !request.GivenUp.IsZero()
	if at := obj.GetDeletionTimestamp(); at != nil {
		request.Deleting = at.Time
	}
	if listed := f.listed; listed != nil {
		request.Listed, request.ListedHealthy, request.Counted = true, listed.healthy, listed.remediation.Started.Time
		if listed.remediation.TimedOut != nil {
			request.GivenUp = listed.remediation.TimedOut.Time
		}
	}
	request.Succeeded, request.SucceededSince = condition(obj, nhcv1.SucceededCondition)
	request.Processing, request.ProcessingSince = condition(obj, nhcv1.ProcessingCondition)
	request.DeletesNode, _ = condition(obj, nhcv1.NodeDeletionExpectedCondition)
	for _, kind := range []string{nhcv1.ProcessingCondition, nhcv1.SucceededCondition, nhcv1.NodeDeletionExpectedCondition} {
		if fields := remediationrequest.Condition(obj, kind); fields != nil {
			reason, _ := fields["reason"].(string)
			message, _ := fields["message"].(string)
			status, _ := fields["status"].(string)
			request.Says = append(request.Says, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message})
		}
	}
	return request
}

func refOf(obj *unstructured.Unstructured) nodes.Ref {
	return nodes.Ref{Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func foreign(obj *unstructured.Unstructured) nodes.Foreign {
	return nodes.Foreign{
		Ref: refOf(obj), ID: string(obj.GetUID()), Type: obj.GroupVersionKind().GroupKind().String(), Deleting: obj.GetDeletionTimestamp() != nil,
	}
}

// listedFacts are what the status remembers of a request.
func (state *observed) listedFacts(remediation *nhcv1.Remediation) nodes.Listed {
	request := nodes.Listed{
		Ref:  nodes.Ref{Kind: remediation.Resource.Kind, Namespace: remediation.Resource.Namespace, Name: remediation.Resource.Name},
		Step: state.stepOfListed(remediation), Started: remediation.Started.Time,
	}
	if remediation.TimedOut != nil {
		request.GivenUp = remediation.TimedOut.Time
	}
	return request
}

func (state *observed) stepOfListed(remediation *nhcv1.Remediation) int {
	kind := schema.FromAPIVersionAndKind(remediation.Resource.APIVersion, remediation.Resource.Kind).GroupKind()
	return slices.IndexFunc(state.templates, func(m remediationTemplate) bool {
		return m.kind.GroupKind() == kind && m.ref.Namespace == remediation.Resource.Namespace &&
			(remediation.TemplateName == "" || remediation.TemplateName == m.ref.Name)
	})
}

// describeNames states which requests have the names that those of the check for n would have.
func (state *observed) describeNames(n *nodes.Node) {
	n.Named = make([]nodes.Named, len(state.templates))
	for j := range state.templates {
		m := &state.templates[j]
		if m.object == nil {
			continue
		}
		same := state.requests.byName[keyOf(m.kind.GroupKind(), m.ref.Namespace, m.nameFor(state.check, &state.facts.Templates[j], n))]
		if same == nil {
			continue
		}
		n.Named[j] = nodes.Named{
			Ref: refOf(same), ID: string(same.GetUID()), Exists: true, Own: state.made(same), Template: same.GetAnnotations()[nhcv1.TemplateNameAnnotation],
		}
	}
}

// condition reads one of the conditions that a remediator writes. What is none, or none that can be read, is unsaid.
func condition(obj *unstructured.Unstructured, kind string) (escalation.Status, time.Time) {
	fields := remediationrequest.Condition(obj, kind)
	if fields == nil {
		return escalation.Unsaid, time.Time{}
	}
	text, _ := fields["lastTransitionTime"].(string)
	at, _ := time.Parse(time.RFC3339, text)
	switch fields["status"] {
	case string(metav1.ConditionTrue):
		return escalation.Yes, at
	case string(metav1.ConditionFalse):
		return escalation.No, at
	default:
		return escalation.Unsure, at
	}
}
