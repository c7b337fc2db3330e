package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The reasons of blockers of machines on which pages and answers depend.
const (
	NotActing           = string(machines.NotActing)
	MachineBeingDeleted = string(machines.MachineDeleting)
	AwaitsClusterAPI    = string(machines.AwaitsClusterAPI)
	WithinTimeout       = string(machines.WithinTimeout)
	RemediationUnderWay = string(machines.PowerCycleInProgress)
	MissingPermission   = rule.MissingPermission
)

// MachineHealthCheck explains the plan for facts.
func MachineHealthCheck(facts *machines.Facts, plan *machines.Plan) *Check {
	check := &Check{Check: cliv1.Check{
		Reference: Ref{Kind: "MachineHealthCheck", Namespace: facts.Check.Namespace, Name: facts.Check.Name}, Cluster: facts.Check.Spec.ClusterName,
		Limits: cliv1.Limits{Spec: machines.LimitText(facts.Check)},
	}}
	if check.Mode, check.ModeMessage, check.ModeDetail = facts.Acting(); check.Mode == Acting {
		check.ModeDetail = ""
	}
	if facts.Idle() {
		if facts.Mode == machines.NoCluster || facts.Mode == machines.BadSelector {
			check.Reason, check.Message = plan.Allowed.Reason, plan.Allowed.Message
		}
		check.Next = idleNext(facts)
		return check
	}
	check.Counts, check.CountedByStatus = plan.Population, facts.Counted != nil
	for _, err := range facts.Trouble {
		check.ReadErrors = append(check.ReadErrors, err.Error())
	}
	spares := slices.IndexFunc(plan.Conditions, func(cond metav1.Condition) bool { return cond.Type == mendv1.SpareHostAvailable })
	if plan.Allowed.Message != "" {
		check.Reason, check.Message = plan.Allowed.Reason, plan.Allowed.Message
	} else if spares >= 0 {
		check.Reason, check.Message = plan.Conditions[spares].Reason, plan.Conditions[spares].Message
	}
	check.SetLimits(facts.Limits, plan.Grant.Remaining)
	if reach := plan.Reach; reach.Status != "True" {
		check.NodesUnknown = &cliv1.NodesUnknown{Reason: reach.Reason, Since: cliv1.Moment(reach.LastTransitionTime.Time), Message: reach.Message}
	}
	for _, d := range plan.Decisions {
		check.Targets = append(check.Targets, machineTarget(facts, plan, d))
	}
	for _, machine := range facts.Skipped {
		check.Targets = append(check.Targets, leftAlone(facts, machine))
	}
	slices.SortFunc(check.Targets, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	check.outageFirst()
	check.Next = Soonest(check.Targets)
	return check
}

// outageFirst has a person see to the outage that keeps c from judging machines, before what the limit makes of those that nobody can see.
func (c *Check) outageFirst() {
	unjudged := slices.IndexFunc(c.Targets, func(target Target) bool {
		return slices.ContainsFunc(target.Blockers, func(b Blocker) bool { return b.Fix == target.Next.Text && c.PartOf(&b) == SameAsNodesUnknown })
	})
	for i := range c.Targets {
		if next := &c.Targets[i].Next; unjudged >= 0 && next.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
			*next = c.Targets[unjudged].Next
		}
	}
}

// idleNext is the next step of a check whose machines are not read.
func idleNext(facts *machines.Facts) Step {
	switch {
	case !facts.Check.DeletionTimestamp.IsZero():
		return Step{Reason: BeingDeleted, Text: "the check is deleted"}
	case facts.WatchFilter != "":
		return Step{}
	case facts.Mode == machines.NoCluster:
		return Step{Reason: mendv1.ClusterNotFoundReason, Manual: true, Text: fmt.Sprintf(
			"make Cluster %s, or a check of another one in place of this: spec.clusterName cannot be changed", facts.Check.Spec.ClusterName)}
	case facts.Mode == machines.BadSelector:
		return Step{Reason: mendv1.InvalidSelectorReason, Manual: true, Text: "correct spec.selector"}
	}
	if person := facts.Enable(); person != "" {
		return Step{Reason: NotActing, Text: person, Manual: true}
	}
	return Step{}
}

// machineTarget explains the decision about one machine.
func machineTarget(facts *machines.Facts, plan *machines.Plan, d *machines.Decision) Target {
	machine, verdict := d.Target, d.Verdict
	target := Target{Class: d.Class(), Findings: Findings(verdict, facts.Now), Target: cliv1.Target{
		Reference: Ref{Kind: "Machine", Namespace: facts.Check.Namespace, Name: machine.Name}, Node: machine.Health.NodeName,
		State: States[verdict.State], Ignored: ignoredFindings(verdict), Action: machineAction(facts, machine), StartsNow: d.Starts(),
		InFlight: d.InFlight, Message: remediatorsReport(facts, machine),
	}}
	if verdict.State == health.Starting {
		target.Startup = startup(facts, plan, machine)
	}
	if request := machine.Request; request != nil {
		target.Requests = []Ref{{Kind: facts.Template.Kind, Namespace: facts.Check.Namespace, Name: request.Name}}
		target.InFlightSince = cliv1.Moment(request.CreationTimestamp.Time)
	} else if d.InFlight {
		asked := machines.ConditionOf(machine, machines.OwnerRemediated)
		if facts.Template.Unread && asked == nil {
			asked = machines.ConditionOf(machine, machines.ExternallyRemediated)
		}
		target.InFlightSince = cliv1.Moment(machines.Since(asked))
	}
	if target.InFlight && machines.OwnerOf(machine.Machine) != machines.NotAsked {
		answer := machines.OwnerAnswer(machine.Machine)
		target.Deferred = answer == clusterv1.MachineSetMachineRemediationDeferredReason
		target.Refused = answer == clusterv1.MachineSetMachineCannotBeRemediatedReason
	}
	target.owned(facts, machine)
	if verdict.State != health.Healthy || machines.Deleting(machine.Machine) { // else nothing is to start
		for i := range d.Blockers {
			if d.Blockers[i].Reason != "" {
				target.Blockers = append(target.Blockers, d.Blockers[i].Blocker)
			}
		}
	}
	target.Next = machineNext(facts, d, &target)
	return target
}

