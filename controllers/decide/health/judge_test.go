package health

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
)

// policy has the rules of the documentation's first example with different timeouts, a rule without a timeout, and two rules about the
// Machine. These are last, so that a test can show that findings about the Machine still come first.
var policy = Policy{
	NodeStartup: 10 * time.Minute,
	Rules: []Rule{
		{Source: OnNode, Type: "Ready", Status: "Unknown", For: 5 * time.Minute},
		{Source: OnNode, Type: "Ready", Status: "False", For: 3 * time.Minute},
		{Source: OnNode, Type: "DiskPressure", Status: "True"},
		{Source: OnMachine, Type: "HostHealthy", Status: "Unknown", For: 4 * time.Minute},
		{Source: OnMachine, Type: "InfrastructureReady", Status: "False", For: 90 * time.Minute},
	},
}

func onNode(kind, status string, since time.Time) Signal {
	return Signal{Source: OnNode, Type: kind, Status: status, Since: since}
}

func silent(since time.Time) Signal   { return onNode("Ready", "Unknown", since) }
func notReady(since time.Time) Signal { return onNode("Ready", "False", since) }
func diskFull(since time.Time) Signal { return onNode("DiskPressure", "True", since) }

func hostLost(since time.Time) Signal {
	return machineSays("HostHealthy", "Unknown", "NoAnswer", since)
}

// unreadable is hostLost, reported by a controller that could not read the machine.
func unreadable(since time.Time) Signal {
	s := hostLost(since)
	s.Reason = InternalError
	return s
}

func hostDead(since time.Time) Signal {
	return machineSays("InfrastructureReady", "False", "HostDead", since)
}

// disconnected is hostLost, reported by a controller that lost the connection.
func disconnected(since time.Time) Signal {
	s := hostLost(since)
	s.Reason = ConnectionDown
	return s
}

// with returns a target without a gate. It has a node name, unless the node is awaited.
func with(n Node, signals ...Signal) Target {
	t := Target{Node: n, NodeName: "node-1", Signals: signals}
	if n == NodeAwaited {
		t.NodeName = ""
	}
	return t
}

// awaited returns a target that has waited for its first node since a time.
func awaited(since time.Time, signals ...Signal) Target {
	t := with(NodeAwaited, signals...)
	t.AwaitedSince = since
	return t
}

// marked returns t with the annotation that requests remediation.
func marked(t Target) Target {
	t.Marked = true
	return t
}

// behind returns t with a gate.
func behind(g Gate, t Target) Target {
	t.Gate = g
	return t
}

// judged is the part of a verdict that the tables compare.
type judged struct {
	State   State
	Reasons []Reason
	Recheck time.Time
}

func summary(v Verdict) judged {
	j := judged{State: v.State, Recheck: v.Recheck}
	for _, f := range v.Findings {
		j.Reasons = append(j.Reasons, f.Reason)
	}
	return j
}

func well() judged                  { return judged{State: Healthy} }
func unknown() judged               { return judged{State: Unknown} }
func unhealthy(rs ...Reason) judged { return judged{State: Unhealthy, Reasons: rs} }
func (j judged) until(d time.Duration) judged {
	j.Recheck = in(d)
	return j
}

// pending returns a verdict that changes after d.
func pending(s State, d time.Duration, rs ...Reason) judged {
	return judged{State: s, Reasons: rs}.until(d)
}

type judgeCases map[string]struct {
	given Target
	want  judged
}

func (cases judgeCases) run(t *testing.T, p Policy) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, summary(Judge(tc.given, p, noon)), "Judge()")
		})
	}
	other := Other{Name: "n", ProviderID: "metal://a", Wanted: "metal://b"}
	for text, finding := range map[string]Finding{
		other.Text():                  {Reason: NodeStartup, Other: other},
		"The machine has no node yet": {Reason: NodeStartup},
	} {
		must.Is(t, text, finding.Observed(), "it says")
	}
}

