package machinehealthcheck

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// maxTargets is how many names the field status.targets can hold. Checks of more machines work; the list is cut.
const maxTargets = 10000

func statusAfter(state *observed, plan *Plan, outcomes []outcome) *clusterv1.MachineHealthCheck {
	next := state.Check.DeepCopy()
	for _, cond := range plan.Conditions {
		setCheckCondition(next, state, cond)
	}
	if state.Mode != Active {
		return next
	}
	if state.Settled() {
		next.Status.ExpectedMachines = ptr.To(clamp(plan.Population.Total()))
		next.Status.CurrentHealthy = ptr.To(clamp(plan.Population.Healthy))
		next.Status.RemediationsAllowed = ptr.To(clamp(plan.Grant.Remaining))
		next.Status.Targets = make([]string, min(len(state.Targets), maxTargets))
		for i := range next.Status.Targets {
			next.Status.Targets[i] = state.Targets[i].Name
		}
		if len(state.Trouble) == 0 && !slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err != nil }) {
			next.Status.ObservedGeneration = next.Generation
		}
	}
	started := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.requested })
	allRequested := state.Template.Known && state.Settled() && plan.Population.Waiting == 0 &&
		!slices.ContainsFunc(plan.Open, func(decision *Decision) bool { return decision.PutOff.Reason != "" })
	switch refused := slices.IndexFunc(outcomes, func(o outcome) bool { return o.refused != nil }); {
	case refused >= 0:
		v1beta1conditions.MarkFalse(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition,
			clusterv1.ExternalRemediationRequestCreationFailedV1Beta1Reason, clusterv1.ConditionSeverityError,
			"%s", outcomes[refused].refused.Error())
	case started || allRequested:
		v1beta1conditions.Delete(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition)
	}
	return next
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// setCheckCondition sets cond, or removes it if it has no status, in both API versions if there are two.
func setCheckCondition(next *clusterv1.MachineHealthCheck, state *observed, cond metav1.Condition) {
	if cond.LastTransitionTime.IsZero() {
		cond.LastTransitionTime = metav1.NewTime(state.Now)
	}
	if cond.Status == "" {
		conditions.Delete(next, cond.Type)
	} else {
		conditions.Set(next, cond)
	}
	switch {
	case cond.Type == RemediationAllowed && cond.Status == metav1.ConditionTrue:
		v1beta1conditions.MarkTrue(next, clusterv1.RemediationAllowedV1Beta1Condition)
	case cond.Type == RemediationAllowed:
		v1beta1conditions.Set(next, &clusterv1.Condition{
			Type: clusterv1.RemediationAllowedV1Beta1Condition, Status: corev1.ConditionFalse,
			Severity: clusterv1.ConditionSeverityWarning, Reason: cond.Reason, Message: cond.Message,
		})
	case cond.Type == mendv1.RemediationTemplateAvailable && cond.Status == metav1.ConditionFalse:
		v1beta1conditions.MarkFalse(next, clusterv1.ExternalRemediationTemplateAvailableV1Beta1Condition,
			clusterv1.ExternalRemediationTemplateNotFoundV1Beta1Reason, clusterv1.ConditionSeverityError, "%s", state.Template.Missing)
	case cond.Type == mendv1.RemediationTemplateAvailable:
		v1beta1conditions.Delete(next, clusterv1.ExternalRemediationTemplateAvailableV1Beta1Condition)
	}
}

func (r *Reconciler) recordStatus(ctx context.Context, state *observed, next *clusterv1.MachineHealthCheck) error {
	if sameStatus(state.Check.Status, next.Status) {
		return nil
	}
	before, after := *state.Check, *next
	if slices.Equal(before.Status.Targets, after.Status.Targets) { // saves encoding thousands of names
		before.Status.Targets, after.Status.Targets = nil, nil
	}
	patch, err := client.MergeFromWithOptions(&before, client.MergeFromWithOptimisticLock{}).Data(&after)
	if err != nil {
		return fmt.Errorf("encode the status of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(state.Check), err)
	}
	saved := &metav1.PartialObjectMetadata{}
	saved.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	saved.Name, saved.Namespace = state.Check.Name, state.Check.Namespace
	if err := r.Client.Status().Patch(ctx, saved, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the status of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(state.Check), err)
	}
	return nil
}

