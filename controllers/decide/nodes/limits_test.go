package nodes

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func awaited(f *Facts) { f.Since, f.Grace = epoch, time.Minute }

func TestWhatTheLimitsCount(t *testing.T) {
	for name, tc := range map[string]struct {
		node Node
		want budget.Population
	}{
		"a healthy node":                              {healthy(), budget.Population{Healthy: 1}},
		"a pending one":                               {lost(since(time.Minute)), budget.Population{Pending: 1}},
		"an unhealthy one, which waits":               {lost(), budget.Population{Unhealthy: 1, Waiting: 1}},
		"one that is remediated, which does not":      {lost(asked()), budget.Population{Unhealthy: 1, InFlight: 1}},
		"a healthy one whose remediation is not over": {healthy(asked()), budget.Population{Recovering: 1, InFlight: 1}},
		"also that of a check which is gone":          {healthy(func(n *Node) { n.Orphaned = []Foreign{{}} }), budget.Population{Recovering: 1}},
		"a node that is gone while it is remediated":  {gone(asked()), budget.Population{Unhealthy: 1, InFlight: 1}},
		"also if the request could not be read":       {gone(func(n *Node) { n.Unseen = []Listed{{}} }), budget.Population{Unhealthy: 1, InFlight: 1}},
		"none that is gone otherwise":                 {gone(), budget.Population{}},
		"none that the check does not select":         {lost(func(n *Node) { n.Selected = false }), budget.Population{}},
	} {
		if diff := cmp.Diff(tc.want, Decide(of(tc.node)).Population); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhichStepIsNext(t *testing.T) {
	given := func(step int) func(*Node) {
		return func(n *Node) {
			n.Gone = append(n.Gone, Listed{Step: step, Started: epoch.Add(-time.Hour), GivenUp: epoch.Add(-30 * time.Minute)})
		}
	}
	for name, tc := range map[string]struct {
		given Facts
		want  int // below zero if none is
	}{
		"the first": {of(lost()).with(steps(reboot(0), reboot(0))), 0},
		"the second, after the first was given up": {of(lost(given(0))).with(steps(reboot(0), reboot(0))), 1},
		"also if its request has gone":             {of(lost(given(0), given(1))).with(steps(reboot(0), reboot(0))), -1},
		"one that can be about the node":           {of(lost()).with(steps(hostTemplate(), reboot(0))), 1},
	} {
		if got := Decide(tc.given).Decisions[0].Start; got != tc.want {
			t.Errorf("%s: step %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhatBlocksAllNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason
	}{
		"nothing":                                 {of(lost()), nil},
		"kubelets that are awaited":               {of(lost()).with(awaited), []Reason{KubeletsAwaited}},
		"also if as many are pending":             {of(lost(), lost(since(time.Minute))).with(awaited), []Reason{KubeletsAwaited}},
		"also if all are pending":                 {of(lost(since(time.Minute))).with(awaited), []Reason{KubeletsAwaited}},
		"not while all are healthy":               {of(healthy()).with(awaited), nil},
		"not when they had time to report":        {of(lost()).with(awaited, func(f *Facts) { f.Since = epoch.Add(-time.Minute) }), nil},
		"nor after they were awaited three times": {of(lost()).with(awaited, func(f *Facts) { f.AwaitedSince = epoch.Add(-3 * time.Minute) }), nil},
		"but before":                              {of(lost()).with(awaited, func(f *Facts) { f.AwaitedSince = epoch.Add(1 - 3*time.Minute) }), []Reason{KubeletsAwaited}},
		"after the last outage": {of(lost()).with(awaited, func(f *Facts) {
			f.Since, f.Outages = epoch.Add(-time.Hour), []Outage{{To: epoch.Add(-2 * time.Hour)}, {To: epoch}}
		}), []Reason{KubeletsAwaited}},
		"until then, from when they could": {of(lost()).with(awaited, func(f *Facts) { f.Since = epoch.Add(1 - time.Minute) }), []Reason{KubeletsAwaited}},
	} {
		if diff := cmp.Diff(tc.want, reasons(Decide(tc.given).Blockers), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatIsAStorm(t *testing.T) {
	tooMany := func(f *Facts) { f.MaxUnhealthy, f.Cooldown = "0", ptr(time.Hour) }
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"too many unhealthy nodes":        {of(lost()).with(tooMany), true},
		"not too many that are pending":   {of(lost(since(time.Minute))).with(tooMany), false},
		"these prolong one":               {of(lost(since(time.Minute))).with(tooMany, func(f *Facts) { f.Storm.Active = true }), true},
		"not as many as the limit allows": {of(lost()).with(tooMany, func(f *Facts) { f.MaxUnhealthy = "1" }), false},
	} {
		if got := Decide(tc.given).Storm.Active; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatBlocksTheNextStep(t *testing.T) {
	failed := asked(succeeded(escalation.No))
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   []Reason
	}{
		"nothing":                   {func(*Facts) {}, nil},
		"a pause":                   {func(f *Facts) { f.PauseRequests = []string{"me"} }, []Reason{Paused}},
		"an upgrade":                {func(f *Facts) { f.Upgrade.Unread = true }, []Reason{Upgrading}},
		"kubelets that are awaited": {awaited, []Reason{KubeletsAwaited}},
		"no limit: the node is remediated already": {func(f *Facts) { f.MaxUnhealthy = "0" }, nil},
	} {
		p := Decide(of(lost(failed)).with(steps(reboot(0), reboot(0)), tc.change))
		if diff := cmp.Diff(tc.want, reasons(p.Decisions[0].Blockers), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatBlocksANodeOfTheControlPlane(t *testing.T) {
	member := func(n *Node) { n.ControlPlane = true }
	notReady := func(nodes ...int) func(*Facts) {
		return func(f *Facts) {
			f.ControlPlane = &ControlPlane{Nodes: []Member{{"a", true}, {"b", true}, {"c", true}, {"d", true}, {"e", true}}}
			for _, i := range nodes {
				f.ControlPlane.Nodes[i].Ready = false
			}
		}
	}
	guarded := func(name string) func(*Facts) {
		return func(f *Facts) {
			f.ControlPlane.Etcd = Etcd{There: true, Budgets: 1, Guards: map[string]string{name: "guard"}}
		}
	}
	excluded := func(n *Node) { n.Excluded = true }
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason // of the first node
	}{
		"nothing blocks the only one that waits":      {of(lost(member)).with(notReady(0)), nil},
		"a pending one knows of nothing either":       {of(lost(member, since(time.Minute))).with(notReady(0)), []Reason{WithinTimeout}},
		"nor if it comes due first":                   {of(lost(member, since(2*time.Minute)), lost(member, since(time.Minute))).with(notReady(0, 1)), []Reason{WithinTimeout}},
		"it waits for one that comes due before":      {of(lost(member, since(time.Minute)), lost(member, since(2*time.Minute))).with(notReady(0, 1)), []Reason{WithinTimeout, NotFirst}},
		"etcd will block it":                          {of(lost(member, since(time.Minute))).with(notReady(0), guarded("a")), []Reason{WithinTimeout, EtcdAtRisk}},
		"one that is excluded waits for no other one": {of(lost(member, excluded), healthy(member)).with(notReady(0)), []Reason{NodeExcluded}},
		"one that etcd protects lets another go":      {of(lost(member, since(time.Hour)), lost(member)).with(notReady(0, 1), guarded("a")), []Reason{NotFirst}},
	} {
		p := Decide(tc.given)
		if diff := cmp.Diff(tc.want, reasons(p.Decisions[0].Blockers), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestARequestIsOwnedByTheMachineOfOpenShift(t *testing.T) {
	of := func(machine Ref, changes ...func(*Template)) (bool, *Blocker) {
		template, n := hostTemplate(), lost(func(n *Node) { n.OpenShift = machine })
		template.ForOpenShift, template.Infrastructure = true, true
		for _, change := range changes {
			change(&template)
		}
		return template.OwnedByOpenShift(&n), template.unsuitable(&n)
	}
	for name, tc := range map[string]struct {
		machine Ref
		change  func(*Template)
		owned   bool
		blocker Reason // none if it is empty
	}{
		"where the Machine is":             {Ref{"Machine", "metal", "m"}, func(*Template) {}, true, ""},
		"not elsewhere":                    {Ref{"Machine", "openshift", "m"}, func(*Template) {}, false, TemplateElsewhere},
		"not without a Machine":            {Ref{Namespace: "metal"}, func(*Template) {}, false, TemplateOfMachines},
		"not if it is not for OpenShift":   {Ref{"Machine", "metal", "m"}, func(t *Template) { t.ForOpenShift = false }, false, TemplateElsewhere},
		"any, if it is not about Machines": {Ref{"Machine", "openshift", "m"}, func(t *Template) { t.OfMachines = false }, false, ""},
	} {
		owned, b := of(tc.machine, tc.change)
		var blocker Reason
		if b != nil {
			blocker = b.Reason
		}
		if owned != tc.owned || blocker != tc.blocker {
			t.Errorf("%s: owned %t, blocked by %q", name, owned, blocker)
		}
	}
}

// What is done about a node, or what blocks it, is reported: it is in the order of the plan.
func TestWhatIsDoneIsInTheOrderOfThePlan(t *testing.T) {
	ours := func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) }
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"a remediator is asked to stop":     {of(gone(asked(kept, deleting(0)))), true},
		"a request ends":                    {of(gone(asked())), true},
		"a lease is released":               {of(healthy(ours)), true},
		"an unhealthy node that is blocked": {of(lost(func(n *Node) { n.Excluded = true })), true},
		"not a healthy node":                {of(healthy()), false},
		"not what is waited for":            {of(gone(asked(deleting(0)))), false},
	} {
		if got := slices.Contains(Decide(tc.given).Order, 0); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