func TestConditions(t *testing.T) {
	const m, hour, tick = time.Minute, time.Hour, time.Nanosecond
	judgeCases{
		"a node without any condition is healthy":             {with(NodePresent), well()},
		"a node that is ready is healthy":                     {with(NodePresent, onNode("Ready", "True", ago(hour))), well()},
		"a condition that no check names is not bad":          {with(NodePresent, onNode("MemoryPressure", "True", ago(hour))), well()},
		"a status is compared to the letter":                  {with(NodePresent, onNode("Ready", "unknown", ago(hour))), well()},
		"a status without a check is not bad":                 {with(NodePresent, onNode("DiskPressure", "Unknown", ago(hour))), well()},
		"a node's condition meets no check about the machine": {with(NodePresent, onNode("NodeHealthy", "Unknown", ago(hour))), well()},
		"a machine's condition meets no check about the node": {with(NodePresent, machineSays("Ready", "Unknown", "", ago(hour))), well()},

		"a bad condition just before its time is pending":  {with(NodePresent, silent(ago(5*m-tick))), pending(Pending, tick, NodeCondition)},
		"at the very moment it is unhealthy":               {with(NodePresent, silent(ago(5*m))), unhealthy(NodeCondition)},
		"after its time it is unhealthy":                   {with(NodePresent, silent(ago(5*m+tick))), unhealthy(NodeCondition)},
		"each check has its own timeout":                   {with(NodePresent, notReady(ago(3*m))), unhealthy(NodeCondition)},
		"a timeout of zero counts at once":                 {with(NodePresent, diskFull(noon)), unhealthy(NodeCondition)},
		"a clock that runs ahead is waited for":            {with(NodePresent, diskFull(in(m))), pending(Pending, m, NodeCondition)},
		"a machine's condition is pending before its time": {with(NodePresent, hostDead(ago(m))), pending(Pending, 89*m, MachineCondition)},
		"at the very moment it is unhealthy as well":       {with(NodePresent, hostDead(ago(90*m))), unhealthy(MachineCondition)},

		"a lost connection is not the machine's fault":      {with(NodePresent, disconnected(ago(hour))), well()},
		"it does not excuse the machine's other conditions": {with(NodePresent, disconnected(ago(hour)), hostDead(ago(90*m))), unhealthy(MachineCondition)},
		"a node cannot be excused by the reason of its condition": {
			with(NodePresent, Signal{Source: OnNode, Type: "Ready", Status: "Unknown", Reason: ConnectionDown, Since: ago(5 * m)}), unhealthy(NodeCondition),
		},
	}.run(t, policy)
}

func TestSeveralConditionsAtOnce(t *testing.T) {
	const m, hour = time.Minute, time.Hour
	judgeCases{
		"the nearest of two moments is the recheck":    {with(NodePresent, silent(ago(m)), hostLost(ago(2*m))), pending(Pending, 2*m, MachineCondition, NodeCondition)},
		"it is so whichever comes first":               {with(NodePresent, silent(ago(2*m)), hostLost(noon)), pending(Pending, 3*m, MachineCondition, NodeCondition)},
		"one condition that is due is enough":          {with(NodePresent, silent(ago(m)), diskFull(ago(m))), unhealthy(NodeCondition, NodeCondition).until(4 * m)},
		"what is due later does not undo what is due":  {with(NodePresent, hostLost(ago(4*m)), notReady(ago(m))), unhealthy(MachineCondition, NodeCondition).until(2 * m)},
		"two conditions that are due are two findings": {with(NodePresent, silent(ago(hour)), diskFull(ago(hour))), unhealthy(NodeCondition, NodeCondition)},
		"findings about the machine come first":        {with(NodePresent, silent(ago(hour)), hostLost(ago(hour))), unhealthy(MachineCondition, NodeCondition)},
	}.run(t, policy)
}

func TestNodes(t *testing.T) {
	const m, tick = time.Minute, time.Nanosecond
	judgeCases{
		"a deleted node is unhealthy at once":               {with(NodeGone), unhealthy(NodeDeleted)},
		"its last conditions no longer count":               {with(NodeGone, silent(ago(time.Hour))), unhealthy(NodeDeleted)},
		"the machine's conditions count beside it":          {with(NodeGone, hostLost(ago(time.Hour))), unhealthy(MachineCondition, NodeDeleted)},
		"those that are not due yet are looked at again":    {with(NodeGone, hostLost(ago(m))), unhealthy(MachineCondition, NodeDeleted).until(3 * m)},
		"a node that was there once is never awaited again": {Target{Node: NodeGone, AwaitedSince: noon}, unhealthy(NodeDeleted)},

		"a first node is awaited":                        {awaited(ago(10*m - tick)), pending(Starting, tick, NodeStartup)},
		"at the very moment it is too late":              {awaited(ago(10 * m)), unhealthy(NodeStartup)},
		"after its time it is too late":                  {awaited(ago(time.Hour)), unhealthy(NodeStartup)},
		"conditions of a node that is awaited mean none": {awaited(noon, diskFull(ago(time.Hour))), pending(Starting, 10*m, NodeStartup)},
		"a starting machine can fail by itself":          {awaited(noon, hostLost(ago(4*m))), unhealthy(MachineCondition, NodeStartup).until(10 * m)},
		"a starting machine stays starting while it may": {awaited(noon, hostLost(noon)), pending(Starting, 4*m, MachineCondition, NodeStartup)},
		"a starting machine without connection may wait": {awaited(noon, disconnected(ago(time.Hour))), pending(Starting, 10*m, NodeStartup)},
		"a node that is there is not late":               {Target{Node: NodePresent, AwaitedSince: ago(time.Hour)}, well()},
	}.run(t, policy)
}

