package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

const (
	beyondLimits = "To power-cycle one host beyond the limits, see docs/too-many-unhealthy.md"
	// byNodeCheck is the refusal for a node that no MachineHealthCheck judges.
	byNodeCheck = "No MachineHealthCheck judges it, and a NodeHealthCheck deletes a request for a healthy node. To make one by hand, see " +
		"docs/too-many-unhealthy.md. The host of a Machine is power-cycled with kubectl mend remediate host/NAME"
)

// refuse returns a plan that requests nothing, with the reason and what a user can do.
func refuse(why, fix string) plan {
	if fix != "" {
		why += ". " + fix
	}
	return plan{outcome: refuses, text: why}
}

// planRemediation decides whether the command requests a remediation. It refuses if no controller would act on the request, or if the
// request would exceed the limits of a check and no controller would block it.
func planRemediation(facts *remediationFacts) plan {
	machine, marked := facts.machine, facts.marked
	switch {
	case machine == nil && facts.named.kind == hostKind:
		return refuse("It belongs to no Machine", "To reboot it, annotate it with reboot.metal3.io")
	case machine == nil:
		return refuse(byNodeCheck, "")
	case !machine.DeletionTimestamp.IsZero():
		return refuse(fmt.Sprintf("Machine %s is being deleted: there is nothing left to remediate", machine.Name), "")
	case facts.underway():
		return plan{outcome: staysSo, text: fmt.Sprintf("Machine %s is being remediated already", machine.Name)}
	case metav1.HasAnnotation(machine.ObjectMeta, clusterv1.RemediateMachineAnnotation):
		says := "Machine %s has the annotation %s already"
		return plan{outcome: staysSo, text: fmt.Sprintf(says, machine.Name, clusterv1.RemediateMachineAnnotation)}
	}
	for _, key := range []string{clusterv1.MachineSkipRemediationAnnotation, clusterv1.PausedAnnotation} {
		if metav1.HasAnnotation(machine.ObjectMeta, key) { // a power cycle by hand would begin all the same
			return refuse("The machine has the annotation "+key, "")
		}
	}
	if facts.paused { // else a request would begin whenever somebody ends the pause
		return refuse(fmt.Sprintf("Cluster %s is paused (spec.paused)", machine.Spec.ClusterName), "")
	}
	if len(marked.Checks) > 0 {
		return planByCheck(facts)
	}
	if len(marked.Unread) > 0 || !facts.cycles() { // the user may not read the checks, or no check judges the machine
		return refuse(marked.Message, marked.Next.Text)
	}
	return planCycle(facts)
}

func planByCheck(facts *remediationFacts) plan {
	check := &facts.marked.Checks[0]
	switch {
	case targetOf(facts.marked) == nil || check.Mode != cliv1.ModeActing && !check.ActsElsewhere():
		return refuse(cmp.Or(check.ModeMessage, check.NotJudged().Text(nil)), toDo(facts.marked.Next))
	case facts.cycles():
		return planCycle(facts)
	case check.Kind == string(nodeCheckKind):
		return refuse(byNodeCheck, "")
	}
	return planMark(facts)
}

// toDo returns what the user has to do next; empty if something happens by itself.
func toDo(next cliv1.Step) string {
	if !next.Manual {
		return ""
	}
	return text.Capital(next.Text)
}

// targetOf returns the explained machine as its first check judges it; nil if no check judges it.
func targetOf(e *page.Explanation) *explain.Target {
	if len(e.Checks) == 0 || len(e.Checks[0].Targets) == 0 {
		return nil
	}
	return &e.Checks[0].Targets[0]
}

// planMark plans the annotation that marks a machine unhealthy for its check. The check's controller still applies its limits and blockers.
func planMark(facts *remediationFacts) plan {
	check, target, machine, template := &facts.marked.Checks[0], targetOf(facts.marked), facts.machine, facts.template()
	// A status that the manager wrote (Written) does not count the new annotation, so compare the limit here.
	tooMany := check.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason || target.Written != nil && check.Limits.Remaining < 1
	switch {
	case tooMany && !conditions.IsFalse(machine, clusterv1.MachineHealthCheckSucceededCondition):
		return refuse(fmt.Sprintf("If Machine %s were marked unhealthy, too many machines would be: "+
			"%s would not remediate any of them (%s)", machine.Name, check.String(), check.Allowance()), beyondLimits)
	case template == "" && metav1.GetControllerOf(machine) == nil:
		return refuse(fmt.Sprintf("Machine %s has no owner that could replace it", machine.Name), "Delete it by hand")
	}
	says := fmt.Sprintf("the annotation %s marks Machine %s unhealthy for %s, whose limits count it like any other",
		clusterv1.RemediateMachineAnnotation, machine.Name, check.String())
	if blockerOf(check, target) != nil {
		says += "; the remediation waits until nothing blocks it"
	}
	if template != "" { // a request from a template ends without removing the annotation
		says += fmt.Sprintf("; the machine stays unhealthy until the annotation is removed: "+
			"kubectl mend reset machine/%s, when its %s has done its work", machine.Name, template)
	}
	return plan{text: says}
}

