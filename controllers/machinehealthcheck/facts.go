package machinehealthcheck

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"

	"github.com/kubemend/kubemend/controllers/machinestatus"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// decide decides what w comes to.
func (w *observed) decide() plan {
	facts := w.facts()
	if w.verdicts == nil {
		w.verdicts = machines.Judge(&facts)
	}
	facts.Verdicts = w.verdicts
	return plan{Plan: machines.Decide(facts), facts: facts}
}

// facts are those that are decided on.
func (w *observed) facts() machines.Facts {
	limits, invalidLimits := limitsOf(w.check, w.total())
	cooldown, invalidCooldown := CooldownOf(w.check)
	spareWait, invalidWait := SpareWaitOf(w.check)
	invalid := cmp.Or(invalidLimits, invalidCooldown, invalidWait)
	facts := machines.Facts{
		Now: w.now, About: w.about(invalid), Mode: w.mode, Claimed: claimed(w.check), ActsUnclaimed: w.actsUnclaimed,
		Check: string(w.check.UID), Policy: policyOf(w.check.Spec.Checks),
		Cluster: w.clusterFacts(), Reach: ptr.Deref(cmp.Or(w.before.reach, reportOf(w.check, mendv1.WorkloadClusterReachable)), machines.Report{}),
		Outage: w.outage(),
		Limits: limits, Invalid: invalid != nil, Limited: w.before.lasts && limited(w.check), Cooldown: cooldown, Storm: stormOf(w.check),
		Read: machines.Needs{Cycles: w.unread != nil, Template: w.remediation.tried, Spares: w.spares.read}, Explains: w.explains,
		Template: w.remediation.Template, CyclesUnread: w.remediation.cyclesUnread, Memory: w.before.decided, Counted: w.counted,
		SpareWait: spareWait, Spares: w.spares.Spares, Targets: make([]*machines.Target, len(w.targets)), Overlaps: w.overlaps,
		Capacity: w.capacity,
	}
	for i, target := range w.targets {
		facts.Targets[i] = w.factsAbout(target)
	}
	for _, target := range w.skipped {
		facts.Skipped = append(facts.Skipped, w.factsAbout(target))
	}
	return facts
}

func (w *observed) clusterFacts() machines.Cluster {
	return machines.Cluster{
		Paused: clusterPaused(w.cluster), Initialized: w.initialized, InfrastructureReady: w.infrastructureReady,
		InitializedAt: since(conditionTrue(w.cluster, clusterv1.ClusterControlPlaneInitializedCondition)),
		ReadyAt:       since(conditionTrue(w.cluster, clusterv1.ClusterInfrastructureReadyCondition)),
		Link:          links[w.link.Link],
	}
}

func (w *observed) outage() machines.Outage {
	outage := machines.Outage{Silent: w.link.Silent, Reported: w.link.Reported}
	if w.link.Refused != nil {
		outage.Refused = w.link.Refused.Error()
	}
	if w.link.Changed != nil {
		outage.Changed = w.link.Changed.Error()
	}
	return outage
}

var requests = map[Ownership]machines.Request{Foreign: machines.ForeignRequest, Adoptable: machines.AdoptableRequest, Own: machines.OwnRequest}

var links = map[workload.Link]machines.Link{workload.Unsure: machines.LinkUnsure, workload.Up: machines.LinkUp, workload.Down: machines.LinkDown}

// plainFacts are those about target as far as they are a matter of its machine, its node and the other checks. It sets the turns of target.
func (w *observed) plainFacts(target *target) *machines.Target {
	facts := targetOf(w.check.Spec.Checks, target.machine, target.known, target.node)
	facts.Health.Signals = w.datedSignals(target, facts.Health.Signals)
	facts.Older, facts.OlderCheck, facts.Health.Other = target.older != "", target.older, otherOf(target)
	if target.known == health.NodeOther {
		// The machine may have had that name until the node took it, and its node until Cluster API missed that.
		missed := since(conditionOf(target.machine, clusterv1.MachineNodeReadyCondition))
		starts := []time.Time{facts.Health.AwaitedSince, target.other.CreationTimestamp.Time, missed}
		facts.Health.AwaitedSince = slices.MaxFunc(starts, time.Time.Compare)
	}
	return facts
}

// factsAbout are those about target, with what is of this reconcile alone.
func (w *observed) factsAbout(target *target) *machines.Target {
	if target.facts == nil {
		target.facts = w.plainFacts(target)
	}
	if target.request == nil && target.cycle == nil && target.unusable == nil {
		return target.facts
	}
	facts := *target.facts
	if facts.Unusable = target.unusable != nil; facts.Unusable {
		facts.UnusableWhy = target.unusable.Error()
	}
	if req := target.request; req != nil {
		facts.Request, facts.RequestDeleting = requests[w.ownership(target)], !req.DeletionTimestamp.IsZero()
		facts.RequestFacts = &machines.RequestFacts{
			Name: req.Name, Created: req.CreationTimestamp.Time, ForOther: !remediationrequest.IsFor(req, target.machine),
		}
	}
	if req := target.cycle; req != nil {
		facts.Cycle = &machines.Cycle{Kind: req.Kind, Name: req.Name, Deleting: !req.DeletionTimestamp.IsZero(), Until: takenBy(req)}
	}
	return &facts
}

