package command

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// judged is an explanation of a target that a check of that kind judges.
func judged(kind string, state health.State, edits ...func(*page.Check)) *page.Explanation {
	c := page.Check{}
	c.Kind, c.Name, c.Mode, c.Remaining = kind, "workers", explain.Acting, 1
	c.Targets = []explain.Target{{State: state}}
	for _, edit := range edits {
		edit(&c)
	}
	return &page.Explanation{Checks: []page.Check{c}, Verdict: "its verdict"}
}

// owned is a machine with an owner.
func owned() *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "w1", OwnerReferences: []metav1.OwnerReference{{Controller: ptr.To(true)}}}}
}

func TestWhichWayIsThatOfTheCheckInCharge(t *testing.T) {
	const mhc, nhc = "MachineHealthCheck", "NodeHealthCheck"
	blockedBy := func(reasons ...string) func(*page.Check) {
		return func(c *page.Check) {
			for _, reason := range reasons {
				c.Targets[0].Blockers = append(c.Targets[0].Blockers, explain.Blocker{Reason: reason, Text: "x"})
			}
		}
	}
	mode := func(is explain.Mode) func(*page.Check) { return func(c *page.Check) { c.Mode = is } }
	request := requestByHand(owned(), nil)
	cycle := func(edits ...func(*explain.Remediation)) *page.Explanation {
		is := explain.Remediation{Host: "h1"}
		for _, edit := range edits {
			edit(&is)
		}
		return &page.Explanation{Remediations: []explain.Remediation{is}}
	}
	for name, tc := range map[string]struct {
		facts byHandFacts
		want  explain.ByHandReason
		waits bool
	}{
		"a node of no machine that a NodeHealthCheck judges": {
			byHandFacts{asked: nodeKind, before: judged(nhc, health.Unhealthy)}, explain.NodeCheckAlone, false,
		},
		"a node of no machine that no check judges":     {byHandFacts{asked: nodeKind, before: &page.Explanation{}}, explain.NoneSelects, false},
		"a node whose checks may not be read":           {byHandFacts{asked: nodeKind, before: &page.Explanation{Unread: []string{nhc}}}, explain.ChecksNotRead, false},
		"a machine that a NodeHealthCheck judges alone": {byHandFacts{machine: owned(), before: judged(nhc, health.Healthy), after: judged(nhc, health.Healthy)}, explain.NodeCheckAlone, false},
		"a machine that a MachineHealthCheck judges":    {byHandFacts{machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy)}, explain.RequestedMark, false},
		"one whose check Cluster API core acts on": {byHandFacts{
			machine: owned(), before: judged(mhc, health.Healthy, mode(explain.Observing)), after: judged(mhc, health.Unhealthy, mode(explain.Observing), blockedBy(explain.NotActing)),
		}, explain.RequestedMark, false},
		"one that waits for others": {byHandFacts{machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, blockedBy("RemediationsInProgress"))}, explain.RequestedMark, true},
		"one that is being remediated": {byHandFacts{
			machine: owned(), before: judged(mhc, health.Unhealthy, func(c *page.Check) { c.Targets[0].InFlight = true }), after: judged(mhc, health.Unhealthy),
		}, explain.AlreadyInFlight, false},
		"one whose power cycle has not ended":        {byHandFacts{machine: owned(), before: &page.Explanation{}, after: &page.Explanation{}, underway: []string{"x"}}, explain.AlreadyInFlight, false},
		"one whose check has no controller":          {byHandFacts{machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, mode(explain.None))}, explain.NotActedOn, false},
		"one whose checks may not be read":           {byHandFacts{machine: owned(), before: &page.Explanation{}, after: &page.Explanation{Unread: []string{mhc}}}, explain.ChecksNotRead, false},
		"a host whose checks may not be read":        {byHandFacts{asked: hostKind, machine: owned(), before: &page.Explanation{}, after: &page.Explanation{Unread: []string{mhc}}, request: request, cyclePage: cycle()}, explain.ChecksNotRead, false},
		"a host of a machine that would wait":        {byHandFacts{asked: hostKind, machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, blockedBy("RemediationsInProgress")), request: request, cyclePage: cycle()}, explain.BudgetBlocks, false},
		"a host of an observed check at its limit":   {byHandFacts{asked: hostKind, machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, mode(explain.Observing), blockedBy(explain.NotActing, "TooManyUnhealthy")), request: request, cyclePage: cycle()}, explain.BudgetBlocks, false},
		"a host of an observed check":                {byHandFacts{asked: hostKind, machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, mode(explain.Observing), blockedBy(explain.NotActing)), request: request, cyclePage: cycle()}, explain.RequestedCycle, false},
		"a host whose nodes may not be read":         {byHandFacts{asked: hostKind, machine: owned(), before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy, func(c *page.Check) { c.NodesUnknown = "x" }), request: request, cyclePage: cycle()}, explain.BudgetUnread, false},
		"a host whose NodeHealthCheck allows none":   {byHandFacts{asked: hostKind, machine: owned(), before: judged(nhc, health.Healthy), after: judged(nhc, health.Healthy, func(c *page.Check) { c.Remaining = 0 }), request: request, cyclePage: cycle()}, explain.BudgetBlocks, false},
		"a host whose NodeHealthCheck allows one":    {byHandFacts{asked: hostKind, machine: owned(), before: judged(nhc, health.Healthy), after: judged(nhc, health.Healthy), request: request, cyclePage: cycle()}, explain.RequestedCycle, false},
		"a host of which no manager power-cycles":    {byHandFacts{asked: hostKind, machine: owned(), before: &page.Explanation{}, after: &page.Explanation{}, request: request, cyclePage: cycle(func(r *explain.Remediation) { r.Reason = explain.NotServed })}, explain.NotActedOnKind, false},
		"a host without HostRemediations":            {byHandFacts{asked: hostKind, machine: owned(), before: &page.Explanation{}, after: &page.Explanation{}}, explain.NotInstalled, false},
		"a machine of a check that asks for a cycle": {byHandFacts{asked: machineKind, machine: owned(), template: "HostRemediation", before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy), request: request, cyclePage: cycle()}, explain.RequestedCycle, false},
		"a machine of a check with another template": {byHandFacts{asked: machineKind, machine: owned(), template: "TheirRemediation", before: judged(mhc, health.Healthy), after: judged(mhc, health.Unhealthy)}, explain.RequestedMark, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := planByHand(&tc.facts)
			if got.Reason != tc.want || got.Waits != tc.waits {
				t.Errorf("got %s (waits: %t), want %s (%t): %s", got.Reason, got.Waits, tc.want, tc.waits, got.Text())
			}
			if got.Text() == "" && tc.facts.machine != nil && len(tc.facts.after.Checks) > 0 || got.Changes() && got.Refused() {
				t.Errorf("it says %q", got.Text())
			}
		})
	}
}
