package machinehealthcheck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// defaultNodeStartup applies where the field is not set; Cluster API's webhook writes the same into the spec.
const defaultNodeStartup = 10 * time.Minute

// policyOf returns the rules of a check. Only here do the seconds of a spec become durations.
func policyOf(checks clusterv1.MachineHealthCheckChecks) health.Policy {
	policy := health.Policy{NodeStartup: defaultNodeStartup}
	if seconds := checks.NodeStartupTimeoutSeconds; seconds != nil {
		policy.NodeStartup = time.Duration(*seconds) * time.Second
	}
	for _, cond := range checks.UnhealthyMachineConditions {
		policy.Rules = append(policy.Rules, health.Rule{
			Source: health.OnMachine, Type: cond.Type, Status: string(cond.Status),
			For: time.Duration(ptr.Deref(cond.TimeoutSeconds, 0)) * time.Second,
		})
	}
	for _, cond := range checks.UnhealthyNodeConditions {
		policy.Rules = append(policy.Rules, health.Rule{
			Source: health.OnNode, Type: string(cond.Type), Status: string(cond.Status),
			For: time.Duration(ptr.Deref(cond.TimeoutSeconds, 0)) * time.Second,
		})
	}
	return policy
}

// otherOf returns the node because of which the node of target is not known; zero if there is none.
func otherOf(target *Target) health.Other {
	if target.OtherNode == nil {
		return health.Other{}
	}
	return health.Other{Name: target.OtherNode.Name, ProviderID: target.OtherNode.Spec.ProviderID, Wanted: target.Machine.Spec.ProviderID}
}

// healthOf returns the facts of the verdict that concern machine and its node.
func healthOf(checks clusterv1.MachineHealthCheckChecks, machine *clusterv1.Machine, known health.Node, node *corev1.Node) health.Target {
	_, marked := machine.Annotations[clusterv1.RemediateMachineAnnotation]
	facts := health.Target{
		Marked: marked, Failure: finalFailure(machine),
		Paused: ConditionTrue(machine, clusterv1.PausedCondition) != nil, Resumed: resumed(machine),
		NodeName: machine.Status.NodeRef.Name, Node: known, Signals: signalsOf(checks, machine, node),
	}
	ready := Since(ConditionTrue(machine, clusterv1.MachineInfrastructureReadyCondition))
	for _, start := range [...]time.Time{machine.CreationTimestamp.Time, ready, facts.Resumed} {
		if start.After(facts.AwaitedSince) {
			facts.AwaitedSince = start
		}
	}
	return facts
}

// signalsOf returns the conditions that rules are about. If a rule is about NodeReady or NodeHealthy of the machine, which Cluster API
// copies from the node, it returns all conditions of the node. A missing Ready counts from when this process first missed it.
func signalsOf(checks clusterv1.MachineHealthCheckChecks, machine *clusterv1.Machine, node *corev1.Node) []health.Signal {
	var signals []health.Signal
	mirrored := false
	for i := range machine.Status.Conditions {
		cond := &machine.Status.Conditions[i]
		about := func(rule clusterv1.UnhealthyMachineCondition) bool { return rule.Type == cond.Type }
		if slices.ContainsFunc(checks.UnhealthyMachineConditions, about) {
			mirrored = mirrored || cond.Type == health.NodeReady || cond.Type == health.NodeHealthy
			signals = append(signals, health.Signal{
				Source: health.OnMachine, Type: cond.Type, Status: string(cond.Status), Reason: cond.Reason,
				Since: cond.LastTransitionTime.Time,
			})
		}
	}
	if node == nil {
		return signals
	}
	ruled := func(kind corev1.NodeConditionType) bool {
		return mirrored || slices.ContainsFunc(checks.UnhealthyNodeConditions, func(rule clusterv1.UnhealthyNodeCondition) bool {
			return rule.Type == kind
		})
	}
	missing := ruled(corev1.NodeReady)
	for i := range node.Status.Conditions {
		cond := &node.Status.Conditions[i]
		missing = missing && cond.Type != corev1.NodeReady
		if ruled(cond.Type) {
			signals = append(signals, health.Signal{
				Source: health.OnNode, Type: string(cond.Type), Status: string(cond.Status), Reason: cond.Reason,
				Since: cond.LastTransitionTime.Time,
			})
		}
	}
	if missing {
		signals = append(signals, health.ReadyMissing)
	}
	return signals
}

// resumed returns when Cluster API reconciled machine again after a pause; zero if it never was paused. Core writes Paused=False on every
// machine that it first sees; that ends no pause. A Paused=False older than the machine comes with a status that was restored from a
// backup: older conditions are not about this machine, so they count from its creation.
func resumed(machine *clusterv1.Machine) time.Time {
	cond := ConditionOf(machine, clusterv1.PausedCondition)
	switch {
	case cond == nil || cond.Status != metav1.ConditionFalse:
		return time.Time{}
	case cond.LastTransitionTime.Before(&machine.CreationTimestamp):
		return machine.CreationTimestamp.Time
	case cond.LastTransitionTime.Sub(machine.CreationTimestamp.Time) <= health.Settling:
		return time.Time{}
	}
	return cond.LastTransitionTime.Time
}

