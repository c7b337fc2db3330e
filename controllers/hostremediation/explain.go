package hostremediation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Acts reports whether a manager with these flags acts on rem. cluster is the Cluster of its Machine; nil if the Cluster does not exist.
func Acts(kind remediation.Kind, rem remediation.Object, cluster *clusterv1.Cluster, filter string, teardown bool) bool {
	record, _ := remediation.RecordOf(rem)
	r := &Reconciler{Kind: kind, WatchFilterValue: filter, Teardown: teardown}
	return r.actsOn(&observed{rem: rem, cluster: cluster, record: record})
}

// Explain explains rem by what the manager has written on it, and says what happens when its state times out. It reads and decides nothing.
func Explain(kind remediation.Kind, rem remediation.Object) *explain.Remediation {
	record, _ := remediation.RecordOf(rem) // if it cannot be read, RecordOf returns that of a failed remediation
	memory, policy := record.Memory, policyOf(rem.Strategy(), record.BootSeconds)
	state, namespace := cmp.Or(memory.State, powercycle.Pending), rem.GetNamespace()
	explained := &explain.Remediation{HostRemediation: cliv1.HostRemediation{
		Reference: explain.Ref{Kind: kind.Kind, Namespace: namespace, Name: rem.GetName()}, Node: record.Node, Host: record.Host,
		State: string(state), StateSince: cliv1.Moment(memory.Since), RemediationPhase: string(phases[memory.State]),
		Attempt: memory.Attempt, Attempts: policy.Attempts(), AttemptStarted: cliv1.Moment(memory.Began),
		Deadline: cliv1.Moment(deadlineOf(memory, policy)), Evidence: evidenceOf(rem.GetConditions()),
	}, Conditions: rem.GetConditions()}
	if by, known := explain.AttributionOf(rem, mendv1.RequestedAnnotation); known {
		explained.Requested = by.Text()
	}
	if owner := remediation.OwnerOf(rem); owner != nil {
		explained.Machine = &explain.Ref{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
	}
	cond := conditions.Get(rem, nhcv1.ProcessingCondition)
	if cond == nil {
		explained.Reason, explained.Message = string(state), "It was not reconciled yet"
		return explained
	}
	explained.Reason, explained.Message = cond.Reason, cond.Message
	if memory.State == powercycle.Pending {
		explained.RemediationPhase = string(infrav1.PhaseRunning)
	}
	rule := powercycle.RuleOf(powercycle.Reason(cond.Reason))
	if memory.State == "" || rule.Blocks && !state.Final() {
		text := strings.TrimPrefix(cond.Message, fmt.Sprintf("Attempt %d of %d: ", memory.Attempt, policy.Attempts()))
		blocker := explain.Blocker{Reason: cond.Reason, Text: text, Fix: rule.Fix}
		if own, ok := rem.Unwrapped().(*mendv1.HostRemediation); ok && own.Status.BlockedUntil != nil {
			blocker.Until = own.Status.BlockedUntil.Time
		}
		explained.Blockers = []explain.Blocker{blocker}
	}
	explained.Next = nextOf(explained, memory, policy)
	return explained
}

// evidenceOf returns the finished or failed conditions of a power cycle, oldest first.
func evidenceOf(written []metav1.Condition) []string {
	done := slices.DeleteFunc(slices.Clone(written), func(cond metav1.Condition) bool {
		whole := cond.Type == nhcv1.ProcessingCondition || cond.Type == nhcv1.SucceededCondition
		return whole || cond.Status == metav1.ConditionUnknown
	})
	slices.SortStableFunc(done, func(a, b metav1.Condition) int { return a.LastTransitionTime.Compare(b.LastTransitionTime.Time) })
	evidence := make([]string, 0, len(done))
	for _, cond := range done {
		at := cond.LastTransitionTime.UTC().Format(time.RFC3339)
		evidence = append(evidence, fmt.Sprintf("%s %s=%s (%s)", at, cond.Type, cond.Status, cond.Reason))
	}
	return evidence
}

// nextOf returns what happens when the state times out; if it does not time out, what a person has to do.
func nextOf(explained *explain.Remediation, memory powercycle.Memory, policy powercycle.Policy) explain.Step {
	if len(explained.Blockers) > 0 && !explained.Blockers[0].Until.IsZero() {
		at := explained.Blockers[0].Until
		return explain.Step{At: at, Reason: explained.Reason, Text: "kubemend begins the power cycle if nothing else blocks it"}
	}
	if explained.Reason == string(powercycle.WaitingForPolicyReason) {
		return explain.Step{Reason: explained.Reason, Text: "kubemend begins the power cycle when that is over"}
	}
	begins := memory.State == powercycle.Pending || memory.State == powercycle.Preparing
	fixed := len(explained.Blockers) > 0 && explained.Blockers[0].Fix != ""
	if at := deadlineOf(memory, policy); !at.IsZero() && !(begins && fixed) {
		return explain.Step{At: at, Reason: explained.Reason, Text: afterDeadline(memory, policy)}
	}
	fix := ""
	switch {
	case fixed:
		fix = explained.Blockers[0].Fix
	case explained.Reason == string(powercycle.UnfenceTimedOutReason):
		fix = powercycle.RuleOf(powercycle.UnfenceTimedOutReason).Fix
	case memory.State == powercycle.OwnerRequested && explained.Host != "":
		fix = powercycle.RuleOf(powercycle.OwnerRequestedReason).Fix
		fix = fmt.Sprintf("%s: kubectl mend reset host/%s -n %s", fix, explained.Host, explained.Namespace)
	case memory.State == powercycle.Failed:
		fix = powercycle.RuleOf(memory.Cause.Reason).Fix
	}
	if fix == "" {
		return explain.Step{}
	}
	return explain.Step{Reason: explained.Reason, Text: fix, Manual: true}
}

// afterDeadline returns what the deadline of a state is for, and what happens after it.
func afterDeadline(memory powercycle.Memory, policy powercycle.Policy) string {
	const asks, orElse = "a warning asks you to act", "; if it is not done by then: "
	again := "the owner of the machine is asked to replace it"
	if memory.Attempt < policy.Attempts() {
		again = fmt.Sprintf("the next attempt begins (%d of %d)", memory.Attempt+1, policy.Attempts())
	}
	power := asks
	if memory.Faulted {
		power = again
	}
	switch memory.State {
	case powercycle.PoweringOff:
		return "deadline for the host to be proven off" + orElse + power + "; a host that is off is powered on, and its node not fenced"
	case powercycle.MovingWorkload:
		return "deadline for the workload to leave the node" + orElse + "the host is powered on all the same"
	case powercycle.PoweringOn, powercycle.Rebooting:
		return "deadline for the host to be on" + orElse + power
	case powercycle.Booting:
		return "deadline for the machine to be healthy" + orElse + again
	}
	return "deadline for it to go on" + orElse + asks
}