// targetOf states what is known of m and of its node, which is nil if it cannot be seen.
func targetOf(checks clusterv1.MachineHealthCheckChecks, m *clusterv1.Machine, known health.Node, node *corev1.Node) *machines.Target {
	_, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
	is := &machines.Target{
		ID: string(m.UID), Name: m.Name, Health: healthOf(checks, m, known, node), ControlPlane: controlPlane,
		Deleting: deleting(m), Updating: machinestatus.UpdatedInPlace(m), OnHost: onHost(m), Owned: owned(m), Announced: markedRequested(m),
		Failed: failedBefore(m), FailedSince: failedSince(m), Healthy: markedHealthy(m), Marked: marked(m), AskedWhileHealthy: askedWhileHealthy(m),
		SpareReport: reportOf(m, mendv1.SpareHostAvailable), RemediationReport: reportOf(m, mendv1.Remediation),
	}
	is.Created, is.InfrastructureReady = m.CreationTimestamp.Time, since(conditionTrue(m, clusterv1.MachineInfrastructureReadyCondition))
	is.OwnerReport, is.ProviderReport = reportOf(m, clusterv1.MachineOwnerRemediatedCondition), reportOf(m, clusterv1.MachineExternallyRemediatedCondition)
	is.LeftAlone, is.NodeReady = leftAloneBy(m), known == health.NodeUnseen && conditionTrue(m, clusterv1.MachineNodeReadyCondition) != nil
	is.NodeReady = is.NodeReady || node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if owner := metav1.GetControllerOf(m); owner != nil {
		is.OwnerKind, is.OwnerName = owner.Kind, owner.Name
	}
	if OwnerAsked(m) {
		is.Owner = machines.Asked
		if ownerRefuses(m) {
			is.Owner = machines.CannotRemediate
		}
	}
	if c := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition); c != nil {
		is.RequestFailed, is.ProviderReports = failureOfOurs(c), !failureOfOurs(c)
		is.TemplateNotFound = c.Reason == clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason
	}
	return is
}

// ownerRefuses reports whether m was handed to its owner, and the owner will not replace it as things stand: it says so, or there is none.
// (Cluster API: the MachineSet and the KubeadmControlPlane have the same reason for that. What they put off they go on with by themselves.)
func ownerRefuses(m *clusterv1.Machine) bool {
	if !OwnerAsked(m) {
		return false
	}
	asked := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition)
	return asked.Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason || !owned(m)
}

// owned reports whether there is somebody who can replace m.
func owned(m *clusterv1.Machine) bool { return metav1.GetControllerOf(m) != nil }

// OwnerAsked reports whether the owner of m was asked to remediate it, and has not said that it has.
func OwnerAsked(m *clusterv1.Machine) bool {
	asked := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition)
	return asked != nil && asked.Status == metav1.ConditionFalse && failedBefore(m)
}

// askedWhileHealthy reports whether m was healthy since its owner was asked to remediate it, and the owner has not noticed that yet.
func askedWhileHealthy(m *clusterv1.Machine) bool {
	asked, called := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition), conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	return asked != nil && asked.Status == metav1.ConditionFalse && (called == nil || called.Status != metav1.ConditionFalse)
}

// markedRequested reports whether m says that there is a request for it, which a check made: for readers who may not read requests.
func markedRequested(m *clusterv1.Machine) bool {
	external := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition)
	return external != nil && external.Status == metav1.ConditionFalse && !failureOfOurs(external)
}

// about is what sentences about the check name.
func (w *observed) about(invalid *InvalidField) machines.About {
	is := machines.About{
		Namespace: w.check.Namespace, Name: w.check.Name, Cluster: w.check.Spec.ClusterName, Idle: w.cluster.UID == "" || w.mode == machines.BadSelector,
		Deleting: !w.check.DeletionTimestamp.IsZero(), ClusterDeleting: !w.cluster.DeletionTimestamp.IsZero(), ClusterPaused: clusterPaused(w.cluster),
		WatchFilter: w.filtered,
		Spelled:     machines.Spelled{MaxUnhealthy: mostUnhealthy(w.check), Range: w.check.Spec.Remediation.TriggerIf.UnhealthyInRange},
	}
	if value, annotated := w.check.Annotations[clusterv1.PausedAnnotation]; annotated && !claimed(w.check) {
		is.PausedBy = &value
	}
	if value, set := w.check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		is.Spelled.InFlight = &value
	}
	if value, set := w.check.Annotations[mendv1.StormCooldownAnnotation]; set {
		is.Spelled.Cooldown = &value
	}
	if wait, _ := SpareWaitOf(w.check); wait != nil && !w.check.Spec.Remediation.TemplateRef.IsDefined() {
		is.Spelled.SpareWait = cmp.Or(w.check.Annotations[mendv1.WaitForSpareTimeoutAnnotation], "1h")
	}
	if invalid != nil {
		is.InvalidField, is.InvalidWhy = invalid.Field, invalid.Err.Error()
	}
	is.Allowed = ptr.Deref(reportOf(w.check, clusterv1.MachineHealthCheckRemediationAllowedCondition), machines.Report{})
	is.Template = ptr.Deref(reportOf(w.check, mendv1.RemediationTemplateAvailable), machines.Report{})
	if w.selectorErr != nil {
		is.InvalidSelector = w.selectorErr.Error() + "; the operators are In, NotIn, Exists and DoesNotExist"
	}
	for _, err := range w.trouble {
		is.Trouble = append(is.Trouble, err.Error())
	}
	return is
}

// reportOf is the condition of that type; nil if there is none.
func reportOf(obj conditions.Getter, kind string) *machines.Report {
	c := conditionOf(obj, kind)
	if c == nil {
		return nil
	}
	return &machines.Report{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
}

// leftAloneBy are the annotations by which the user of m wants it left alone. (Cluster API: such a machine is no target, and not counted.)
func leftAloneBy(m *clusterv1.Machine) []string {
	var by []string
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, annotated := m.Annotations[annotation]; annotated {
			by = append(by, annotation)
		}
	}
	return by
}
