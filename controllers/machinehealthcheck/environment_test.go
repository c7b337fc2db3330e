package machinehealthcheck

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/undone"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// aCheck returns the observed state of a check of the reachable cluster "c1"; each test states only what differs.
func aCheck(targets ...Target) *observed {
	w := &observed{
		Facts: Facts{
			Now: noon, Mode: Active, ActsUnclaimed: true, Template: Template{Known: true},
			Check: &clusterv1.MachineHealthCheck{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check", UID: "check-uid", Generation: 3},
				Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "c1"},
			},
			Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "cluster-uid"}},
		},
		view:   workload.View{Link: health.Up},
		before: remembered{did: map[types.UID]undone.Did[string]{}},
	}
	w.Cluster.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue},
		{Type: clusterv1.ClusterInfrastructureReadyCondition, Status: metav1.ConditionTrue},
	}
	return w.having(targets...)
}

// having replaces the targets of the check.
func (w *observed) having(targets ...Target) *observed {
	w.Targets = nil
	return w.also(targets...)
}

// also adds targets to the check.
func (w *observed) also(targets ...Target) *observed {
	for i := range targets {
		w.stateHealth(&targets[i], targets[i].Health.Node, nil)
		w.Targets = append(w.Targets, &targets[i])
	}
	return w
}

// given is the part of a machine that a test sets instead of reading it.
type given struct {
	verdict health.Verdict
}

var (
	givens = map[*clusterv1.Machine]*given{}
	giving sync.Mutex
)

// of returns what the test sets for t.
func of(t *Target) *given {
	giving.Lock()
	defer giving.Unlock()
	if givens[t.Machine] == nil {
		givens[t.Machine] = &given{}
	}
	return givens[t.Machine]
}

// decide returns the plan for w with the verdicts that the test sets.
func decide(w *observed) *Plan {
	if w.template != nil && w.Template.Known && w.Template.Missing == "" {
		for i := range w.Targets {
			if t := w.Targets[i]; t.Request == nil {
				_, t.Unusable = w.requestFor(t.Machine)
			}
		}
	}
	defer func() { w.Verdicts = nil }()
	for _, target := range w.Targets {
		if target.Health == nil {
			w.stateHealth(target, health.NodeUnseen, nil)
		}
		w.Verdicts = append(w.Verdicts, of(target).verdict)
	}
	w.owned()
	return w.decide()
}

// owned sets the ownership of the targets' requests.
func (w *observed) owned() {
	for _, target := range w.Targets {
		if target.Request != nil {
			target.Ownership = w.ownership(target)
		}
	}
}

// recall gives w the memory of the reconcile before.
func (m *memory) recall(w *observed) {
	w.before = m.of(client.ObjectKeyFromObject(w.Check))
}

// leave stores the memory of w, its plan and its outcomes.
func (m *memory) leave(w *observed, p *Plan, outcomes ...outcome) {
	m.Store(client.ObjectKeyFromObject(w.Check), after(w, p, applied{outcomes: outcomes}))
}

// limited sets unhealthyLessThanOrEqualTo of the check.
func (w *observed) limited(limit string) *observed {
	w.Check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &intstr.IntOrString{Type: intstr.String, StrVal: limit}
	return w
}

const templateKind = "Metal3RemediationTemplate"

// external gives the check a template, so that it creates requests.
func (w *observed) external() *observed {
	ref := clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: templateKind, Name: "reboot",
	}
	w.Check.Spec.Remediation.TemplateRef = ref
	w.Template, w.requestKind = templateOf(w.Check), remediationrequest.KindOf(remediationrequest.TemplateKind(ref))
	w.template = &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind}}
	return w
}

// stepsOf returns the decisions of plan that are not idle.
func stepsOf(plan *Plan) []*Decision {
	return slices.DeleteFunc(slices.Clone(plan.Decisions), (*Decision).Idle)
}

// carries carries out the first step of the plan for w.
func (r *Reconciler) carries(ctx context.Context, w *observed) (*Plan, outcome) {
	plan := decide(w)
	return plan, r.act(ctx, w, plan)[0]
}

// starts returns the number of remediations that start.
func starts(plan *Plan) int {
	n := 0
	for _, d := range plan.Decisions {
		if d.Starts() {
			n++
		}
	}
	return n
}