// planCycle plans the HostRemediation that power-cycles the machine's host. No check blocks such a request later, so the command creates
// it only if the check would remediate the machine now.
func planCycle(facts *remediationFacts) plan {
	if facts.request == nil {
		return refuse("HostRemediations are not installed in the management cluster",
			"Install their CRD, or delete the machine, so that its owner replaces it")
	}
	machine, request, cycle, its := facts.machine, facts.request, facts.cycle, facts.host.Host
	switch {
	case cycle.Reason == explain.NotServed, cycle.Reason == explain.NoManager:
		return refuse(cycle.Message, toDo(cycle.Next))
	case facts.named.kind == hostKind && (its == nil || its.Name != facts.named.name):
		return refuse(fmt.Sprintf("Machine %s does not name this host as its own", machine.Name),
			"Its host is on the page of kubectl mend explain machine/"+machine.Name)
	}
	if len(facts.marked.Checks) > 0 {
		check := &facts.marked.Checks[0]
		if check.NodesNotReadable() {
			return refuse(fmt.Sprintf("You may not read the nodes, so it is not known whether %s would allow the power cycle",
				check.String()), explain.ChecksUnreadNext.Text)
		}
		if blocked := blockedBy(check, targetOf(facts.marked)); blocked != "" {
			return refuse(fmt.Sprintf("%s would not remediate Machine %s now, and no limit would block a power cycle by hand: %s",
				check.String(), machine.Name, explain.Clause(blocked)), beyondLimits)
		}
	}
	says := fmt.Sprintf("HostRemediation %s power-cycles its host, in %d attempts at most. "+
		"If Machine %s is not healthy after them, its owner is asked to replace it, and the host is marked unhealthy",
		request.Name, *request.Spec.Strategy.RetryLimit+1, machine.Name)
	if len(cycle.Blockers) > 0 {
		says += ". It does not begin yet: " + explain.Clause(cycle.Blockers[0].Text)
	}
	return plan{text: says}
}

// blockedBy returns why a check would not begin a remediation of its target now; empty if it would.
func blockedBy(check *explain.Check, target *explain.Target) string {
	if blocker := blockerOf(check, target); blocker != nil {
		return blocker.Text
	}
	undecided := check.Kind == string(nodeCheckKind) || target.Written != nil // neither takes the annotation into account
	if undecided && (check.Message != "" || target.State == cliv1.StateHealthy && check.Limits.Remaining < 1) {
		return cmp.Or(check.Message, check.Allowance())
	}
	return ""
}

// blockerOf returns the first blocker of a target, or nil. NotActing does not count if another controller acts on the check.
func blockerOf(check *explain.Check, target *explain.Target) *explain.Blocker {
	for i := range target.Blockers {
		if b := &target.Blockers[i]; b.Reason != explain.NotActing || !check.ActsElsewhere() {
			return b
		}
	}
	return nil
}

const namedPods = 10

// hardPowerOff returns the warning that a power cycle stops the pods on a machine's node without a drain and without asking their
// PodDisruptionBudgets.
func (b *byHand) hardPowerOff(ctx context.Context, machine *clusterv1.Machine) string {
	const says = "The power-off is hard: no pod is drained before it, and no PodDisruptionBudget is asked"
	node := machine.Status.NodeRef.Name
	if node == "" {
		return says
	}
	pods, unlisted, err := b.podsOn(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, node)
	switch {
	case err != nil:
		return fmt.Sprintf("%s. Which pods are on node %s is not known: %s", says, node, err)
	case len(pods) == 0:
		return fmt.Sprintf("%s. Node %s has no pods but those of DaemonSets", says, node)
	case len(pods) > namedPods:
		pods = append(pods[:namedPods:namedPods], fmt.Sprintf("and %d more", len(pods)-namedPods))
	}
	return fmt.Sprintf("%s. Pods on node %s: %s%s", says, node, strings.Join(pods, ", "), unlisted)
}

// podsOn returns the names of the pods that a drain would evict from a node, each with the PodDisruptionBudgets that select it. unlisted is
// not empty if they may not be listed, as with kubemend's own account in a workload cluster (docs/reference/rights.md).
func (b *byHand) podsOn(ctx context.Context, cluster client.ObjectKey, node string) (names []string, unlisted string, err error) {
	reader, err := b.workload(ctx, cluster)
	if err != nil {
		return nil, "", err
	}
	pods, budgets := &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	if err := reader.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, "", fmt.Errorf("list pods: %w", err)
	}
	if err := reader.List(ctx, budgets); apierrors.IsForbidden(err) {
		unlisted = "; their PodDisruptionBudgets may not be listed"
	} else if err != nil {
		return nil, "", fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	names = make([]string, 0, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(pod)
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !static && !finished && (owner == nil || owner.Kind != "DaemonSet") {
			names = append(names, pod.Namespace+"/"+pod.Name+budgetsOf(pod, budgets.Items))
		}
	}
	slices.Sort(names)
	return names, unlisted, nil
}

// budgetsOf lists the PodDisruptionBudgets that select a pod, in parentheses; empty if none does.
func budgetsOf(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	var says strings.Builder
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			fmt.Fprintf(&says, " (PodDisruptionBudget %s allows %d)", budget.Name, budget.Status.DisruptionsAllowed)
		}
	}
	return says.String()
}
