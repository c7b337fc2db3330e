// Package health tests which health Argo CD and Flux report for kubemend's kinds. It runs the scripts of config/argocd and the expressions
// of docs/examples/flux like these tools do, for the states that objects can be in.
package health

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

const yes, no, open = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// state is an object and what the tools have to report for it.
type state struct {
	object  client.Object
	argo    string
	message string // a part of Argo CD's message
	flux    string // empty if Flux has no expression for the kind
}

func said(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// check returns a claimed MachineHealthCheck with five healthy machines, changed by edits.
func check(edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Name: "workers", Generation: 2, Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	c.Status.ObservedGeneration, c.Status.ExpectedMachines, c.Status.CurrentHealthy = 2, ptr.To[int32](5), ptr.To[int32](5)
	c.Status.Conditions = []metav1.Condition{
		said(clusterv1.PausedCondition, yes, "Paused", "MachineHealthCheck has the cluster.x-k8s.io/paused annotation"), // written by core
		said(clusterv1.MachineHealthCheckRemediationAllowedCondition, yes, "RemediationAllowed", ""),
		said(mendv1.WorkloadClusterReachable, yes, mendv1.ReachableReason, ""),
		said(mendv1.TargetsExclusive, yes, mendv1.ExclusiveReason, ""),
		said(mendv1.RemediationTemplateAvailable, yes, mendv1.TemplateFoundReason, ""),
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func saying(kind string, status metav1.ConditionStatus, reason string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		for i := range c.Status.Conditions {
			if c.Status.Conditions[i].Type == kind {
				c.Status.Conditions[i] = said(kind, status, reason, "the message of "+reason)
			}
		}
	}
}

// cannotAct gives a check the condition Effective, which exists only while it is False.
func cannotAct(c *clusterv1.MachineHealthCheck) {
	c.Status.Conditions = append(c.Status.Conditions,
		said(mendv1.Effective, no, mendv1.NoRulesReason, "the message of NoRules"))
}

func pausedAs(value string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) { c.Annotations[clusterv1.PausedAnnotation] = value }
}

func counts(healthy int32) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) { c.Status.CurrentHealthy = ptr.To(healthy) }
}

func machineChecks() map[string]state {
	refused := func(reason string) func(*clusterv1.MachineHealthCheck) {
		return saying(clusterv1.MachineHealthCheckRemediationAllowedCondition, no, reason)
	}
	tooMany := refused(clusterv1.MachineHealthCheckTooManyUnhealthyReason)
	template := func(reason string) *clusterv1.MachineHealthCheck {
		return check(saying(mendv1.RemediationTemplateAvailable, no, reason))
	}
	cluster := func(status metav1.ConditionStatus, reason string) *clusterv1.MachineHealthCheck {
		return check(counts(0), saying(mendv1.WorkloadClusterReachable, status, reason), tooMany)
	}
	changed := func(c *clusterv1.MachineHealthCheck) { c.Generation++ }
	return map[string]state{
		"all machines are healthy":      {check(), healthy, "5 of 5 machines", current},
		"a machine is pending":          {check(counts(4)), progressing, "4 of 5 machines", current},
		"machines are being remediated": {check(counts(3)), progressing, "3 of 5 machines", current},
		"too many are not healthy":      {check(counts(2), tooMany), degraded, "of TooManyUnhealthy", failed},
		"its limit is impossible":       {check(refused(mendv1.InvalidLimitReason)), degraded, "of InvalidLimit", failed},
		"its selector is none":          {check(changed, refused(mendv1.InvalidSelectorReason)), degraded, "InvalidSelector", inProgress},
		"its Cluster is to come":        {check(changed, refused(mendv1.ClusterNotFoundReason)), progressing, "ClusterNotFound", inProgress},
		"its template is not there":     {template(mendv1.TemplateNotFoundReason), degraded, "TemplateNotFound", failed},
		"its template is none":          {template(mendv1.TemplateRefusedReason), degraded, "of TemplateRefused", failed},
		"another selects its machines":  {check(saying(mendv1.TargetsExclusive, no, mendv1.OverlapReason)), degraded, "of Overlap", failed},
		"it can never act":              {check(cannotAct), degraded, "of NoRules", failed},
		"its cluster is unreachable":    {cluster(no, mendv1.UnreachableReason), degraded, "of Unreachable", failed},
		"its cluster is being made":     {cluster(open, mendv1.NotInitializedReason), progressing, "of NotInitialized", inProgress},
		"a change is not looked at yet": {check(changed), progressing, "Waiting for its reconcile", inProgress},
		"a user has paused it":          {check(pausedAs("true")), suspended, "Paused by its annotation", current},
		"paused from the start": {check(pausedAs("true"), func(c *clusterv1.MachineHealthCheck) {
			c.Status = clusterv1.MachineHealthCheckStatus{Conditions: c.Status.Conditions[:1]}
		}), suspended, "Paused by its annotation", current},
		"it is new": {check(func(c *clusterv1.MachineHealthCheck) {
			c.Status = clusterv1.MachineHealthCheckStatus{}
		}), progressing, "Waiting for its reconcile", unread},
		"Cluster API core acts on it": {check(counts(4), coresOwn(true, "")), progressing, "4 of 5 machines", current},
		"of core, all are healthy":    {check(coresOwn(true, "")), healthy, "5 of 5 machines", current},
		"core's limit is reached":     {check(counts(2), coresOwn(false, "TooManyUnhealthy")), degraded, "of TooManyUnhealthy", failed},
		"core has not looked at it":   {check(coresOwn(true, ""), changed), progressing, "Waiting", inProgress},
	}
}

