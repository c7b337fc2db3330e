package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/policy"
)

// Policy explains a RemediationPolicy from its status and its windows, and from the conditions of machines that wait for it.
func Policy(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	object := &mendv1.RemediationPolicy{}
	if err := Read(ctx, a.Snapshot, key, object, "RemediationPolicy"); err != nil {
		return nil, err
	}
	p, status := a.Policy(ctx, object), &object.Status
	e, answer := explanation(a, p.Ref), explain.Answer{State: explain.BlocksNothing, Rest: fmt.Sprintf("%d waiting", status.Waiting)}
	e.fact("selects", fmt.Sprintf("%s of %s; %d in no group of some limit", explain.Count(int(status.Selected.Targets), "target"),
		explain.Count(int(status.Selected.Checks), "check"), status.Selected.Ungrouped))
	if status.ObservedGeneration != object.Generation {
		e.fact("status", "out of date: no manager has updated it since the policy was last changed")
	}
	if until := p.Closed(true, a.Now); !until.IsZero() {
		answer.State, answer.Reason, answer.Until = explain.IsBlocking, place.ClosedWindow, until
		e.Next = explain.Step{At: until, Reason: place.ClosedWindow, Text: "its windows let remediations begin"}
		if p.Closed(false, a.Now).IsZero() {
			answer.Detail, e.Next.Text = "of live nodes alone", "its windows let remediations of live nodes begin"
		}
	}
	for _, g := range status.Groups {
		says := fmt.Sprintf("%d targets, %d unavailable, %d under way, %d waiting", g.Targets, g.Unavailable, g.InFlight, g.Waiting)
		if g.Reason != "" {
			about := policy.LimitText(cliv1.LimitGroup{Policy: p.Ref, Limit: g.Limit, Group: g.Group})
			says = strings.TrimSuffix(says+" ("+g.Reason+"): "+waitFor(a, nil, about+" is reached"), ": ") // only Machines have conditions
			answer.State, answer.Reason = explain.IsBlocking, cmp.Or(answer.Reason, g.Reason)
		}
		e.fact(strings.TrimSpace(g.Limit+" "+g.Group), says)
	}
	for _, signal := range object.Spec.BlockWhile {
		if waiting := waitFor(a, p, place.Signals[signal].Text); waiting != "" {
			e.fact("while "+string(signal), waiting)
			answer.State, answer.Reason = explain.IsBlocking, cmp.Or(answer.Reason, place.Signals[signal].Reason)
		}
	}
	e.fact("invalid", p.Invalid)
	switch {
	case p.Invalid != "" && status.Selected.Targets > 0:
		answer.State, answer.Reason = explain.IsBlocking, place.PolicyInvalid
	case object.Spec.Mode == mendv1.PolicyObserves:
		answer.State, answer.Reason = explain.IsBlocking, place.ObservedByPolicy
	case answer.State == explain.BlocksNothing && status.Waiting > 0 && len(object.Spec.BlockWhile) > 0:
		answer.State = explain.IsUnknown
		signals := strings.Trim(fmt.Sprint(object.Spec.BlockWhile), "[]")
		e.fact("blocks while", signals+"; no manager reports for which of them nodes of NodeHealthChecks wait")
	}
	e.answer(answer)
	return e, nil
}

// Override explains a RemediationOverride.
func Override(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	object := &mendv1.RemediationOverride{}
	if err := Read(ctx, a.Snapshot, key, object, "RemediationOverride"); err != nil {
		return nil, err
	}
	p, active := policy.ReadOverride(object, a.Managers.PolicyNamespace(), a.Now)
	e, spec := explanation(a, p.Ref), &object.Spec
	answer := explain.Answer{State: explain.BlocksNothing, Reason: active.Reason, Detail: active.Message}
	e.fact("action", fmt.Sprintf("%s %s %s", spec.Action, spec.TargetRef.Kind, spec.TargetRef.Name))
	if spec.Allow != nil {
		e.fact("up to", fmt.Sprintf("maxUnhealthy %s, maxInFlight %s", &spec.Allow.MaxUnhealthy, &spec.Allow.MaxInFlight))
	}
	e.fact("targets", fmt.Sprintf("%d, %d waiting", object.Status.Targets, object.Status.Blocked))
	e.fact("waiting", waitFor(a, nil, "("+p.String()+")"))
	e.fact("reason", strings.TrimSuffix(spec.Reason+", by "+spec.By, ", by "))
	if active.Status == metav1.ConditionTrue {
		e.Next = explain.Step{At: spec.Until.Time, Reason: mendv1.OverrideEndedReason, Text: "it ends"}
		if answer.Until = spec.Until.Time; spec.Action == mendv1.OverrideHold {
			answer.State, answer.Reason = explain.IsBlocking, place.HeldByOverride
		}
	}
	e.answer(answer)
	return e, nil
}

