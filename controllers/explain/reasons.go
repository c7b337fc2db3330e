package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// The reasons of blockers of machines on which pages and answers depend.
const (
	NotActing            = "NotActing"
	MachineBeingDeleted  = "MachineBeingDeleted"
	AwaitsClusterAPI     = "AwaitsClusterAPI"
	WithinTimeout        = "WithinTimeout"
	RemediationUnderWay  = "RemediationUnderWay"
	OtherCheckRemediates = "OtherCheckRemediates"
	// NotJudged is that the manager has written nothing on a machine yet.
	NotJudged         = "NotJudged"
	NotRead           = "NotRead"
	MissingPermission = rule.MissingPermission
)

// The reasons of steps that are not reasons of blockers, conditions or power cycles.
const (
	// RemediationStarts is that kubemend begins a remediation.
	RemediationStarts = "RemediationStarts"
	// TimeoutExpires is that the target counts as unhealthy.
	TimeoutExpires = "TimeoutExpires"
	// OwnerActs is that the owner of the machine replaces it.
	OwnerActs = "OwnerActs"
	// NoOwner is that the machine has no owner that could replace it.
	NoOwner = "NoOwner"
	// RemediatorActs is that the controller of the remediation request goes on.
	RemediatorActs = "RemediatorActs"
	// OtherControllerActs is that another controller acts on the target: Cluster API core, or the one of an older check.
	OtherControllerActs = "OtherControllerActs"
	// BeingDeleted is that a check is being deleted.
	BeingDeleted = "BeingDeleted"
	// Skipped is that a user has annotated the target.
	Skipped = "Skipped"
	// NotSelected is that no check selects the object.
	NotSelected = "NotSelected"
	// NoRule is that a node is not Ready, and no check that selects it looks at that.
	NoRule = "NoRuleMatches"
	// HostOutOfService is that a host is marked unhealthy, and no machine is put on it.
	HostOutOfService = "OutOfService"
	// LimitAllowsNone is that the limit of a check allows none of its targets to be unhealthy.
	LimitAllowsNone = "LimitAllowsNone"
	// NothingExpected is that nothing happens until something changes.
	NothingExpected = "NothingExpected"
	// ReadAgain is that what could not be read is read again.
	ReadAgain = "ReadAgain"
	// CooldownEnds is that the cooldown after a storm is over.
	CooldownEnds = "CooldownEnds"
	// ConfirmationAwaited is that a user has to confirm that a node is healthy.
	ConfirmationAwaited = "ConfirmationAwaited"
	// NodeStaysAway is that the request of a node that is gone is deleted.
	NodeStaysAway = "NodeStaysAway"
	// RequestsDeleted is that kubemend deletes the requests of a target.
	RequestsDeleted = "RequestsDeleted"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
	NoConnection               = "no connection: " // and the error
)

// Silent reports whether it was read in vain, why so, since a cluster does not answer: that says nothing about rights.
func Silent(why string) bool { return why == NoAnswer || strings.HasPrefix(why, NoConnection) }

// The reasons of what blocks everything of an object.
const (
	// NotServed is that of a kind that kubemend does not act on.
	NotServed = "KindNotServed"
	// NoManager is that of an object that no manager acts on.
	NoManager = "NoManager"
	// NodesUnread and MachineUnread are the causes of blockers with the reason MissingPermission: the reader may not read the nodes of a
	// workload cluster, or the Machine of a node.
	NodesUnread = "NodesUnread"
	// ClusterSilent is that a workload cluster did not answer the reader in time.
	ClusterSilent = "NoAnswer"
	MachineUnread = "MachineUnread"
	// CannotBeExplained is the reason of a check that could not be explained, since something is missing that its controller reads.
	NotExplained = "CannotBeExplained"
)

// Unexplained describes a check that could not be explained.
func Unexplained(check Ref, why error) Check {
	c := Check{
		Check: cliv1.Check{Reference: check, Mode: cliv1.ModeUnknown, Next: Step{Reason: NotExplained, Text: "Ask again", Manual: true},
			Reason: NotExplained, Message: "It could not be explained: " + why.Error()},
	}
	if status := apierrors.APIStatus(nil); apierrors.IsForbidden(why) && errors.As(why, &status) && status.Status().Details != nil {
		details := status.Status().Details
		c.ModeDetail = strings.TrimSuffix(details.Kind+"."+details.Group, ".")
		c.Next.Text = "Ask as a user who may read " + c.ModeDetail
	}
	return c
}

// notExplained sets what keeps c from being explained: what the user may not read, if it is that.
func (c *Check) notExplained(a *Answer) {
	if a.Reason, a.Detail = c.Reason, c.ModeDetail; c.ModeDetail != "" {
		a.Reason = MissingPermission
	}
}

// KindNotServed is why nothing of a kind is acted on.
func KindNotServed(because string) string { return "kubemend does not serve the kind: " + because }

// NoManagerActs is why none of managers acts on an object, and what a user can do: offs are the reasons of those that run, if any does.
func NoManagerActs(managers []managerlease.Manager, offs []managerlease.Off) (because, fix string) {
	var reasons, fixes []string
	for _, off := range offs {
		if off.Because != "" {
			reasons = append(reasons, off.Because)
		}
		if off.Fix != "" && !slices.Contains(fixes, off.Fix) {
			fixes = append(fixes, off.Fix)
		}
	}
	if len(reasons) > 0 {
		return "No manager of kubemend would act on it: " + strings.Join(reasons, "; "), strings.Join(fixes, ", or ")
	}
	because, fix = "No manager of kubemend has announced itself; one that keeps no manager lease, or has no binding of kubemend's packages, is not seen",
		"Start the manager of kubemend, or see in its log why it keeps no lease"
	var gone time.Time
	for i := range managers {
		if m := &managers[i]; !m.Alive && !m.Gone.Before(gone) {
			gone, fix = m.Gone, "Start the manager of kubemend"
			because = fmt.Sprintf("The manager of kubemend in namespace %s does not run", m.Namespace)
			if !gone.IsZero() {
				because = fmt.Sprintf("The manager of kubemend in namespace %s has not run since %s", m.Namespace, stamp(gone))
			}
		}
	}
	return because, fix
}