// coresOwn makes a check unclaimed, with the conditions that Cluster API core writes.
func coresOwn(allowed bool, reason string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = nil
		c.Status.Conditions = []metav1.Condition{
			said(clusterv1.PausedCondition, no, "NotPaused", ""),
			said(clusterv1.MachineHealthCheckRemediationAllowedCondition, yes, "RemediationAllowed", ""),
		}
		if !allowed {
			saying(clusterv1.MachineHealthCheckRemediationAllowedCondition, no, reason)(c)
		}
	}
}

func hostReports() map[string]struct {
	phase      infrav1.RemediationPhase
	conditions []metav1.Condition
	argo, says string
} {
	stands := func(processing, succeeded metav1.ConditionStatus, reason powercycle.Reason) []metav1.Condition {
		return []metav1.Condition{
			said(infrav1.PoweredOffCondition, no, string(reason), "not this one"),
			said(nhcv1.ProcessingCondition, processing, string(reason), "the message of "+string(reason)),
			said(nhcv1.SucceededCondition, succeeded, string(reason), "the message of "+string(reason)),
		}
	}
	return map[string]struct {
		phase      infrav1.RemediationPhase
		conditions []metav1.Condition
		argo, says string
	}{
		"it is new":                 {"", nil, progressing, "its first reconcile"},
		"it waits for its turn":     {"", stands(yes, open, powercycle.WaitingInQueueReason), progressing, "its first reconcile"},
		"its host powers off":       {infrav1.PhaseRunning, stands(yes, open, powercycle.PoweringOffReason), progressing, "of PoweringOff"},
		"its node boots":            {infrav1.PhaseWaiting, stands(yes, open, powercycle.BootingReason), progressing, "of Booting"},
		"its Cluster is paused":     {infrav1.PhaseRunning, stands(yes, open, powercycle.PausedReason), suspended, "of Paused"},
		"it has helped":             {infrav1.PhaseWaiting, stands(no, yes, powercycle.MachineHealthyReason), healthy, "of MachineHealthy"},
		"its owner has to go on":    {infrav1.PhaseDeleting, stands(no, no, powercycle.OwnerRequestedReason), degraded, "OwnerRequested"},
		"it has failed":             {infrav1.PhaseFailed, stands(no, no, powercycle.HostSwitchedOffReason), degraded, "HostSwitchedOff"},
		"no Machine owns it":        {"", stands(no, no, powercycle.NoOwnerReason), degraded, "of NoOwner"},
		"no conditions, it runs":    {infrav1.PhaseRunning, nil, progressing, ""},
		"no conditions, it waits":   {infrav1.PhaseWaiting, nil, progressing, ""},
		"no conditions, it failed":  {infrav1.PhaseFailed, nil, degraded, ""},
		"no conditions, it gave up": {infrav1.PhaseDeleting, nil, degraded, ""},
	}
}

