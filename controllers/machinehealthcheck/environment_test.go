package machinehealthcheck

import (
	"errors"
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
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// aCheck is what is observed of a check of the cluster "c1" that is up; each test states only what is special about it.
func aCheck(targets ...target) *observed {
	return (&observed{
		now: noon,
		check: &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check", UID: "check-uid", Generation: 3},
			Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "c1"},
		},
		cluster:             &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1", UID: "cluster-uid"}},
		mode:                machines.Active,
		actsUnclaimed:       true,
		initialized:         true,
		infrastructureReady: true,
		link:                workload.View{Link: workload.Up},
		remediation:         remediation{Template: machines.Template{Known: true}},
	}).having(targets...)
}

// having gives the check these targets.
func (w *observed) having(targets ...target) *observed {
	w.targets = nil
	return w.also(targets...)
}

// also gives the check these targets more.
func (w *observed) also(targets ...target) *observed {
	for i := range targets {
		w.targets = append(w.targets, &targets[i])
	}
	return w
}

// given is what a test says of a machine beside what is read of it.
type given struct {
	verdict health.Verdict
}

var (
	givens = map[*clusterv1.Machine]*given{}
	giving sync.Mutex
)

// of is what the test says of t.
func of(t *target) *given {
	giving.Lock()
	defer giving.Unlock()
	if givens[t.machine] == nil {
		givens[t.machine] = &given{}
	}
	return givens[t.machine]
}

// decide decides what w comes to, with the verdicts that the test gives.
func decide(w *observed) plan {
	if w.remediation.read && w.remediation.Known && w.remediation.Missing == "" {
		for i := range w.targets {
			if t := w.targets[i]; t.request == nil {
				_, t.unusable = w.requestFor(t.machine)
			}
		}
	}
	f := w.facts()
	for _, target := range w.targets {
		f.Verdicts = append(f.Verdicts, of(target).verdict)
	}
	return plan{Plan: machines.Decide(f), facts: f}
}

// recall gives w what is remembered of the reconcile before.
func (m *memory) recall(w *observed) {
	w.before = m.of(client.ObjectKeyFromObject(w.check))
}

// leave remembers w, its plan, and what became of that.
func (m *memory) leave(w *observed, p plan, outcomes ...outcome) {
	m.keep(after(w, p, applied{outcomes: outcomes}), w)
}

// allowed is the condition RemediationAllowed.
func allowed(p plan) metav1.Condition { return p.condition(p.Allowed) }

// limited gives the check an unhealthyLessThanOrEqualTo.
func (w *observed) limited(limit string) *observed {
	w.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &intstr.IntOrString{Type: intstr.String, StrVal: limit}
	return w
}

const templateKind = "Metal3RemediationTemplate"

// external makes the check remediate by requests.
func (w *observed) external() *observed {
	ref := clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: templateKind, Name: "reboot",
	}
	w.check.Spec.Remediation.TemplateRef = ref
	w.remediation = byRequests(ref)
	w.remediation.Known = true
	w.remediation.read, w.remediation.template = true, &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind}}
	return w
}

// listing makes the check remediate by requests that are being listed for the first time.
func (w *observed) listing() *observed {
	w.external().remediation.Known, w.remediation.Syncing = false, true
	return w
}

// starts is how many remediations start.
func (s plan) starts() int {
	n := 0
	for _, d := range s.Decisions {
		if d.Starts() {
			n++
		}
	}
	return n
}

// a returns a target called name in a state, which a MachineSet owns; an unhealthy one has been due for a minute.
func a(name string, state health.State, changes ...func(*target)) target {
	t := target{
		machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
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

func withoutOwner(t *target) { t.machine.OwnerReferences = nil }

func beingDeleted(t *target) { t.machine.DeletionTimestamp = &metav1.Time{Time: ago(time.Second)} }

func beingUpdated(t *target) {
	withCondition(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, clusterv1.MachineInPlaceUpdatingReason)(t)
}

func dueFor(d time.Duration) func(*target) {
	return func(t *target) { of(t).verdict.Findings[0].Due = ago(d) }
}

func olderCheck(name string) func(*target) { return func(t *target) { t.older = name } }

// withCondition gives the target's machine a condition.
func withCondition(kind string, status metav1.ConditionStatus, reason string) func(*target) {
	return func(t *target) {
		t.machine.Status.Conditions = append(t.machine.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, ObservedGeneration: t.machine.Generation, LastTransitionTime: metav1.NewTime(ago(time.Hour)),
		})
	}
}

func markedBefore(t *target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)(t)
	t.machine.SetV1Beta1Conditions(clusterv1.Conditions{{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Hour)),
	}})
}

func askedOwner(t *target) {
	withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason)(t)
	withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)(t)
}

func ownedByMachine(t *target) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: t.machine.Name, UID: t.machine.UID}}
}

// requestedBy gives the target a request with these marks; an empty name is one that core made from our template.
func requestedBy(name, uid string, changes ...func(*remediationrequest.Metadata)) func(*target) {
	return func(t *target) {
		t.request = &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: t.machine.Name, OwnerReferences: ownedByMachine(t), Annotations: map[string]string{
			clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
			clusterv1.TemplateClonedFromGroupKindAnnotation: templateKind + ".infrastructure.cluster.x-k8s.io",
		}}}
		if name != "" {
			t.request.Annotations[mendv1.MadeByAnnotation] = name
			t.request.Labels = map[string]string{mendv1.MadeByUIDLabel: uid}
		}
		for _, change := range changes {
			change(t.request)
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
	setHealthy   = machines.Condition{Type: machines.HealthCheckSucceeded, Status: "True", Reason: clusterv1.MachineHealthCheckSucceededReason}
	setUnhealthy = machines.Condition{Type: machines.HealthCheckSucceeded, Status: "False", Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason}
	ownerAsked   = machines.Condition{Type: machines.OwnerRemediated, Status: "False", Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason}
	ownerForgot  = machines.Condition{Type: machines.OwnerRemediated, Remove: true}
	requested    = machines.Condition{
		Type: machines.ExternallyRemediated, Status: "False", Reason: clusterv1.MachineExternallyRemediatedWaitingForRemediationReason,
	}
	requestGone = machines.Condition{Type: machines.ExternallyRemediated, Remove: true}
)

// written is m with these conditions, set at now; nil if it has them.
func written(m *clusterv1.Machine, due []health.Finding, now time.Time, all ...machines.Condition) *clusterv1.Machine {
	w := aCheck()
	w.now = now
	if due == nil {
		due = []health.Finding{{Reason: health.NodeCondition, Signal: health.Signal{Reason: "Bad"}}}
	}
	s := step{facts: &machines.Facts{}, Decision: &machines.Decision{Verdict: health.Verdict{Findings: due}}, target: &target{machine: m}, refused: errors.New("no rights")}
	next := s.with(w, m, all)
	if equality.Semantic.DeepEqual(next.Status, statusCopy(m).Status) {
		return nil
	}
	return next
}

// external is the condition ExternallyRemediated that s sets or removes; zero if it does neither.
func (s step) external() machines.Condition {
	for _, c := range s.Conditions {
		if c.Type == machines.ExternallyRemediated {
			return c
		}
	}
	return machines.Condition{}
}