func TestAStartupTimeoutOfZeroWaitsForEver(t *testing.T) {
	const m = time.Minute
	patient := policy
	patient.NodeStartup = 0
	judgeCases{
		"a first node is never late":          {awaited(ago(1000 * time.Hour)), judged{State: Starting}},
		"the machine's conditions still wait": {awaited(ago(time.Hour), hostLost(ago(m))), pending(Starting, 3*m, MachineCondition)},
		"the machine's conditions still end":  {awaited(ago(time.Hour), hostLost(ago(4*m))), unhealthy(MachineCondition)},
		"a deleted node is still deleted":     {with(NodeGone), unhealthy(NodeDeleted)},
	}.run(t, patient)
}

func TestMarks(t *testing.T) {
	const m = time.Minute
	judgeCases{
		"a marked machine is unhealthy however well it is": {marked(with(NodePresent)), unhealthy(MarkedByHand)},
		"no node is needed":                        {marked(awaited(noon)), unhealthy(MarkedByHand, NodeStartup).until(10 * m)},
		"no workload cluster is needed":            {marked(with(NodeUnseen)), unhealthy(MarkedByHand)},
		"no infrastructure is needed":              {marked(behind(InfrastructureNotReady, with(NodePresent))), unhealthy(MarkedByHand)},
		"no control plane is needed":               {marked(behind(ControlPlaneNotInitialized, with(NodeUnseen))), unhealthy(MarkedByHand)},
		"the mark is named before everything else": {marked(with(NodeGone, hostLost(ago(time.Hour)))), unhealthy(MarkedByHand, MachineCondition, NodeDeleted)},
		"what is not due yet is looked at again":   {marked(with(NodePresent, silent(noon))), unhealthy(MarkedByHand, NodeCondition).until(5 * m)},
		"a gate still hides all but the mark":      {marked(behind(InfrastructureNotReady, with(NodeGone, hostLost(ago(time.Hour))))), unhealthy(MarkedByHand)},
	}.run(t, policy)
}

// W21: Cluster API says that a machine behind a gate is healthy, and ends its remediation.
func TestGates(t *testing.T) {
	const hour = time.Hour
	for _, g := range []Gate{ControlPlaneNotInitialized, InfrastructureNotReady} {
		t.Run(string(g), func(t *testing.T) {
			judgeCases{
				"a healthy node makes no healthy machine": {behind(g, with(NodePresent)), unknown()},
				"a bad node is not unhealthy":             {behind(g, with(NodePresent, silent(ago(hour)))), unknown()},
				"a bad node is not waited for":            {behind(g, with(NodePresent, silent(noon))), unknown()},
				"a bad machine is not unhealthy":          {behind(g, with(NodePresent, hostLost(ago(hour)))), unknown()},
				"a deleted node is not unhealthy":         {behind(g, with(NodeGone)), unknown()},
				"a first node is not late":                {behind(g, awaited(ago(hour))), unknown()},
				"a first node is not even awaited":        {behind(g, awaited(noon)), unknown()},
				"nothing can be seen behind it either":    {behind(g, with(NodeUnseen)), unknown()},
			}.run(t, policy)

			if v := Judge(behind(g, with(NodePresent)), policy, noon); v.Gate != g {
				t.Errorf("the verdict names gate %q, want %q", v.Gate, g)
			}
		})
	}
}

