package machinehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Explain returns what a reconcile of the check called key would find and do at now, without doing it; nil if there is no such check. It
// also reads the machines of a check that is paused or that others act on. It does not have what the reconciles before remember.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey, now time.Time) (*explain.Check, error) {
	state, err := r.find(ctx, key, now)
	if err != nil || state == nil {
		return nil, err
	}
	if state.Explains = true; state.Cluster.UID != "" && state.SelectorErr == nil { // otherwise no machine is judged
		if err := r.observe(ctx, state); err != nil {
			return nil, err
		}
	}
	state.Allowed, state.Placeless = r.Ledger.Allows(key, state.Cluster.Name), r.Ledger.Waiting(placesOf(key))
	if len(state.Placeless) == 0 {
		state.Placeless = signalled(state.decide(), state.Now)
	}
	return explained(state, r.decide(ctx, state)), nil
}

// Unselected returns a clause that says why check does not select machine: another cluster, an empty selector, or a label; empty if it
// does. As in Cluster API, an empty selector selects nothing.
func Unselected(check *clusterv1.MachineHealthCheck, machine *clusterv1.Machine) string {
	switch selector := check.Spec.Selector; {
	case check.Spec.ClusterName != machine.Spec.ClusterName:
		return fmt.Sprintf("it is about cluster %s, and the machine is of cluster %s", check.Spec.ClusterName, machine.Spec.ClusterName)
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		return "its spec.selector is empty, which selects nothing"
	default:
		return explain.Unmatched(selector, machine.Labels)
	}
}

// Calm reports whether the status of check says that all targets are healthy, and that the manager can read and remediate them.
func Calm(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	if !Reported(check, cluster) || *check.Status.CurrentHealthy != *check.Status.ExpectedMachines {
		return false
	}
	if template := ConditionOf(check, mendv1.RemediationTemplateAvailable); template != nil && template.Status != metav1.ConditionTrue {
		return false
	}
	allowed := ConditionTrue(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return allowed != nil && allowed.Message == "" && ConditionTrue(check, mendv1.WorkloadClusterReachable) != nil
}

// explained explains plan with the conditions that the check would have. A reader knows neither the last-applied annotation nor the
// templates of machines, so it repeats the condition Effective that the manager wrote.
func explained(state *observed, plan *Plan) *explain.Check {
	check := machineHealthCheck(&state.Facts, plan)
	check.Conditions = statusAfter(state, plan, nil).Status.Conditions
	written := ConditionOf(state.Check, mendv1.Effective)
	if written != nil && written.Status == metav1.ConditionFalse && state.Check.Status.ObservedGeneration == state.Check.Generation {
		meta.SetStatusCondition(&check.Conditions, *written)
	}
	return check
}

func machineHealthCheck(facts *Facts, plan *Plan) *explain.Check {
	check := &explain.Check{Check: cliv1.Check{
		Reference: explain.Ref{Kind: "MachineHealthCheck", Namespace: facts.Check.Namespace, Name: facts.Check.Name},
		Cluster:   facts.Check.Spec.ClusterName, Limits: cliv1.Limits{Spec: LimitText(facts.Check)},
	}}
	if check.Mode, check.ModeMessage, check.ModeDetail = facts.Acting(); check.Mode == cliv1.ModeActing {
		check.ModeDetail = ""
	}
	if facts.Idle() {
		if facts.Mode == NoCluster || facts.Mode == BadSelector {
			check.Reason, check.Message = plan.Allowed.Reason, plan.Allowed.Message
		}
		check.Next = idleNext(facts, plan)
		return check
	}
	check.Counts = plan.Population
	for _, err := range facts.Trouble {
		check.ReadErrors = append(check.ReadErrors, err.Error())
	}
	says := plan.Allowed
	for _, cond := range plan.Conditions {
		if says.Message == "" && cond.Type == mendv1.SpareHostAvailable {
			says = cond
		}
	}
	if says.Message != "" {
		check.Reason, check.Message = says.Reason, says.Message
	}
	check.SetLimits(facts.Limits, plan.Grant.Remaining)
	if reach := plan.Reach; reach.Status != "True" {
		since := cliv1.Moment(reach.LastTransitionTime.Time)
		check.NodesUnknown = &cliv1.NodesUnknown{Reason: reach.Reason, Since: since, Message: reach.Message}
	}
	for _, d := range plan.Decisions {
		check.Targets = append(check.Targets, machineTarget(facts, d))
	}
	for _, machine := range facts.Skipped {
		check.Targets = append(check.Targets, leftAlone(facts, machine))
	}
	slices.SortFunc(check.Targets, func(a, b explain.Target) int { return strings.Compare(a.Name, b.Name) })
	outageFirst(check)
	check.Next = explain.Soonest(check.Targets)
	return check
}

// outageFirst replaces the next step of machines that a limit blocks by the step that ends the outage, if an outage keeps machines unknown.
func outageFirst(c *explain.Check) {
	unjudged := slices.IndexFunc(c.Targets, func(target explain.Target) bool {
		return slices.ContainsFunc(target.Blockers, func(b explain.Blocker) bool {
			return b.Fix == target.Next.Text && c.PartOf(&b) == explain.SameAsNodesUnknown
		})
	})
	for i := range c.Targets {
		if next := &c.Targets[i].Next; unjudged >= 0 && next.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
			*next = c.Targets[unjudged].Next
		}
	}
}

