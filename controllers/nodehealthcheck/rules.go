package nodehealthcheck

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Beginnings of messages, in the words of medik8s, because documents of medik8s quote them.
const (
	skippedOn      = "Remediation skipped on node {node}: "
	skippedBecause = "Skipped remediation of node: {node}, because "
	quorumLoss     = "Skipping remediation of {node} for preventing control plane / etcd quorum loss, going to retry in a minute: "
	// clockAgain is how soon to check a node again while clocks differ, because no watch shows that a clock was corrected.
	clockAgain    = 30 * time.Second
	membersReturn = "the control plane can do without it"
)

// rules are applied in this order, in which their blockers are reported. A step starts exactly if no rule blocks it.
var rules = []Rule{
	{Reason: "RequestsUnread", asked: ofState, When: func(c *Case) bool { return len(c.Unseen) > 0 }},
	{Reason: NodeGone, asked: ofState, When: func(c *Case) bool { return len(c.Unseen) == 0 && !c.exists() }},
	{Reason: "NotJudged", asked: ofState, When: func(c *Case) bool { return c.is(health.Unknown) }}, // OpenShift terminates the node
	{Reason: NotUnhealthy, asked: ofState, When: func(c *Case) bool { return c.is(health.Healthy) }},
	{
		Reason: NotSelected, asked: ofSelection | beforeFirst, // a begun remediation goes on
		When:    func(c *Case) bool { return !c.Selected },
		Message: "The check does not select the node any more",
	},
	{
		Reason: "WithinTimeout", asked: beforeFirst | whileHeld,
		When:    func(c *Case) bool { return c.Verdict.State == health.Pending },
		Message: "{Its timeout of 5m0s has not expired: Node condition Ready is Unknown (NodeStatusUnknown)}", Why: (*Case).timeout,
		Until: func(c *Case) time.Time { return c.Verdict.Recheck },
	},
	{
		Reason: "ManagerClockWrong", Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.f.Policy.Misjudges(c.f.ClockAhead) },
		Message: skippedOn + "the clock of the manager differs from the API server's by more than the shortest duration of the check",
		Fix:     "find out from kubemend_clock_error_seconds which clock is wrong, and set it", EndsWhen: "the clocks agree",
		Again: func(c *Case) time.Time { return c.f.Now.Add(clockAgain) },
	},
	{
		Reason: "NodeExcluded", Event: skipped, asked: always,
		When: func(c *Case) bool {
			excluded, _ := c.Excluded()
			return excluded
		},
		Message:  skippedOn + "node has Exclude from Remediation label",
		Fix:      "remove the label " + nhcv1.ExcludeLabel + " from the node",
		EndsWhen: "the label " + nhcv1.ExcludeLabel + " is removed from the node",
	},
	{
		Reason: "NodeBeingDeleted", Event: skipped, asked: always, Quiet: true, // a remediation would work against the deletion
		When:    func(c *Case) bool { return c.f.Now.Before(c.stuckAt()) },
		Message: skippedOn + "it is being deleted", EndsWhen: "the Node is gone",
		Again: (*Case).stuckAt,
	},
	{
		Reason: "NodeDeletionStuck", Event: skipped, asked: always,
		When:    func(c *Case) bool { return !c.stuckAt().IsZero() && !c.f.Now.Before(c.stuckAt()) },
		Message: skippedOn + "it is being deleted for more than an hour, and kept by the finalizers {finalizers}",
		Why:     func(c *Case) string { return strings.Join(c.Object.Finalizers, ", ") },
		Fix:     "find out why the controllers of the finalizers {finalizers} do not remove them", EndsWhen: "the Node is gone",
	},
	{
		Reason: MachineUnread, Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.Machine != nil && c.Machine.Unread },
		Message: skippedOn + "its Machine could not be read",
	},
	{
		Reason: "ClusterPaused", Event: skipped, asked: always,
		When: func(c *Case) bool {
			m := c.Machine
			return m.there() && m.Cluster != nil && ptr.Deref(m.Cluster.Spec.Paused, false)
		},
		Object:  func(c *Case) rule.Ref { return c.Machine.cluster() },
		Message: skippedOn + "its Cluster is paused", Fix: "unpause {object}",
	},
	{
		Reason: "MachinePaused", Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.Machine.annotated(clusterv1.PausedAnnotation) },
		Object:  (*Case).machine,
		Message: skippedOn + "its Machine is paused by the annotation " + clusterv1.PausedAnnotation,
		Fix:     "remove the annotation from {object}",
	},
	{
		Reason: "MachineSkipped", Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.Machine.annotated(clusterv1.MachineSkipRemediationAnnotation) },
		Object:  (*Case).machine,
		Message: skippedOn + "its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation,
		Fix:     "remove the annotation from {object}",
	},
	{
		Reason: "MachineBeingDeleted", Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.Machine.there() && !c.Machine.Object.DeletionTimestamp.IsZero() },
		Object:  (*Case).machine,
		Message: skippedOn + "its Machine is being deleted",
	},
	{
		Reason: "LeaseTaken", Event: skipped, asked: always,
		When:    func(c *Case) bool { return c.Lease.held() },
		Message: skippedBecause + "node lease is already taken by {holder}", EndsWhen: "the lease that {holder} has on the node runs out",
		Why:   func(c *Case) string { return *c.Lease.Spec.HolderIdentity },
		Until: func(c *Case) time.Time { return c.Lease.expiry() },
		Again: func(c *Case) time.Time {
			return health.Earliest(c.f.Now.Add(leaseTaken), c.Lease.expiry().Add(time.Millisecond))
		},
	},
	{
		Reason: "OverlappingCheck", Event: skipped, asked: beforeFirst | ofNodeAlone,
		When: func(c *Case) bool { return c.Machine.there() && c.Machine.WatchedBy != "" },
		Object: func(c *Case) rule.Ref {
			return rule.Ref{Kind: "MachineHealthCheck", Namespace: c.Machine.Object.Namespace, Name: c.Machine.WatchedBy}
		},
		Message: skippedBecause + "{object} watches its Machine {machine}", Why: (*Case).machineName,
		Fix: "let only one of the two checks watch it: take it out of the selector of {object}, or pause that one",
	},
	{
		Reason: "MachineBeingUpdated", Event: skipped, asked: beforeFirst | ofNodeAlone,
		When: func(c *Case) bool {
			_, holds := c.Machine.updatingUntil(c.f.Now)
			return holds
		},
		Object:  (*Case).machine,
		Message: skippedBecause + "its Machine {machine} is being updated in place", Why: (*Case).machineName,
		EndsWhen: "the update of its Machine is over, or has made no progress for two hours",
		Until: func(c *Case) time.Time {
			until, _ := c.Machine.updatingUntil(c.f.Now)
			return until
		},
		Again: func(c *Case) time.Time {
			if c.Machine.Serviced { // no watch shows the end of the firmware update
				return inAMinute(c)
			}
			return time.Time{}
		},
	},
	{
		Reason: TemplateOfMachines, Event: skipped, asked: ofStep,
		When:    func(c *Case) bool { return c.unsuitable() == TemplateOfMachines },
		Object:  func(c *Case) rule.Ref { return c.template().ref() },
		Message: skippedBecause + "{HostRemediation remediates Machines of Cluster API, and this node has no Machine in this cluster}",
		Why:     (*Case).whyUnsuitable, Fix: "have the check name a template that can be used for this node",
	},
	{
		Reason: TemplateElsewhere, Event: skipped, asked: ofStep,
		When:    func(c *Case) bool { return c.unsuitable() == TemplateElsewhere },
		Object:  func(c *Case) rule.Ref { return c.template().ref() },
		Message: skippedBecause + "{HostRemediationTemplate must be in the default namespace, that of the Machine. ...}",
		Why:     (*Case).whyUnsuitable, Fix: "have the check name a template in the namespace of the Machine",
	},
	{
		Reason: "OrphanedRequest", Event: skipped, asked: ofStep,
		When:     func(c *Case) bool { return len(c.Orphaned) > 0 && c.template() != nil },
		Object:   func(c *Case) rule.Ref { return RefOf(c.Orphaned[0]) },
		Message:  skippedBecause + "{object}, orphaned by a deleted NodeHealthCheck of the same name, is not gone yet",
		EndsWhen: "{object} is gone",
		Again:    inAMinute,
	},
	{
		Reason: "ForeignRequest", Event: skipped, asked: ofStep,
		When:    func(c *Case) bool { return c.foreign() != nil },
		Object:  func(c *Case) rule.Ref { return RefOf(c.foreign()) },
		Message: skippedBecause + "{object} exists and was not made by this NodeHealthCheck",
		Fix:     "delete {object} when it is not needed any more", EndsWhen: "{object} is gone",
		Again: inAMinute,
	},
	{
		Reason: "RequestOfOtherTemplate", Event: skipped, asked: ofStep,
		When:   func(c *Case) bool { return c.otherStep() != nil },
		Object: func(c *Case) rule.Ref { return c.otherStep().ref() },
		Message: skippedBecause + "{object} exists and was made from another template: " +
			"using multiple templates of same kind is not supported for this template",
		Fix: "have the steps of the check name templates of different kinds",
	},
	{
		Reason: CheckDisabled, asked: ofCheck | beforeFirst | beforeNext,
		When:    func(c *Case) bool { return c.p.Disabled.Is() },
		Message: "{message of Disabled}", Why: func(c *Case) string { return c.p.Disabled.Message }, Fix: "{what enables it}",
		Again: func(c *Case) time.Time { return c.f.Retry },
	},
	{
		Reason: "MissingPermission", asked: ofCheck | beforeFirst | beforeNext,
		When:    func(c *Case) bool { return c.unreadTemplate() != nil && c.unreadTemplate().Unread },
		Message: "{HostRemediations} and their templates could not be read with your rights, and the manager may read them",
		Why:     func(c *Case) string { return c.unreadTemplate().Request.Kind + "s" },
		Fix:     "Ask as a user who may read {HostRemediations} and their templates", Detail: "{HostRemediations}",
	},
	{
		Reason: "TemplateUnreadable", asked: ofCheck | beforeFirst | beforeNext,
		When:    func(c *Case) bool { return c.unreadTemplate() != nil && !c.unreadTemplate().Unread },
		Message: "A remediation template could not be read for the moment",
		Again:   func(c *Case) time.Time { return c.f.Retry },
	},
	{
		Reason: Paused, asked: ofCheck | beforeFirst | beforeNext,
		When:    func(c *Case) bool { return len(c.f.Check.Spec.PauseRequests) > 0 },
		Message: "Postponing potential remediations because of pause requests",
		Fix:     "remove the entries of spec.pauseRequests: {its entries}", EndsWhen: "spec.pauseRequests is empty",
		Why: func(c *Case) string { return strings.Join(c.f.Check.Spec.PauseRequests, ", ") },
	},
	{
		Reason: Upgrading, asked: ofCheck | beforeFirst | beforeNext,
		When:    func(c *Case) bool { return c.upgrade.text != "" },
		Object:  func(c *Case) rule.Ref { return c.upgrade.by },
		Message: PostponedByUpgrade + ": {Cluster default/c1 is rolling out}", EndsWhen: "the upgrade is over",
		Why: func(c *Case) string { return c.upgrade.text },
	},
	{
		Reason: "KubeletsAwaited", asked: ofCheck | beforeFirst | beforeNext,
		When:     func(c *Case) bool { return c.awaitsKubelets },
		Message:  "Kubelets have not had time to report since the manager was started, or since the API server could be reached again",
		EndsWhen: "kubelets have had time to report", Until: func(c *Case) time.Time { return c.settled },
	},
	{
		Reason: "TooManyUnhealthy", asked: ofCheck | beforeFirst, // begun remediations go on
		When: func(c *Case) bool { return c.p.Grant.ShortCircuited() },
		Message: "Skipped remediation because the number of healthy nodes selected by the selector is {healthy} and should equal or " +
			"exceed {minimum} ({total} nodes: {healthy} healthy, {2 unhealthy, 1 pending, 0 recovering})",
		Why:      (*Case).notHealthy,
		EndsWhen: "at least {minimum} of {total} nodes are healthy (now {healthy})",
	},
	{
		Reason: "StormRecovery", asked: ofCheck | beforeFirst,
		When:    func(c *Case) bool { return c.p.Storm.Blocks },
		Message: "Storm recovery active: skipping creation of new remediations",
		Until:   func(c *Case) time.Time { return c.p.Storm.Recheck }, EndsWhen: "{the cooldown after the storm is over}",
		Why: func(c *Case) string {
			if c.p.Storm.Recheck.IsZero() { // the storm goes on
				return "the storm and the cooldown after it are over"
			}
			return StormEnds
		},
	},
	placeless(place.PoliciesUnread, "The manager has not yet read all RemediationPolicies and what they count"),
	placeless(place.HeldByOverride, "It is held by alice: switch swap (RemediationOverride fleet/hold-b07-x7k2p)"),
	placeless(place.PolicyInvalid, "RemediationPolicy fleet/racks is invalid, so nothing that it selects is remediated: spec.windows: why"),
	placeless(place.ClosedWindow, "The windows of RemediationPolicy fleet/racks allow no remediation to begin now"),
	placeless(place.ObservedByPolicy, "RemediationPolicy fleet/racks has mode Observe, so no new remediation of its targets begins"),
	placeless(place.NodeInMaintenance, "Its node is in maintenance: condition MaintenanceInProgress", "the maintenance is over"),
	placeless(place.NodeShuttingDown, "Its node is being shut down: condition GracefulNodeShutdownInProgress", "the node is up again"),
	placeless(place.ScaleDownPlanned, "The cluster autoscaler is about to delete its node", "it deletes the node, or after half an hour"),
	placeless(place.ClusterRollingOut, "Its Cluster is rolling out: condition RollingOut", "the rollout is over"),
	placeless(place.GroupUnavailable, "The limit rack of RemediationPolicy fleet/racks in b07 is reached: 12 of 40 are unavailable"),
	placeless(place.GroupInFlight, "The limit rack of RemediationPolicy fleet/racks in b07 is reached: 2 of at most 2 are under way"),
	placeless(place.GroupRate, "The limit rack of RemediationPolicy fleet/racks in b07 is reached: 6 have begun within an hour"),
	placeless(place.SlowStart, "The limit rack of RemediationPolicy fleet/racks in b07 is reached: 1 remediations are not proven yet"),
	{
		Reason: "ControlPlaneUnread", Event: skipped, asked: ofControlPlane,
		When:    func(c *Case) bool { return c.f.ControlPlane != nil && c.f.ControlPlane.Unread != "" },
		Message: quorumLoss + "the control plane could not be read: {error}", Why: func(c *Case) string { return c.f.ControlPlane.Unread },
		EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: "ControlPlaneNotSeen", Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool {
			return c.f.ControlPlane == nil && c.mayBegin() || c.objection(controlplane.NotSeen, controlplane.NotFirst) != nil
		},
		Message: quorumLoss + "it is not known yet which members of the control plane are alive", EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: "AnotherBeingRemediated", Event: skipped, asked: ofControlPlane,
		When:    func(c *Case) bool { return c.disrupted() != nil },
		Object:  func(c *Case) rule.Ref { return rule.Ref{Kind: "Node", Name: c.disrupted().Member} },
		Message: quorumLoss + "{name} is being remediated ({its request})", Why: func(c *Case) string { return c.disrupted().By },
		EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: "MajorityAtRisk", Event: skipped, asked: ofControlPlane,
		When:    func(c *Case) bool { return c.objection(controlplane.MajorityAtRisk) != nil },
		Message: quorumLoss + "without it {1 of 3 control-plane nodes are healthy, and 2} are needed",
		Why: func(c *Case) string {
			o := c.objection(controlplane.MajorityAtRisk)
			return fmt.Sprintf("%d of %d control-plane nodes are healthy, and %d", o.Votes, o.Total, o.Needed)
		},
		EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: "NotFirstInQueue", Event: skipped, asked: ofControlPlane,
		When:    func(c *Case) bool { return c.head != nil && c.head != c.Node },
		Object:  func(c *Case) rule.Ref { return rule.Ref{Kind: "Node", Name: c.head.Name} },
		Message: quorumLoss + "{name} is ahead in the queue", EndsWhen: "the remediation of {name} is over", Again: inAMinute,
	},
	{
		Reason: EtcdUnread, Event: skipped, asked: ofControlPlane,
		When:    func(c *Case) bool { return c.etcd() == EtcdUnread },
		Message: quorumLoss + "objects in namespace openshift-etcd could not be read", EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: EtcdBudgets, Event: skipped, asked: ofControlPlane,
		When:     func(c *Case) bool { return c.etcd() == EtcdBudgets },
		Message:  quorumLoss + "there are {number} PodDisruptionBudgets in openshift-etcd instead of one",
		Why:      func(c *Case) string { return strconv.Itoa(c.f.ControlPlane.Etcd.Budgets) },
		EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: EtcdAtRisk, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.etcd() == EtcdAtRisk },
		Object: func(c *Case) rule.Ref {
			return rule.Ref{Kind: "PodDisruptionBudget", Namespace: "openshift-etcd", Name: c.f.ControlPlane.Etcd.Budget}
		},
		Message: quorumLoss + "PodDisruptionBudget {name} allows no disruption, and guard pod {pod} is ready",
		Why:     func(c *Case) string { return c.f.ControlPlane.Etcd.Guards[c.Name] }, EndsWhen: membersReturn, Again: inAMinute,
	},
	{
		Reason: "RequestDeleted", asked: beforeNext,
		When: func(c *Case) bool { return c.Loop.Times <= 1 && c.f.Now.Before(c.remadeAt()) },
		Message: "The request for node {node} was deleted{why}. kubemend makes it again, at the earliest one minute after it was made " +
			"first",
		Why: func(c *Case) string {
			if c.f.Now.Before(c.LoopAwaited) {
				return "; the manager has just started and does not know yet how often that has happened before"
			}
			return " a moment ago"
		},
		EndsWhen: "a minute has passed since it was made first", Until: (*Case).remadeAt,
	},
	{
		Reason: "RemediationLoop", Event: skipped, asked: beforeNext,
		When: func(c *Case) bool { return c.Loop.Times > 1 && c.f.Now.Before(c.remadeAt()) },
		Message: skippedBecause + "its request was deleted again and again, {3 times since 12:00}: kubemend waits longer before each " +
			"new request",
		Why: func(c *Case) string {
			return fmt.Sprintf("%d times since %s", c.Loop.Times, c.Loop.Since.UTC().Format(time.RFC3339))
		},
		Fix:      "find out why the node does not become healthy by its remediation, and why its remediator deletes the requests",
		EndsWhen: "its wait is over", Until: (*Case).remadeAt,
	},
	{Reason: NoTemplate, asked: ofAnswer, When: func(c *Case) bool { return len(c.f.Templates) == 0 }},
	{
		Reason: NoTemplateLeft, Event: nhcv1.EventNoTemplateLeft, asked: ofAnswer,
		When: func(c *Case) bool { return len(c.f.Templates) > 0 && c.answer.Do == escalation.Exhausted },
		Message: "Remediation timed out, and no template left to try. " +
			"didn't find a template to use for NHC {check} and node {node}",
		Why: func(c *Case) string { return c.f.Check.Name },
		Fix: "find out what is wrong with the node; its requests end when it is healthy",
	},
	{
		Reason: "RequestBeingDeleted", Event: skipped, asked: ofAnswer, // a request of an earlier failure, in an escalation
		When:    func(c *Case) bool { return c.waits() && c.stillDeleted() != nil && !c.answer.Recheck.IsZero() },
		Object:  func(c *Case) rule.Ref { return c.stillDeleted().ref() },
		Message: skippedBecause + "{object} of the last time is still being deleted: its remediator has not released it",
		Until:   func(c *Case) time.Time { return c.answer.Recheck }, EndsWhen: "{object} is gone, or its time is over",
	},
	{
		Reason: "RequestBeingDeleted", Event: skipped, asked: ofAnswer, // the same without an escalation: no timeout ends it
		When:    func(c *Case) bool { return c.waits() && c.stillDeleted() != nil && c.answer.Recheck.IsZero() },
		Object:  func(c *Case) rule.Ref { return c.stillDeleted().ref() },
		Message: skippedBecause + "{object} of the last time is still being deleted: its remediator has not released it",
		Fix:     "find out why its remediator keeps its finalizers",
	},
	{Reason: "RemediationInProgress", asked: ofAnswer, When: func(c *Case) bool { return c.waits() && c.stillDeleted() == nil }},
}
