package machinehealthcheck

import (
	"context"
	"encoding/json"
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
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
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
	switch refused := slices.IndexFunc(outcomes, func(o outcome) bool { return o.refused != nil }); {
	case refused >= 0:
		v1beta1conditions.MarkFalse(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition,
			clusterv1.ExternalRemediationRequestCreationFailedV1Beta1Reason, clusterv1.ConditionSeverityError,
			"%s", outcomes[refused].refused.Error())
	case started || plan.AllRequested:
		v1beta1conditions.Delete(next, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition)
	}
	return next
}

func clamp(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// setCheckCondition sets cond, or removes it if it has no status, in both flavours if there are two.
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

// record brings the stored check up to date: label, owner and status. It writes only what differs.
func (r *Reconciler) record(ctx context.Context, state *observed, next *clusterv1.MachineHealthCheck) error {
	if err := r.recordOwner(ctx, state); err != nil {
		return err
	}
	return r.recordStatus(ctx, state, next)
}

func (r *Reconciler) recordStatus(ctx context.Context, state *observed, next *clusterv1.MachineHealthCheck) error {
	if sameStatus(state.Check.Status, next.Status) {
		return nil
	}
	before, after := *state.Check, *next
	if slices.Equal(before.Status.Targets, after.Status.Targets) { // thousands of names, which need not be encoded to be compared
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

// putOff is when the status of a check with many targets is written, each of which it names, so that what it costs to write and to watch
// grows with them; if the last time was a moment ago and no condition differs but in numbers, which are in messages:
// these are what events are about, and what other controllers act on. Zero if it is written now.
func putOff(state *observed, next *clusterv1.MachineHealthCheck) time.Time {
	every := time.Duration(len(state.Targets)) * 400 * time.Microsecond
	due := state.before.statusAt.Add(every)
	if every < enqueue.MergeWindow || state.before.statusAt.IsZero() || !state.Now.Before(due) ||
		sameStatus(state.Check.Status, next.Status) || state.Check.Status.ObservedGeneration != next.Status.ObservedGeneration ||
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

// sameStatus compares the targets apart: there may be thousands of them, and reflection allocates for each.
func sameStatus(a, b clusterv1.MachineHealthCheckStatus) bool {
	same := slices.Equal(a.Targets, b.Targets)
	a.Targets, b.Targets = nil, nil
	return same && equality.Semantic.DeepEqual(a, b)
}

// recordOwner makes the check belong to its Cluster, by label and owner reference, as Cluster API does. It
// is what makes `clusterctl move` and the deletion of the cluster take the check along.
func (r *Reconciler) recordOwner(ctx context.Context, state *observed) error {
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: state.Cluster.Name, UID: state.Cluster.UID,
	}
	owners := slices.DeleteFunc(slices.Clone(state.Check.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.Kind == owner.Kind && strings.HasPrefix(o.APIVersion, clusterv1.GroupVersion.Group+"/") && o.Name == owner.Name
	})
	owners = append(owners, owner)
	if state.Check.Labels[clusterv1.ClusterNameLabel] == state.Check.Spec.ClusterName && slices.Contains(state.Check.OwnerReferences, owner) {
		return nil
	}
	if until := state.before.did[state.Check.UID].Until(state.Now); state.Now.Before(until) {
		state.lookAgainIn(until.Sub(state.Now))
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": state.Check.ResourceVersion,
		"labels":          map[string]string{clusterv1.ClusterNameLabel: state.Check.Spec.ClusterName},
		"ownerReferences": owners,
	}})
	if err != nil {
		return fmt.Errorf("encode the owner of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(state.Check), err)
	}
	saved := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: state.Check.Name, Namespace: state.Check.Namespace}}
	if err := r.Client.Patch(ctx, saved, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the owner of MachineHealthCheck %s: %w", client.ObjectKeyFromObject(state.Check), err)
	}
	state.doneAgain(state.Check.UID, string(owner.UID))
	// The status is written next, on top of this.
	check := *state.Check
	check.ResourceVersion, state.Check = saved.ResourceVersion, &check
	return nil
}