// finalFailure returns failureReason and failureMessage of machine, from which it never recovers; empty if there are none. Core copies them
// from the infrastructure machine, or sets them if that was deleted, and never removes them. Since v1.11 Cluster API does not act on them.
func finalFailure(machine *clusterv1.Machine) string {
	if machine.Status.Deprecated == nil || machine.Status.Deprecated.V1Beta1 == nil {
		return ""
	}
	var parts []string
	if reason := ptr.Deref(machine.Status.Deprecated.V1Beta1.FailureReason, ""); reason != "" {
		parts = append(parts, "FailureReason: "+string(reason))
	}
	if message := ptr.Deref(machine.Status.Deprecated.V1Beta1.FailureMessage, ""); message != "" {
		parts = append(parts, "FailureMessage: "+strings.Join(strings.Fields(message), " "))
	}
	return strings.Join(parts, ", ")
}

// judge returns the verdicts on facts.Targets, in the same order.
func judge(facts *Facts) []health.Verdict {
	initialized := ConditionTrue(facts.Cluster, clusterv1.ClusterControlPlaneInitializedCondition)
	ready := infrastructureReady(facts.Cluster)
	paused, reached := ClusterPaused(facts.Cluster), facts.ReachedAgain()
	starts := [...]time.Time{Since(initialized), Since(ready)}
	verdicts := make([]health.Verdict, 0, len(facts.Targets))
	for _, target := range facts.Targets {
		judged := *target.Health
		judged.Paused, judged.Reached = judged.Paused || paused, reached
		for _, start := range starts {
			if start.After(judged.AwaitedSince) {
				judged.AwaitedSince = start
			}
		}
		if judged.AwaitedSince = judged.AwaitedSince.Add(judged.Lost); judged.Lost == 0 && reached.After(judged.AwaitedSince) {
			judged.AwaitedSince = reached
		}
		switch {
		case facts.Policy.Misjudges(facts.ClockAhead):
			judged.Gate = health.ClockWrong
		case initialized == nil && !metav1.HasLabel(target.ObjectMeta, clusterv1.MachineControlPlaneLabel):
			judged.Gate = health.ControlPlaneNotInitialized
		case ready == nil:
			judged.Gate = health.InfrastructureNotReady
		}
		verdicts = append(verdicts, health.Judge(judged, facts.Policy, facts.Now))
	}
	return verdicts
}

// infrastructureReady returns the condition that says that the infrastructure of cluster is ready; nil if it is not. A Cluster with a
// control plane that brings its own infrastructure names none, and its condition stays Unknown. (Cluster API,
// cluster_controller_status.go.)
func infrastructureReady(cluster *clusterv1.Cluster) *metav1.Condition {
	cond := ConditionOf(cluster, clusterv1.ClusterInfrastructureReadyCondition)
	named := cluster.Spec.InfrastructureRef.IsDefined() || cluster.Spec.Topology.IsDefined()
	switch {
	case cond == nil && !named:
		return &metav1.Condition{}
	case cond == nil, cond.Status == metav1.ConditionFalse, named && cond.Status != metav1.ConditionTrue:
		return nil
	}
	return cond
}

// ReachedAgain returns when the last outage of the workload cluster ended; zero if there was none.
func (facts *Facts) ReachedAgain() time.Time {
	if cond := reach(facts); cond.Reason == mendv1.ReachableAgainReason {
		return cond.LastTransitionTime.Time
	}
	return time.Time{}
}

// decisions returns the initial decisions about facts.Targets, in the same order, and those that are open. There is nothing to decide about
// a machine that is healthy, that time does not change, and for which nothing was begun. Targets keep such decisions: nearly all are such.
func (facts *Facts) decisions() (decisions, open []*Decision) {
	decisions = make([]*Decision, len(facts.Targets))
	for i, target := range facts.Targets {
		verdict := facts.Verdicts[i]
		quiet := verdict.State == health.Healthy && target.Ownership == NoRequest && target.Cycle == nil
		if quiet && target.quiet == nil && !Deleting(target.Machine) && MarkedHealthy(target.Machine) {
			target.quiet = &Decision{Target: target, Blockers: notUnhealthy}
		}
		if quiet && target.quiet != nil {
			target.quiet.Target, target.quiet.Verdict = target, verdict
			decisions[i] = target.quiet
			continue
		}
		target.quiet = nil
		decisions[i] = &Decision{Target: target, Verdict: verdict}
		open = append(open, decisions[i])
	}
	return decisions, open
}