func nodeCheck(phase nhcv1.Phase, healthyNodes int, conditions ...metav1.Condition) *nhcv1.NodeHealthCheck {
	return &nhcv1.NodeHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Name: "workers", Generation: 2},
		Status: nhcv1.NodeHealthCheckStatus{
			Phase: phase, Reason: "the reason of " + string(phase), ObservedNodes: ptr.To(5), HealthyNodes: ptr.To(healthyNodes),
			Conditions: append(conditions, said(nhcv1.StormActiveCondition, no, nhcv1.ThresholdReason, "")),
		},
	}
}

func nodeChecks() map[string]state {
	enabled := func(healthy int, says metav1.Condition) *nhcv1.NodeHealthCheck {
		return nodeCheck(nhcv1.PhaseEnabled, healthy, says)
	}
	disabled := func(reason string) *nhcv1.NodeHealthCheck {
		return nodeCheck(nhcv1.PhaseDisabled, 5, said(nhcv1.DisabledCondition, yes, reason, "the message of "+reason),
			said(nhcv1.RemediationAllowedCondition, no, "HealthCheckDisabled", "the same"))
	}
	not := func(reason string) metav1.Condition {
		return said(nhcv1.RemediationAllowedCondition, no, reason, "the message of "+reason)
	}
	allowed := said(nhcv1.RemediationAllowedCondition, yes, nhcv1.AllowedReason, "")
	return map[string]state{
		"all nodes are healthy":      {enabled(5, allowed), healthy, "5 of 5 nodes", current},
		"a node is pending":          {enabled(4, allowed), progressing, "4 of 5 nodes", current},
		"a node is being remediated": {nodeCheck(nhcv1.PhaseRemediating, 4, allowed), progressing, "reason of Remediating", current},
		"too many are not healthy":   {enabled(1, not("TooManyUnhealthy")), degraded, "of TooManyUnhealthy", failed},
		"after a storm":              {enabled(5, not("StormRecovery")), progressing, "of StormRecovery", current},
		"kubelets have to report":    {enabled(4, not(nhcv1.KubeletsAwaitedReason)), progressing, "of KubeletsAwaited", current},
		"the cluster is upgraded":    {enabled(4, not("ClusterUpgrading")), progressing, "of ClusterUpgrading", current},
		"a template is unreadable":   {enabled(4, not("TemplateUnreadable")), progressing, "of TemplateUnreadable", current},
		"a kind cannot be listed":    {enabled(4, not(nhcv1.KindUnreadReason)), degraded, "of KindUnreadable", failed},
		"a user has paused it":       {nodeCheck(nhcv1.PhasePaused, 4, not("PauseRequested")), suspended, "reason of Paused", current},
		"its template is not there":  {disabled(nhcv1.TemplateNotFoundReason), degraded, "TemplateNotFound", failed},
		"its template is none":       {disabled(nhcv1.TemplateInvalidReason), degraded, "of RemediationTemplateInvalid", failed},
		"kubemend is being removed":  {disabled(nhcv1.TeardownReason), degraded, "of ControllerTeardown", failed},
		"medik8s acts on it":         {enabled(5, said(nhcv1.DisabledCondition, no, nhcv1.EnabledReason, "")), healthy, "5 of 5", current},
		"it is new":                  {&nhcv1.NodeHealthCheck{}, progressing, "its first reconcile", inProgress},
		"medik8s says no more yet":   {nodeCheck("", 0), progressing, "its first reconcile", inProgress},
	}
}