// numbersWithin is how long the status of a check is postponed if only numbers have changed, so that it is written once, with a condition
// that turns soon. The status names each target, so writing and watching it costs more with more targets.
func numbersWithin(targets int) time.Duration {
	return max(time.Second, time.Duration(targets)*400*time.Microsecond)
}

// putOff returns when the status of a check is to be written if only numbers have changed, which messages contain; zero if it is written
// now. A changed condition is written now: events report it, and other controllers act on it.
func putOff(state *observed, next *clusterv1.MachineHealthCheck) time.Time {
	due := state.before.statusDue
	if due.IsZero() {
		due = state.Now.Add(numbersWithin(len(state.Targets)))
	}
	if !state.Now.Before(due) || sameStatus(state.Check.Status, next.Status) ||
		state.Check.Status.ObservedGeneration != next.Status.ObservedGeneration ||
		!slices.EqualFunc(state.Check.Status.Conditions, next.Status.Conditions, func(a, b metav1.Condition) bool {
			return sameCondition(a, b) && a.ObservedGeneration == b.ObservedGeneration
		}) ||
		!slices.EqualFunc(state.Check.GetV1Beta1Conditions(), next.GetV1Beta1Conditions(), func(a, b clusterv1.Condition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Severity == b.Severity
		}) {
		return time.Time{}
	}
	return due
}

// sameStatus compares the targets without reflection, which would allocate memory for each of thousands.
func sameStatus(a, b clusterv1.MachineHealthCheckStatus) bool {
	same := slices.Equal(a.Targets, b.Targets)
	a.Targets, b.Targets = nil, nil
	return same && equality.Semantic.DeepEqual(a, b)
}

// recordOwner gives the check the label and the owner reference of its Cluster, as Cluster API does. `clusterctl move` and the deletion of
// the Cluster then include the check.
func (r *Reconciler) recordOwner(ctx context.Context, state *observed) error {
	owned := state.Check.DeepCopy()
	owned.OwnerReferences = util.EnsureOwnerRef(owned.OwnerReferences, metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: state.Cluster.Name, UID: state.Cluster.UID,
	})
	metav1.SetMetaDataLabel(&owned.ObjectMeta, clusterv1.ClusterNameLabel, state.Check.Spec.ClusterName)
	if equality.Semantic.DeepEqual(owned.ObjectMeta, state.Check.ObjectMeta) {
		return nil
	}
	if until := state.before.did[state.Check.UID].Until(state.Now); state.Now.Before(until) {
		state.lookAgainIn(until.Sub(state.Now))
		return nil
	}
	patch := client.MergeFromWithOptions(state.Check, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, owned, patch); err != nil {
		return fmt.Errorf("write the owner of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(state.Check), err)
	}
	state.before.did[state.Check.UID] = state.before.did[state.Check.UID].Again(string(state.Cluster.UID), state.Now)
	// The status is written next, on top of this version.
	check := *state.Check
	check.ResourceVersion, state.Check = owned.ResourceVersion, &check
	return nil
}

// withConditions returns the status of machine with the conditions of list; those without a status are removed. held are its due findings.
func withConditions(machine *clusterv1.Machine, list []metav1.Condition, held []health.Finding, now time.Time) *clusterv1.Machine {
	next := statusCopy(machine)
	for _, cond := range list {
		cond.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // rounded, as it is stored
		switch {
		case cond.Type == HealthCheckSucceeded:
			setHealth(next, cond, held)
		case cond.Type == OwnerRemediated && cond.Status == "":
			dropOwnerRemediated(next)
		case cond.Type == OwnerRemediated:
			askOwner(next, cond)
		case cond.Status == "":
			conditions.Delete(next, cond.Type)
		default:
			cond.Message = health.Short(cond.Message, longestMessage)
			conditions.Set(next, cond)
		}
	}
	return next
}

func setHealth(machine *clusterv1.Machine, cond metav1.Condition, due []health.Finding) {
	if cond.Status == metav1.ConditionTrue {
		conditions.Set(machine, cond)
		v1beta1conditions.MarkTrue(machine, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
		return
	}
	var older string
	cond.Message, older = healthCheckFailed(due)
	conditions.Set(machine, cond)
	v1beta1conditions.Set(machine, &clusterv1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: reasons[due[0].Reason].v1beta1, Message: older,
	})
}