// owned adds what the owner of a machine has to do with its remediation.
func (t *Target) owned(facts *machines.Facts, machine *machines.Target) {
	t.OwnerAsked = t.InFlight && (machine.Request == nil && !facts.Template.Unread || machines.OwnerOf(machine.Machine) != machines.NotAsked)
	owner := metav1.GetControllerOf(machine)
	if t.Owner = "its owner"; owner != nil {
		t.Owner = owner.Kind + " " + owner.Name
	}
	if t.Remediator = facts.Template.Kind; !facts.Template.External {
		t.Remediator = t.Owner
	}
	if report := machines.ConditionOf(machine, machines.OwnerRemediated); report != nil && t.OwnerAsked {
		t.OwnerReason = report.Reason
	}
}

// leftAlone explains a machine that its user wants left alone.
func leftAlone(facts *machines.Facts, machine *machines.Target) Target {
	annotations := machines.LeftAloneBy(machine.Machine)
	target := Target{
		Target: cliv1.Target{
			Reference: Ref{Kind: "Machine", Namespace: facts.Check.Namespace, Name: machine.Name}, Node: machine.Health.NodeName,
			State: cliv1.StateSkipped,
		},
		Next: Step{Reason: Skipped, Manual: true,
			Text: fmt.Sprintf("if it is to be judged again, remove the annotation %s from the machine", strings.Join(annotations, " and "))},
	}
	if len(annotations) > 0 {
		target.Skipped = MachineAnnotated(annotations[0])
	}
	return target
}

// machineAction is what is done about a machine when it is unhealthy.
func machineAction(facts *machines.Facts, machine *machines.Target) *cliv1.Action {
	action := &cliv1.Action{Kind: cliv1.RequestOwnerRemediation, Message: facts.Action(machine.Machine)}
	if facts.Template.External {
		action.Kind = cliv1.CreateRemediationRequest
		action.Target = &Ref{Kind: facts.Template.TemplateKind, Namespace: machine.Namespace, Name: facts.Template.Name}
	} else if owner := metav1.GetControllerOf(machine); owner != nil {
		action.Target = &Ref{Kind: owner.Kind, Namespace: machine.Namespace, Name: owner.Name}
	}
	return action
}

// remediatorsReport is what the remediators of the machine report: the provider of the requests, and the owner, which may have been asked.
func remediatorsReport(facts *machines.Facts, machine *machines.Target) string {
	kinds := []string{machines.ExternallyRemediated, machines.OwnerRemediated}
	if !facts.Template.External {
		kinds = kinds[1:]
	}
	var texts []string
	for _, kind := range kinds {
		report := machines.ConditionOf(machine, kind)
		if report == nil {
			continue
		}
		text := fmt.Sprintf("%s=%s (%s)", report.Type, report.Status, report.Reason)
		if message := strings.TrimPrefix(report.Message, "* "); message != "" {
			text += ": " + message
		}
		texts = append(texts, strings.TrimSuffix(text, "."))
	}
	return strings.Join(texts, "; ")
}

// startup are the moments that have happened of those of which the latest is from when on the first node is waited for.
func startup(facts *machines.Facts, plan *machines.Plan, machine *machines.Target) []cliv1.Milestone {
	var reached time.Time
	if plan.Reach.Reason == mendv1.ReachableAgainReason {
		reached = plan.Reach.LastTransitionTime.Time
	}
	happened := make([]cliv1.Milestone, 0, 6)
	for _, start := range []struct {
		what string
		at   time.Time
	}{
		{"the machine was created", machine.CreationTimestamp.Time},
		{"the control plane was initialized", machines.Since(machines.ConditionTrue(facts.Cluster, clusterv1.ClusterControlPlaneInitializedCondition))},
		{"the infrastructure of the cluster became ready",
			machines.Since(machines.ConditionTrue(facts.Cluster, clusterv1.ClusterInfrastructureReadyCondition))},
		{"the infrastructure of the machine became ready", machines.Since(machines.ConditionTrue(machine, clusterv1.MachineInfrastructureReadyCondition))},
		{"the workload cluster could be reached again", reached},
		{"Cluster API took the machine up again after a pause", machine.Health.Resumed},
	} {
		if !start.at.IsZero() {
			happened = append(happened, cliv1.Milestone{Time: metav1.NewTime(start.at), Message: start.what})
		}
	}
	last := 0
	for i := range happened {
		if happened[i].Time.After(happened[last].Time.Time) {
			last = i
		}
	}
	if len(happened) > 0 {
		happened[last].Latest = true
	}
	return happened
}
