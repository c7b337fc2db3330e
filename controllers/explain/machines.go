package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	about := &facts.About
	check := &Check{Check: cliv1.Check{
		Reference: Ref{Kind: "MachineHealthCheck", Namespace: about.Namespace, Name: about.Name}, Cluster: about.Cluster,
		Limits: cliv1.Limits{Spec: about.Spelled.String()},
	}}
	if check.Mode, check.ModeMessage, check.ModeDetail = facts.Acting(); check.Mode == Acting {
		check.ModeDetail = ""
	}
	if about.Idle {
		if facts.Mode == machines.NoCluster || facts.Mode == machines.BadSelector {
			check.Reason, check.Message = plan.Allowed.Reason, plan.Allowed.Message
		}
		check.Next = idleNext(facts)
		return check
	}
	check.Counts, check.CountedByStatus, check.ReadErrors = plan.Population, facts.Counted != nil, about.Trouble
	spares := slices.IndexFunc(plan.Conditions, func(cond machines.Condition) bool { return cond.Type == mendv1.SpareHostAvailable })
	if plan.Allowed.Message != "" {
		check.Reason, check.Message = plan.Allowed.Reason, plan.Allowed.Message
	} else if spares >= 0 {
		check.Reason, check.Message = plan.Conditions[spares].Reason, plan.Conditions[spares].Message
	}
	check.limit(facts.Limits, plan.Grant.Remaining)
	if reach := plan.Reach; reach.Status != "True" {
		check.NodesUnknown = &cliv1.NodesUnknown{Reason: reach.Reason, Since: cliv1.Moment(reach.Since), Message: reach.Message}
	}
	for _, d := range plan.Decisions {
		check.Targets = append(check.Targets, machineTarget(facts, plan, d))
	}
	for _, machine := range facts.Skipped {
		check.Targets = append(check.Targets, leftAlone(facts, machine))
	}
	slices.SortFunc(check.Targets, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	check.Next = Soonest(check.Targets)
	return check
}

// idleNext is the next step of a check whose machines are not read.
func idleNext(facts *machines.Facts) Step {
	switch {
	case facts.About.Deleting:
		return Step{Reason: BeingDeleted, Text: "the check is deleted"}
	case facts.About.WatchFilter != "":
		return Step{}
	case facts.Mode == machines.NoCluster:
		return Step{Reason: mendv1.ClusterNotFoundReason, Manual: true, Text: fmt.Sprintf(
			"make Cluster %s, or a check of another one in place of this: spec.clusterName cannot be changed", facts.About.Cluster)}
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
		Reference: Ref{Kind: "Machine", Namespace: facts.About.Namespace, Name: machine.Name}, Node: machine.Health.NodeName,
		State: states[verdict.State], Ignored: ignoredFindings(verdict), Action: machineAction(facts, machine), StartsNow: d.Starts(),
		InFlight: d.InFlight, Message: remediatorsReport(facts, machine),
	}}
	if verdict.State == health.Starting {
		target.Startup = startup(facts, plan, machine)
	}
	if request := machine.RequestFacts; request != nil {
		target.Requests = []Ref{{Kind: facts.Template.Kind, Namespace: facts.About.Namespace, Name: request.Name}}
		target.InFlightSince = cliv1.Moment(request.Created)
	} else if d.InFlight {
		asked := machine.OwnerReport
		if facts.Template.Unread && asked == nil {
			asked = machine.ProviderReport
		}
		if asked != nil {
			target.InFlightSince = cliv1.Moment(asked.Since)
		}
	}
	target.Deferred, target.Refused = target.InFlight && machine.PutOff(), target.InFlight && machine.Refused()
	target.owned(facts, machine)
	if verdict.State != health.Healthy || machine.Deleting { // else nothing is to start
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
	t.OwnerAsked = t.InFlight && (machine.RequestFacts == nil && !facts.Template.Unread || machine.Owner != machines.NotAsked)
	if t.Owner = "its owner"; machine.OwnerKind != "" {
		t.Owner = machine.OwnerKind + " " + machine.OwnerName
	}
	if t.Remediator = facts.Template.Kind; !facts.Template.External {
		t.Remediator = t.Owner
	}
	t.Ownerless = machine.OwnerKind == "" && (t.OwnerAsked || t.StartsNow && !facts.Template.External)
	if machine.OwnerReport != nil && t.OwnerAsked {
		t.OwnerReason = machine.OwnerReport.Reason
	}
}

// leftAlone explains a machine that its user wants left alone.
func leftAlone(facts *machines.Facts, machine *machines.Target) Target {
	target := Target{
		Target: cliv1.Target{
			Reference: Ref{Kind: "Machine", Namespace: facts.About.Namespace, Name: machine.Name}, Node: machine.Health.NodeName,
			State: cliv1.StateSkipped,
		},
		Next: Step{Reason: Skipped, Manual: true,
			Text: fmt.Sprintf("if it is to be judged again, remove the annotation %s from the machine", strings.Join(machine.LeftAlone, " and "))},
	}
	if len(machine.LeftAlone) > 0 {
		target.Skipped = MachineAnnotated(machine.LeftAlone[0])
	}
	return target
}

// machineAction is what is done about a machine when it is unhealthy.
func machineAction(facts *machines.Facts, machine *machines.Target) *cliv1.Action {
	action := &cliv1.Action{Kind: cliv1.RequestOwnerRemediation, Message: facts.Action(machine)}
	switch namespace := facts.About.Namespace; {
	case facts.Template.External:
		action.Kind = cliv1.CreateRemediationRequest
		action.Target = &Ref{Kind: facts.Template.TemplateKind, Namespace: namespace, Name: facts.Template.Name}
	case machine.OwnerKind != "":
		action.Target = &Ref{Kind: machine.OwnerKind, Namespace: namespace, Name: machine.OwnerName}
	}
	return action
}

// remediatorsReport is what the remediators of the machine report: the provider of the requests, and the owner, which may have been asked.
func remediatorsReport(facts *machines.Facts, machine *machines.Target) string {
	reports := []*machines.Report{machine.ProviderReport, machine.OwnerReport}
	if !facts.Template.External {
		reports = reports[1:]
	}
	var texts []string
	for _, report := range reports {
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
		reached = plan.Reach.Since
	}
	happened := make([]cliv1.Milestone, 0, 6)
	for _, start := range []struct {
		what string
		at   time.Time
	}{
		{"the machine was created", machine.Created},
		{"the control plane was initialized", facts.Cluster.InitializedAt},
		{"the infrastructure of the cluster became ready", facts.Cluster.ReadyAt},
		{"the infrastructure of the machine became ready", machine.InfrastructureReady},
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