// contradicted reports whether a final failure is the only finding against the machine while its node is Ready. A provider with a wrong
// credential writes such a failure on every machine.
func contradicted(facts *Facts, decision *Decision) bool {
	due := decision.Verdict.Due(facts.Now)
	believed := func(finding health.Finding) bool { return finding.Reason != health.MachineFailed }
	return decision.Target.NodeReady() && len(due) > 0 && !slices.ContainsFunc(due, believed)
}

// Opinion is what one check says about a Machine that several checks select and kubemend acts on. Each check has its own rules and limits,
// but they share the conditions of the Machine.
type Opinion struct {
	Check string
	// Older says that the check is older than the one that reads the opinion.
	Older bool
	// Heard says that the check has judged the Machine since this process started, and had read the requests.
	Heard bool
	State health.State
	// Healthy says that the check last found the Machine healthy. It stands while the Machine is pending or unknown.
	Healthy bool
	// Due are the findings for which the check last found the Machine unhealthy; they stand as well.
	Due []health.Finding
	// InFlight says that a remediation that the check asked for is in flight or begins.
	InFlight bool
	// AskedOwner says that the check asked the owner. This is in flight until the check finds the Machine healthy or the owner is stuck.
	AskedOwner bool
}

// Equal reports whether two opinions of one check are the same.
func (opinion Opinion) Equal(other Opinion) bool {
	return opinion.Heard == other.Heard && opinion.State == other.State && opinion.Healthy == other.Healthy &&
		opinion.InFlight == other.InFlight && opinion.AskedOwner == other.AskedOwner && slices.Equal(opinion.Due, other.Due)
}

// after returns the opinion after decision; opinion is the previous one.
func (opinion Opinion) after(facts *Facts, decision *Decision) Opinion {
	target := decision.Target
	next := Opinion{
		Heard: opinion.Heard || !facts.Template.Syncing, State: decision.Verdict.State, Healthy: opinion.Healthy, Due: opinion.Due,
		AskedOwner: opinion.AskedOwner && OwnerOf(target.Machine) != NotAsked,
	}
	switch decision.Verdict.State {
	case health.Healthy:
		next.Healthy, next.Due = true, nil
	case health.Unhealthy:
		next.Healthy, next.Due = false, decision.Verdict.Due(facts.Now)
	case health.Starting, health.Pending, health.Unknown:
	}
	requested := target.Ownership == OwnRequest || target.Ownership == AdoptableRequest
	asked := next.AskedOwner && next.State != health.Healthy && !target.stuck(facts.Now)
	next.InFlight = requested || asked || decision.Starts()
	if template := &facts.Template; template.External && !template.Known && template.Missing == "" { // there may still be a request
		next.InFlight = next.InFlight || opinion.InFlight
	}
	return next
}

// remediatedBy returns the other check whose remediation of target is in flight; nil if there is none.
func (target *Target) remediatedBy() *Opinion {
	return first(target.Others, func(other Opinion) bool { return other.InFlight })
}

// unheard returns another check that has not judged target yet, and may have a remediation in flight; nil if all have judged it.
func (target *Target) unheard() *Opinion {
	return first(target.Others, func(other Opinion) bool { return !other.Heard })
}

// outranked reports whether another check decides the conditions of the machine, because two checks would overwrite each other. A check
// that remediates the machine comes first, then one that finds it unhealthy, then one whose timeout runs; of equals the oldest decides.
func (decision *Decision) outranked(now time.Time) bool {
	own := rank(decision.Verdict.State, decision.InFlight && !decision.Target.stuck(now) || decision.Starts())
	return slices.ContainsFunc(decision.Target.Others, func(other Opinion) bool {
		theirs := rank(other.State, other.InFlight)
		return theirs > own || theirs == own && other.Older
	})
}

func rank(state health.State, inFlight bool) int {
	switch {
	case inFlight:
		return 3
	case state == health.Unhealthy:
		return 2
	case state == health.Pending:
		return 1
	}
	return 0
}

// Held returns the findings for which any check says at now that the machine is unhealthy, in order of precedence.
func (decision *Decision) Held(now time.Time) []health.Finding {
	var held []health.Finding
	if decision.Verdict.State == health.Unhealthy {
		held = decision.Verdict.Due(now)
	}
	if len(decision.Target.Others) == 0 {
		return held
	}
	for i := range decision.Target.Others {
		held = append(held, decision.Target.Others[i].Due...)
	}
	slices.SortFunc(held, func(a, b health.Finding) int {
		return cmp.Or(reasons[a.Reason].order-reasons[b.Reason].order, cmp.Compare(a.Text(), b.Text()))
	})
	return slices.CompactFunc(held, func(a, b health.Finding) bool { return a.Text() == b.Text() })
}