func idleNext(facts *Facts, plan *Plan) explain.Step {
	switch {
	case !facts.Check.DeletionTimestamp.IsZero():
		return explain.Step{Reason: explain.BeingDeleted, Text: "the check is deleted"}
	case facts.WatchFilter != "":
		return explain.Step{}
	case facts.Mode == NoCluster || facts.Mode == BadSelector:
		blocker := limit(facts, plan)
		return explain.Step{Reason: blocker.Reason, Manual: true, Text: clause(blocker.Fix)}
	}
	if person := facts.Enable(); person != "" {
		return explain.Step{Reason: explain.NotActing, Text: person, Manual: true}
	}
	return explain.Step{}
}

func machineTarget(facts *Facts, d *Decision) explain.Target {
	machine, verdict, namespace := d.Target, d.Verdict, facts.Check.Namespace
	target := explain.Target{Class: d.Class(), Owner: "its owner", Target: cliv1.Target{
		Reference: explain.Ref{Kind: "Machine", Namespace: namespace, Name: machine.Name}, Node: machine.Health.NodeName,
		State: explain.States[verdict.State], Findings: explain.Findings(verdict, facts.Now),
		Ignored: explain.IgnoredFindings(verdict), StartsNow: d.Starts(),
		InFlight: d.InFlight, Message: remediatorsReport(facts, machine),
		Action: &cliv1.Action{Kind: cliv1.RequestOwnerRemediation, Message: facts.Action(machine.Machine)},
	}}
	owner := metav1.GetControllerOf(machine)
	if owner != nil {
		target.Owner = owner.Kind + " " + owner.Name
	}
	if target.Remediator = target.Owner; facts.Template.External {
		target.Remediator, target.Action.Kind = facts.Template.Kind, cliv1.CreateRemediationRequest
		target.Action.Target = &explain.Ref{Kind: facts.Template.TemplateKind, Namespace: namespace, Name: facts.Template.Name}
	} else if owner != nil {
		target.Action.Target = &explain.Ref{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
	}
	explainFlight(facts, d, &target)
	if verdict.State != health.Healthy || Deleting(machine.Machine) { // otherwise no remediation is due
		for i := range d.Blockers {
			if d.Blockers[i].Text != "" {
				target.Blockers = append(target.Blockers, d.Blockers[i].Blocker)
			}
		}
	}
	target.Next = machineNext(facts, d, &target)
	return target
}

// explainFlight adds since when a remediation is in flight, and what the owner has answered.
func explainFlight(facts *Facts, d *Decision, target *explain.Target) {
	machine, asked := d.Target, ConditionOf(d.Target, OwnerRemediated)
	if request := machine.Request; request != nil {
		target.Requests = []explain.Ref{{Kind: facts.Template.Kind, Namespace: facts.Check.Namespace, Name: request.Name}}
		target.InFlightSince = cliv1.Moment(request.CreationTimestamp.Time)
	} else if d.InFlight {
		target.InFlightSince = cliv1.Moment(Since(asked))
	}
	waits := d.InFlight && OwnerOf(machine.Machine) != NotAsked
	if target.OwnerAsked = waits || d.InFlight && machine.Request == nil; target.OwnerAsked && asked != nil {
		target.OwnerReason = asked.Reason
	}
	if waits {
		answer := OwnerAnswer(machine.Machine)
		target.Deferred = answer == clusterv1.MachineSetMachineRemediationDeferredReason
		target.Refused = answer == clusterv1.MachineSetMachineCannotBeRemediatedReason
	}
}

func leftAlone(facts *Facts, machine *Target) explain.Target {
	annotations := LeftAloneBy(machine.Machine)
	return explain.Target{Target: cliv1.Target{
		Reference: explain.Ref{Kind: "Machine", Namespace: facts.Check.Namespace, Name: machine.Name}, Node: machine.Health.NodeName,
		State: cliv1.StateSkipped, Skipped: "The machine has the annotation " + annotations[0],
		Next: explain.Step{Reason: explain.Skipped, Manual: true,
			Text: fmt.Sprintf("if it is to be judged again, remove the annotation %s from the machine",
				strings.Join(annotations, " and "))},
	}}
}

// remediatorsReport returns the conditions by which the provider and the owner of a machine report their progress.
func remediatorsReport(facts *Facts, machine *Target) string {
	kinds := []string{ExternallyRemediated, OwnerRemediated}
	if !facts.Template.External {
		kinds = kinds[1:]
	}
	var texts []string
	for _, kind := range kinds {
		report := ConditionOf(machine, kind)
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

func machineNext(facts *Facts, d *Decision, target *explain.Target) explain.Step {
	switch {
	case (target.State == cliv1.StateUnhealthy || target.State == cliv1.StateUnknown) && Deleting(d.Target.Machine):
		return explain.Step{Reason: explain.MachineBeingDeleted, Text: "the Machine controller deletes it"}
	case target.StartsNow || target.InFlight:
		return remediationNext(facts, d.Target, target)
	case target.State == cliv1.StateHealthy:
		return explain.Step{}
	}
	within := target.Blocker(explain.WithinTimeout)
	if within != nil && !within.Until.IsZero() {
		return machineExpires(facts, d, target, within.Until)
	}
	if actor := actsInstead(facts, d.Target); actor != "" && target.State == cliv1.StateUnhealthy {
		return explain.Step{Reason: explain.OtherControllerActs, Text: actor + " acts on it"}
	}
	return blockedNext(facts, target, within)
}

// blockedNext returns what ends the blockers of a machine, or what a person has to do. within is nil once a timeout has expired.
func blockedNext(facts *Facts, target *explain.Target, within *explain.Blocker) explain.Step {
	for i := range target.Blockers {
		if blocker := &target.Blockers[i]; blocker.Fix != "" && (blocker.Reason != explain.NotActing || !facts.ActsInCore()) {
			return explain.Step{Reason: blocker.Reason, Text: blocker.Fix, Manual: true}
		}
	}
	switch {
	case len(target.Blockers) == 0:
		return explain.Step{}
	case within != nil: // no timeout is running
		text := "no timeout runs before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0"
		return explain.Step{Reason: explain.WithinTimeout, Text: text}
	}
	first := &target.Blockers[0]
	if first.Next != "" {
		return explain.Step{At: first.Until, Reason: first.Reason, Text: first.Next}
	}
	return explain.Ended(first)
}

func remediationNext(facts *Facts, machine *Target, target *explain.Target) explain.Step {
	ownerAsked := OwnerOf(machine.Machine) != NotAsked
	switch {
	case target.StartsNow:
		return explain.Step{At: facts.Now, Reason: explain.RemediationStarts, Text: "kubemend " + target.Action.Message}
	case machine.Request == nil || ownerAsked: // with a request, its provider asked the owner afterwards
		return ownerNext(machine)
	}
	return explain.Step{
		Reason: explain.RemediatorActs,
		Text:   fmt.Sprintf("%s goes on; the request is deleted as soon as the machine is healthy", target.Requests[0]),
	}
}

// ownerNext returns what the owner, which was asked to replace the machine, does next, given its answer so far.
func ownerNext(machine *Target) explain.Step {
	ref := metav1.GetControllerOf(machine)
	owner := ref.Kind + " " + ref.Name
	switch reason := OwnerAnswer(machine.Machine); {
	case reason == "" && machine.OwnerKindSilent:
		text := owner + " was asked to replace it; whether its controller does that is not known to kubemend"
		return explain.Step{Reason: explain.OwnerActs, Text: text}
	case reason == "":
		return explain.Step{Reason: explain.OwnerActs, Text: owner + " replaces it, or reports in OwnerRemediated why it does not"}
	case reason == clusterv1.MachineSetMachineRemediationDeferredReason:
		return explain.Step{Reason: reason, Text: fmt.Sprintf("%s tries again by itself (%s)", owner, reason)}
	case reason == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		text := fmt.Sprintf("remove what keeps %s from replacing the machine, or replace it by hand", owner)
		return explain.Step{Reason: reason, Manual: true, Text: text}
	default:
		return explain.Step{Reason: explain.OwnerActs, Text: fmt.Sprintf("%s goes on (%s)", owner, reason)}
	}
}

// actsInstead names the other controller that acts on an unhealthy machine; empty if kubemend does.
func actsInstead(facts *Facts, machine *Target) string {
	switch {
	case machine.OlderCheck != "":
		return "MachineHealthCheck " + machine.OlderCheck
	case facts.ActsInCore():
		return "Cluster API core"
	}
	return ""
}

// machineExpires returns what happens when the timeout of a machine expires, whether or not its node can be read by then.
func machineExpires(facts *Facts, d *Decision, target *explain.Target, at time.Time) explain.Step {
	next := explain.Step{At: at, Reason: explain.TimeoutExpires, Text: explain.CountsThen(target)}
	if actor := actsInstead(facts, d.Target); actor != "" {
		next.Text += ", and " + actor + " acts on it"
		return next
	}
	left := first(d.Blockers, func(blocker Blocker) bool {
		return blocker.Rule != WithinTimeout && !(d.Verdict.State == health.Unknown && blocker.unjudged)
	})
	switch {
	case left != nil:
		next.Text += explain.StillBlocked(&left.Blocker)
	case facts.NeedsSpare(d.Target):
		next.Text += ", and kubemend " + target.Action.Message + ", as soon as a host fits its replacement"
	default:
		next.Text += ", and kubemend " + target.Action.Message
	}
	return next
}