// waitFor lists the machines whose condition Remediation is False with these words in its message, and until when they wait at the latest.
// If p is not nil, it lists only machines that p selects.
func waitFor(a *inspect.Asker, p *policy.Policy, words string) string {
	var names []string
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, "") {
		cond := cmp.Or(conditions.Get(m, mendv1.Remediation), &metav1.Condition{})
		_, rest, found := strings.Cut(cond.Message, words)
		if !found || cond.Status != metav1.ConditionFalse || p != nil && !selectedBy(a, p, m) {
			continue
		}
		names = append(names, m.Namespace+"/"+m.Name)
		rest, _, _ = strings.Cut(rest, "\n")
		if _, ends, known := strings.Cut(rest, ". This ends at "); known {
			until, _, _ := strings.Cut(ends, " at the latest")
			names[len(names)-1] += " (until " + until + ")"
		}
	}
	return text.FirstOf(names, mostNames)
}

// selectedBy reports whether p selects m together with any check that selects m.
func selectedBy(a *inspect.Asker, p *policy.Policy, m *clusterv1.Machine) bool {
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	cluster := cmp.Or(snapshot.One[clusterv1.Cluster](a.Snapshot, key), &clusterv1.Cluster{})
	return slices.ContainsFunc(a.Snapshot.ChecksOf(key), func(check *clusterv1.MachineHealthCheck) bool {
		return machinehealthcheck.Unselected(check, m) == "" && p.SelectsMachine(check, cluster, m)
	})
}

// addPolicies adds how many RemediationPolicies apply in a namespace, how many machines wait for them and why, and the active
// RemediationOverrides. An empty namespace or cluster means all.
func (s *Status) addPolicies(ctx context.Context, a *inspect.Asker, namespace, cluster string) {
	list, overrides := &mendv1.RemediationPolicyList{}, &mendv1.RemediationOverrideList{}
	_, _ = a.Snapshot.List(ctx, list), a.Snapshot.List(ctx, overrides) // the notes report errors
	reaches := func(in string) bool { return namespace == "" || in == namespace || in == a.Managers.PolicyNamespace() }
	policies := len(slices.DeleteFunc(list.Items, func(p mendv1.RemediationPolicy) bool { return !reaches(p.Namespace) }))
	machines, blocked := 0, map[string]int{}
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, namespace) {
		cond := conditions.Get(m, mendv1.Remediation)
		if cond != nil && slices.Contains(place.Reasons, cond.Reason) && (cluster == "" || m.Spec.ClusterName == cluster) {
			machines, blocked[cond.Reason] = machines+1, blocked[cond.Reason]+1
		}
	}
	says := fmt.Sprintf("Policies: %d", policies)
	if machines > 0 {
		reasons := make([]string, 0, len(blocked))
		for _, reason := range slices.Sorted(maps.Keys(blocked)) {
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, blocked[reason]))
		}
		says += fmt.Sprintf(", blocking %s (%s); see kubectl mend explain policy/NAME",
			explain.Count(machines, "machine"), strings.Join(reasons, ", "))
	}
	if policies > 0 {
		s.Policies = append(s.Policies, says)
	}
	for i := range overrides.Items {
		object := &overrides.Items[i]
		p, active := policy.ReadOverride(object, a.Managers.PolicyNamespace(), a.Now)
		if spec := &object.Spec; active.Status == metav1.ConditionTrue && reaches(object.Namespace) {
			s.Policies = append(s.Policies, fmt.Sprintf("%s: %s %s %s until %s%s: %s", p, spec.Action, spec.TargetRef.Kind,
				spec.TargetRef.Name, spec.Until.UTC().Format(time.RFC3339), strings.TrimSuffix(", by "+spec.By, ", by "), spec.Reason))
		}
	}
}