// states returns the states of all kinds, by the key in argocd-cm and by API version and kind for Flux.
func states() map[[2]string]map[string]state {
	hosts, metal3 := map[string]state{}, map[string]state{}
	for name, r := range hostReports() {
		h, m := &mendv1.HostRemediation{}, &infrav1.Metal3Remediation{}
		h.Status.Phase, h.Status.Conditions, h.Status.Message = r.phase, r.conditions, "the sentence"
		m.Status.Phase, m.Status.Conditions, m.Status.Message = r.phase, r.conditions, "the sentence"
		hosts[name], metal3[name] = state{object: h, argo: r.argo, message: r.says}, state{object: m, argo: r.argo, message: r.says}
	}
	there := func(o client.Object) map[string]state {
		return map[string]state{"it is there": {object: o, argo: healthy}}
	}
	return map[[2]string]map[string]state{
		{"cluster.x-k8s.io_MachineHealthCheck", "cluster.x-k8s.io/v1beta2 MachineHealthCheck"}:        machineChecks(),
		{"remediation.medik8s.io_NodeHealthCheck", "remediation.medik8s.io/v1alpha1 NodeHealthCheck"}: nodeChecks(),
		{"kubemend.io_HostRemediation"}:                               hosts,
		{"infrastructure.cluster.x-k8s.io_Metal3Remediation"}:         metal3,
		{"kubemend.io_HostRemediationTemplate"}:                       there(&mendv1.HostRemediationTemplate{}),
		{"infrastructure.cluster.x-k8s.io_Metal3RemediationTemplate"}: there(&infrav1.Metal3RemediationTemplate{}),
	}
}

func TestToolsReportTheHealthOfEveryState(t *testing.T) {
	scripts, evaluators := customizations(t), expressions(t)
	for kind, all := range states() {
		for name, s := range all {
			t.Run(kind[0]+"/"+name, func(t *testing.T) {
				o := tree(t, s.object)
				is, message := argo(t, scripts[prefix+kind[0]], o)
				if is != s.argo || !strings.Contains(message, s.message) {
					t.Errorf("Argo CD: %s, %q; want %s, %q", is, message, s.argo, s.message)
				}
				if s.flux == "" {
					return
				}
				if evaluators[kind[1]] == nil {
					t.Fatalf("the example of Flux has no expressions for %s", kind[1])
				}
				if got := flux(t, evaluators[kind[1]], o); got != s.flux && !(s.flux == inProgress && got == unread) {
					t.Errorf("Flux: %s, want %s", got, s.flux)
				}
			})
		}
	}
}

// Argo CD may read checks in the older version, which has the conditions in another field.
func TestArgoCDReportsTheSameForTheOlderVersion(t *testing.T) {
	script := customizations(t)[prefix+"cluster.x-k8s.io_MachineHealthCheck"]
	for name, s := range machineChecks() {
		t.Run(name, func(t *testing.T) {
			older := &clusterv1beta1.MachineHealthCheck{}
			newer := s.object.(*clusterv1.MachineHealthCheck)
			must.Do(t, clusterv1beta1.Convert_v1beta2_MachineHealthCheck_To_v1beta1_MachineHealthCheck(newer, older, nil))
			if is, message := argo(t, script, tree(t, older)); is != s.argo || !strings.Contains(message, s.message) {
				t.Errorf("%s, %q; want %s, %q", is, message, s.argo, s.message)
			}
		})
	}
}

func tree(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	must.Do(t, err)
	return &unstructured.Unstructured{Object: content}
}

// The statuses of Flux.
const (
	current    = "Current"
	inProgress = "InProgress"
	failed     = "Failed"
	// unread means that the expression failed because a field is missing. Flux evaluates it again later.
	unread = "unread"
)

// expressions returns the expressions of the example, by API version and kind.
func expressions(t *testing.T) map[string]*cel.StatusEvaluator {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples", "flux", "kustomization.yaml"))
	must.Do(t, err)
	var example struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	must.Do(t, yaml.Unmarshal(text, &example))
	found := map[string]*cel.StatusEvaluator{}
	for _, check := range example.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		must.Do(t, err)
		found[check.APIVersion+" "+check.Kind] = evaluator
	}
	return found
}

func flux(t *testing.T, evaluator *cel.StatusEvaluator, o *unstructured.Unstructured) string {
	t.Helper()
	is, err := evaluator.Evaluate(t.Context(), o)
	if err != nil {
		return unread
	}
	return string(is.Status)
}