// a returns a target in a state, owned by a MachineSet; if unhealthy, it has been due for a minute.
func a(name string, state health.State, changes ...func(*Target)) Target {
	t := Target{
		Health: &health.Target{},
		Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", Generation: 2,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", Controller: ptr.To(true)}},
		}},
	}
	of(&t).verdict.State = state
	if state == health.Unhealthy {
		of(&t).verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Signal: health.Signal{Reason: "Bad"}, Due: ago(time.Minute)}}
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func withoutOwner(t *Target) { t.Machine.OwnerReferences = nil }

func beingDeleted(t *Target) {
	t.Machine.DeletionTimestamp = &metav1.Time{Time: ago(time.Second)}
}

func dueFor(d time.Duration) func(*Target) {
	return func(t *Target) { of(t).verdict.Findings[0].Due = ago(d) }
}

func olderCheck(name string) func(*Target) {
	return func(t *Target) { t.OlderCheck = name }
}

// withCondition adds a condition to the target's machine.
func withCondition(kind string, status metav1.ConditionStatus, reason string) func(*Target) {
	return func(t *Target) {
		t.Machine.Status.Conditions = append(t.Machine.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, ObservedGeneration: t.Machine.Generation, LastTransitionTime: metav1.NewTime(ago(time.Hour)),
		})
	}
}

func markedBefore(t *Target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)(t)
	t.Machine.SetV1Beta1Conditions(clusterv1.Conditions{{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Hour)),
	}})
}

func askedOwner(t *Target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason)(t)
	withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)(t)
}

func ownedByMachine(t *Target) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: t.Machine.Name, UID: t.Machine.UID}}
}

// requestedBy gives the target a request made by the check of that name and UID, or by core from our template if name is empty.
func requestedBy(name, uid string, changes ...func(*remediationrequest.Metadata)) func(*Target) {
	return func(t *Target) {
		t.Request = &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: t.Machine.Name, OwnerReferences: ownedByMachine(t), Annotations: map[string]string{
			clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
			clusterv1.TemplateClonedFromGroupKindAnnotation: templateKind + ".infrastructure.cluster.x-k8s.io",
		}}}
		if name != "" {
			t.Request.Annotations[mendv1.MadeByAnnotation] = name
			t.Request.Labels = map[string]string{mendv1.MadeByUIDLabel: uid}
		}
		for _, change := range changes {
			change(t.Request)
		}
	}
}

func onItsWayOut(r *remediationrequest.Metadata) {
	r.DeletionTimestamp = &metav1.Time{Time: ago(time.Second)}
}
func otherTemplate(r *remediationrequest.Metadata) {
	r.Annotations[clusterv1.TemplateClonedFromNameAnnotation] = "another"
}
func otherTemplateKind(r *remediationrequest.Metadata) {
	r.Annotations[clusterv1.TemplateClonedFromGroupKindAnnotation] = "OtherTemplate.example.org"
}
func ofAnotherMachine(r *remediationrequest.Metadata) { r.OwnerReferences[0].UID = "uid-of-one-before" }

// The conditions that a decision can set on a machine.
var (
	setHealthy   = metav1.Condition{Type: HealthCheckSucceeded, Status: "True", Reason: clusterv1.MachineHealthCheckSucceededReason}
	setUnhealthy = metav1.Condition{Type: HealthCheckSucceeded, Status: "False", Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason}
	ownerAsked   = metav1.Condition{Type: OwnerRemediated, Status: "False", Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason}
	ownerForgot  = metav1.Condition{Type: OwnerRemediated}
	requested    = metav1.Condition{
		Type: ExternallyRemediated, Status: "False", Reason: clusterv1.MachineExternallyRemediatedWaitingForRemediationReason,
	}
	requestGone = metav1.Condition{Type: ExternallyRemediated}
	notCreated  = []metav1.Condition{
		condition(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, "it is odd"),
		condition(mendv1.Remediation, metav1.ConditionFalse, requestCreationFailed, "it is odd"),
	}
)

// written returns m with these conditions, set at now; nil if m has them.
func written(m *clusterv1.Machine, due []health.Finding, now time.Time, all ...metav1.Condition) *clusterv1.Machine {
	if due == nil {
		due = []health.Finding{{Reason: health.NodeCondition, Signal: health.Signal{Reason: "Bad"}}}
	}
	next := withConditions(m, all, due, now)
	if equality.Semantic.DeepEqual(next.Status, statusCopy(m).Status) {
		return nil
	}
	return next
}

// external returns the condition ExternallyRemediated that decision sets or removes; zero if it does neither.
func (decision *Decision) external() metav1.Condition {
	for _, c := range decision.Conditions {
		if c.Type == ExternallyRemediated {
			return c
		}
	}
	return metav1.Condition{}
}
