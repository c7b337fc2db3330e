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

// The reasons and causes of blockers that pages and answers treat differently.
const (
	NotActing            = "NotActing"
	MachineBeingDeleted  = "MachineBeingDeleted"
	AwaitsClusterAPI     = "AwaitsClusterAPI"
	WithinTimeout        = "WithinTimeout"
	RemediationUnderWay  = "RemediationUnderWay"
	OtherCheckRemediates = "OtherCheckRemediates"
	// NotJudged is the reason while the manager has written nothing about a machine yet.
	NotJudged         = "NotJudged"
	NotRead           = "NotRead"
	MissingPermission = rule.MissingPermission
	NoOwner           = "NoOwner"

	// NotServed: kubemend does not act on the kind.
	NotServed = "KindNotServed"
	// NoManager: no manager acts on the object.
	NoManager = "NoManager"
	// NodesUnread and MachineUnread are causes of blockers with the reason MissingPermission: the reader may not read the nodes of a
	// workload cluster, or the Machine of a node.
	NodesUnread   = "NodesUnread"
	MachineUnread = "MachineUnread"
	// ClusterSilent: the workload cluster did not answer the reader in time.
	ClusterSilent = "NoAnswer"
	// NotExplained: the check could not be explained, because something is missing that its controller reads.
	NotExplained = "CannotBeExplained"
)

// The reasons of steps that are not also reasons of blockers, conditions or power cycles.
const (
	RemediationStarts = "RemediationStarts"
	TimeoutExpires    = "TimeoutExpires"
	OwnerActs         = "OwnerActs"
	// RemediatorActs: the controller of the remediation request goes on.
	RemediatorActs = "RemediatorActs"
	// OtherControllerActs: another controller acts on the target, such as Cluster API core or the controller of an older check.
	OtherControllerActs = "OtherControllerActs"
	BeingDeleted        = "BeingDeleted"
	// Skipped: a user has annotated the target so that checks skip it.
	Skipped     = "Skipped"
	NotSelected = "NotSelected"
	// NoRule: the node is not Ready, and no rule of a check that selects it covers that.
	NoRule = "NoRuleMatches"
	// HostOutOfService: the host is marked unhealthy, so that no machine is put on it.
	HostOutOfService = "OutOfService"
	// LimitAllowsNone: the limit of the check allows none of its targets to be unhealthy.
	LimitAllowsNone = "LimitAllowsNone"
	NothingExpected = "NothingExpected"
	ReadAgain       = "ReadAgain"
	// CooldownEnds: the cooldown after a storm is over.
	CooldownEnds = "CooldownEnds"
	// ConfirmationAwaited: a user has to confirm that the node is healthy.
	ConfirmationAwaited = "ConfirmationAwaited"
	// NodeStaysAway: the node is gone, and its request is deleted.
	NodeStaysAway   = "NodeStaysAway"
	RequestsDeleted = "RequestsDeleted"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
	NoConnection               = "no connection: " // the error follows
)

// Silent reports whether why means that a cluster does not answer. Such a failed read says nothing about rights.
func Silent(why string) bool { return why == NoAnswer || strings.HasPrefix(why, NoConnection) }

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

// notExplained sets in a why c could not be explained: MissingPermission and the kind that the user may not read, or the reason of c.
func (c *Check) notExplained(a *Answer) {
	if a.Reason, a.Detail = c.Reason, c.ModeDetail; c.ModeDetail != "" {
		a.Reason = MissingPermission
	}
}

// KindNotServed says why kubemend acts on no object of a kind.
func KindNotServed(because string) string { return "kubemend does not serve the kind: " + because }

// NoManagerActs returns why none of managers acts on an object, and what a user can do. offs has the reasons of the managers that run.
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
	because, fix = "No manager of kubemend was found; a manager without a manager lease, "+
		"or without the binding of kubemend's packages, cannot be found",
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