// W13: Cluster API does nothing at all without a connection.
func TestWithoutTheWorkloadCluster(t *testing.T) {
	const m = time.Minute
	late := with(NodeUnseen)
	late.AwaitedSince = ago(time.Hour)
	late.NodeName = ""

	judgeCases{
		"a machine cannot be judged":                       {with(NodeUnseen), unknown()},
		"its first node is not late":                       {late, unknown()},
		"its node's last conditions do not count":          {with(NodeUnseen, silent(ago(time.Hour)), diskFull(ago(time.Hour))), unknown()},
		"the machine's own conditions count":               {with(NodeUnseen, hostLost(ago(4*m))), unhealthy(MachineCondition)},
		"the machine's own conditions have their timeouts": {with(NodeUnseen, hostLost(ago(m))), pending(Unknown, 3*m, MachineCondition)},
		"the machine's own conditions count by themselves": {with(NodeUnseen, hostDead(ago(90*m)), silent(ago(time.Hour))), unhealthy(MachineCondition)},
		"the lost connection is no condition of a machine": {with(NodeUnseen, disconnected(ago(time.Hour))), unknown()},
		"nor is it that Cluster API cannot read the node":  {with(NodeUnseen, unreadable(ago(time.Hour))), unknown()},
		"which counts as long as we can":                   {with(NodePresent, unreadable(ago(time.Hour))), unhealthy(MachineCondition)},
	}.run(t, policy)

	if v := Judge(with(NodeUnseen), policy, noon); v.Gate != Open {
		t.Errorf("the verdict names gate %q, want none", v.Gate)
	}
}

func TestAFindingNamesWhatItIsAboutAndWhenItCounts(t *testing.T) {
	const hour = time.Hour
	cases := map[string]struct {
		given Target
		want  Finding
	}{
		"a mark": {marked(with(NodePresent)), Finding{Reason: MarkedByHand}},
		"a machine's condition": {
			with(NodePresent, hostDead(ago(hour))),
			Finding{Reason: MachineCondition, Limit: 90 * time.Minute, Due: in(30 * time.Minute), Signal: hostDead(ago(hour))},
		},
		"a node's condition": {
			with(NodePresent, silent(ago(hour))),
			Finding{Reason: NodeCondition, Limit: 5 * time.Minute, Due: ago(55 * time.Minute), Signal: silent(ago(hour))},
		},
		"a condition that counts at once": {
			with(NodePresent, diskFull(ago(hour))), Finding{Reason: NodeCondition, Due: ago(hour), Signal: diskFull(ago(hour))},
		},
		"a deleted node": {with(NodeGone), Finding{Reason: NodeDeleted, Node: "node-1"}},
		"a first node that did not appear": {
			awaited(ago(hour)), Finding{Reason: NodeStartup, Limit: 10 * time.Minute, Due: ago(50 * time.Minute)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, []Finding{tc.want}, Judge(tc.given, policy, noon).Findings, "Judge()")
		})
	}
}

func TestTwoChecksOfOneConditionAreTwoFindingsInTheirOrder(t *testing.T) {
	p := Policy{Rules: []Rule{
		{Source: OnNode, Type: "Ready", Status: "False", For: time.Hour},
		{Source: OnNode, Type: "Ready", Status: "False", For: time.Minute},
	}}
	v := Judge(with(NodePresent, notReady(ago(time.Minute))), p, noon)
	if diff := cmp.Diff(unhealthy(NodeCondition, NodeCondition).until(59*time.Minute), summary(v)); diff != "" {
		t.Fatalf("Judge(): -want +got\n%s", diff)
	}
	if first := v.Findings[0]; first.DueAt(noon) {
		t.Errorf("the first finding is %+v, want the one of the first check", first)
	}
}

func TestATargetWithNothingAgainstItCostsNoMemory(t *testing.T) {
	good := []Signal{readySince(ago(time.Hour)), machineSays("NodeHealthy", "True", "Fine", ago(time.Hour))}
	for name, target := range map[string]Target{
		"healthy":           with(NodePresent, good...),
		"behind a gate":     behind(InfrastructureNotReady, with(NodePresent, good...)),
		"out of connection": with(NodeUnseen, append(good, disconnected(ago(time.Hour)))...),
	} {
		var v Verdict
		if n := testing.AllocsPerRun(100, func() { v = Judge(target, policy, noon) }); n != 0 {
			t.Errorf("%s: Judge() allocates %v times, want none (%s)", name, n, v.State)
		}
	}
}