// How many bytes the message of a condition of a Machine may have, by the CRD of Cluster API. With more, the API server refuses the status.
const (
	longestMessage        = 32768
	longestV1Beta1Message = 10240
)

// healthCheckFailedBegin begins the message of a failed health check, as in Cluster API.
const healthCheckFailedBegin = "Health check failed:"

// healthCheckFailed returns the messages of a failed health check, for both API versions. due are its findings in order of precedence. The
// wording, the order and the empty v1beta1 message for a deleted node are Cluster API's.
func healthCheckFailed(due []health.Finding) (message, v1beta1 string) {
	if len(due) == 0 {
		return "", ""
	}
	texts := health.Texts(due)
	bulleted := health.Short(healthCheckFailedBegin+"\n  * "+strings.Join(texts, "\n  * "), longestMessage)
	switch due[0].Reason {
	case health.MarkedByHand:
		return healthCheckFailedBegin + " " + texts[0], "Marked for remediation via remediate-machine annotation"
	case health.NodeDeleted:
		return bulleted, ""
	default:
		return bulleted, health.Short(strings.Join(texts, "; "), longestV1Beta1Message)
	}
}

// askOwner sets cond, which asks the machine's owner to remediate it, in each API version in which it was not asked yet. Owners act on the
// v1beta2 condition alone. (MachineSet, KubeadmControlPlane)
func askOwner(machine *clusterv1.Machine, cond metav1.Condition) {
	if asked := ConditionOf(machine, cond.Type); asked == nil || asked.Status == metav1.ConditionTrue {
		conditions.Set(machine, cond)
	}
	asked := v1beta1conditions.Get(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	if asked == nil || asked.Status == corev1.ConditionTrue {
		v1beta1conditions.MarkFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition,
			clusterv1.WaitingForRemediationV1Beta1Reason, clusterv1.ConditionSeverityWarning, "")
	}
}

func dropOwnerRemediated(machine *clusterv1.Machine) {
	conditions.Delete(machine, clusterv1.MachineOwnerRemediatedCondition)
	v1beta1conditions.Delete(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
}

// releasedCopy returns the status of machine without the conditions that checks set: a failed health check, a request to its owner that the
// owner did not answer, the request to a provider.
func releasedCopy(machine *clusterv1.Machine) *clusterv1.Machine {
	next := statusCopy(machine)
	if MarkedUnhealthy(machine) {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	asked, verdict := ConditionOf(next, OwnerRemediated), ConditionOf(machine, HealthCheckSucceeded)
	byPowerCycle := verdict != nil && verdict.Reason == mendv1.PowerCycleFailedReason // the host remediation controller removes it
	if asked != nil && !byPowerCycle && asked.Status == metav1.ConditionFalse && asked.Reason == waitingForRemediation {
		dropOwnerRemediated(next)
	}
	conditions.Delete(next, clusterv1.MachineExternallyRemediatedCondition)
	capi.DropOwn(next)
	return next
}

// sameConditions reports whether a and b have the same conditions, in both API versions. Reflection would take milliseconds.
func sameConditions(a, b *clusterv1.Machine) bool {
	return slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(x, y metav1.Condition) bool {
		same := x.LastTransitionTime.Equal(&y.LastTransitionTime)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	}) && slices.EqualFunc(a.GetV1Beta1Conditions(), b.GetV1Beta1Conditions(), func(x, y clusterv1.Condition) bool {
		same := x.LastTransitionTime.Equal(&y.LastTransitionTime)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	})
}

// statusCopy returns a copy of machine with its identity and conditions only. machine is shared with the cache.
func statusCopy(machine *clusterv1.Machine) *clusterv1.Machine {
	copied := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID,
		ResourceVersion: machine.ResourceVersion, Generation: machine.Generation,
	}}
	copied.Status.Conditions = slices.Clone(machine.Status.Conditions)
	if v1beta1 := machine.GetV1Beta1Conditions(); v1beta1 != nil {
		copied.SetV1Beta1Conditions(slices.Clone(v1beta1))
	}
	return copied
}
