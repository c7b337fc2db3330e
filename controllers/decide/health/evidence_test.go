package health

import (
	"testing"
	"time"
)

// machineSays is a condition of the Machine.
func machineSays(kind, status, reason string, since time.Time) Signal {
	return Signal{Source: OnMachine, Type: kind, Status: status, Reason: reason, Since: since}
}

func readySince(since time.Time) Signal { return onNode("Ready", "True", since) }

func (t Target) paused() Target {
	t.Paused = true
	return t
}

func (t Target) resumed(at time.Time) Target {
	t.Resumed = at
	return t
}

func (t Target) reached(at time.Time) Target {
	t.Reached = at
	return t
}

func (t Target) failed(how string) Target {
	t.Failure = how
	return t
}

// evidence has a rule of 5 minutes for each kind of author: Cluster API's copy of the node, KubeadmControlPlane's look at a pod, a
// provider's condition, and the node itself.
var evidence = Policy{NodeStartup: 10 * time.Minute, Rules: []Rule{
	{Source: OnMachine, Type: NodeReady, Status: "False", For: 5 * time.Minute},
	{Source: OnMachine, Type: NodeReady, Status: "Unknown", For: 5 * time.Minute},
	{Source: OnMachine, Type: NodeHealthy, Status: "False", For: 5 * time.Minute},
	{Source: OnMachine, Type: "EtcdPodHealthy", Status: "False", For: 5 * time.Minute},
	{Source: OnMachine, Type: "EtcdPodHealthy", Status: "Unknown", For: 5 * time.Minute},
	{Source: OnMachine, Type: "InfrastructureReady", Status: "False", For: 5 * time.Minute},
	{Source: OnMachine, Type: "InfrastructureReady", Status: "Unknown", For: 5 * time.Minute},
	{Source: OnNode, Type: "Ready", Status: "False", For: 5 * time.Minute},
}}

func TestWhatClusterAPISawOfANodeCountsOnlyIfTheNodeSaysSo(t *testing.T) {
	const m, h = time.Minute, time.Hour
	notReadyMirror := machineSays(NodeReady, "False", "NodeNotReady", ago(2*h))
	notHealthy := machineSays(NodeHealthy, "False", "NodeNotHealthy", ago(2*h))
	judgeCases{
		"a node that is ready is healthy, whatever Cluster API saw long ago": {with(NodePresent, notReadyMirror, readySince(ago(h))), well()},
		"a node that is not ready is not":                                    {with(NodePresent, notReadyMirror, notReady(ago(2*h))), unhealthy(MachineCondition, NodeCondition)},
		"it counts from when it is true of the node":                         {with(NodePresent, notReadyMirror, notReady(ago(m))), pending(Pending, 4*m, MachineCondition, NodeCondition)},
		"unknown is not false":                                               {with(NodePresent, notReadyMirror, silent(ago(2*h))), well()},
		"a node without the condition is unknown":                            {with(NodePresent, machineSays(NodeReady, "Unknown", "NodeReadyUnknown", ago(2*h))), unhealthy(MachineCondition)},
		"a node that could not be read is as we see it":                      {with(NodePresent, machineSays(NodeReady, "Unknown", InternalError, ago(2*h)), readySince(ago(h))), well()},
		"a node that is gone is not ready":                                   {with(NodeGone, notReadyMirror), unhealthy(MachineCondition, NodeDeleted)},
		"a node that cannot be read says nothing":                            {with(NodeUnseen, notReadyMirror), unknown()},
		"a node that is not there yet says nothing":                          {awaited(ago(m), notReadyMirror), pending(Starting, 9*m, NodeStartup)},
		"a full disk is not healthy":                                         {with(NodePresent, notHealthy, readySince(ago(2*h)), diskFull(ago(2*h))), unhealthy(MachineCondition)},
		"a full disk that is empty again is not the reason":                  {with(NodePresent, notHealthy, readySince(ago(2*h)), onNode("DiskPressure", "False", ago(m))), well()},
		"of two reasons the older one counts":                                {with(NodePresent, notHealthy, diskFull(ago(m)), onNode("PIDPressure", "True", ago(2*m))), pending(Pending, 3*m, MachineCondition)},
	}.run(t, evidence)

	v := Judge(with(NodePresent, notReadyMirror, readySince(ago(h))), evidence, noon)
	if len(v.Void) != 1 || v.Void[0].Doubt != NodeDiffers || v.Void[0].Finding.Signal != notReadyMirror {
		t.Errorf("what does not count is %+v", v.Void)
	}
}

func TestALookIntoAClusterThatIsOutOfReachDoesNotCount(t *testing.T) {
	const h = time.Hour
	for _, kind := range []string{"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "EtcdPodHealthy", "EtcdMemberHealthy",
		"NodeKubeadmLabelsAndTaintsSet", NodeReady, NodeHealthy} {
		p := Policy{Rules: []Rule{{Source: OnMachine, Type: kind, Status: "False"}}}
		s := machineSays(kind, "False", "Failed", ago(h))
		if v := Judge(with(NodeUnseen, s), p, noon); v.State != Unknown {
			t.Errorf("%s, out of reach: %s", kind, v.State)
		}
		if v := Judge(with(NodePresent, s, notReady(ago(h))), p, noon); v.State != Unhealthy {
			t.Errorf("%s, in reach: %s", kind, v.State)
		}
	}
	judgeCases{
		"a provider's condition counts out of reach": {with(NodeUnseen, machineSays("InfrastructureReady", "False", "HostDead", ago(h))), unhealthy(MachineCondition)},
	}.run(t, evidence)
}

func TestNothingCountsThatIsOlderThanAPause(t *testing.T) {
	const m, h = time.Minute, time.Hour
	hostDown := machineSays("InfrastructureReady", "False", "HostDead", ago(2*h))
	etcdDown := machineSays("EtcdPodHealthy", "False", "Failed", ago(2*h))
	nodeDown := machineSays(NodeReady, "False", "NodeNotReady", ago(2*h))
	judgeCases{
		"as long as Cluster API has not looked again, no condition of its counts": {with(NodePresent, hostDown, etcdDown).paused(), unknown()},
		"nor one that the node confirms":                                          {with(NodePresent, nodeDown, notReady(ago(m))).paused(), pending(Pending, 4*m, NodeCondition)},
		"a machine against which nothing is held is healthy all the same":         {with(NodePresent, readySince(ago(h))).paused(), well()},
		"also if only its node contradicts what was seen of it":                   {with(NodePresent, nodeDown, readySince(ago(h))).paused(), well()},
		"what we see ourselves counts":                                            {with(NodePresent, hostDown, notReady(ago(h))).paused(), unhealthy(NodeCondition)},
		"a node that is gone counts":                                              {with(NodeGone, hostDown).paused(), unhealthy(NodeDeleted)},
		"a mark by hand counts":                                                   {marked(with(NodePresent, hostDown).paused()), unhealthy(MarkedByHand)},
		"a first node is awaited, and its clock stands still":                     {awaited(ago(h)).paused(), judged{State: Starting}},
		"afterwards a condition that was there before counts from a minute on":    {with(NodePresent, hostDown).resumed(ago(2 * m)), pending(Pending, 4*m, MachineCondition)},
		"as one that somebody wrote who looked into the cluster":                  {with(NodePresent, etcdDown).resumed(ago(2 * m)), pending(Pending, 4*m, MachineCondition)},
		"one that was written since counts as ever":                               {with(NodePresent, machineSays("InfrastructureReady", "False", "HostDead", ago(5*m))).resumed(ago(6 * m)), unhealthy(MachineCondition)},
		"one that the node confirms counts as ever":                               {with(NodePresent, nodeDown, notReady(ago(h))).resumed(ago(m)), unhealthy(MachineCondition, NodeCondition)},
		"in the end it counts":                                                    {with(NodePresent, hostDown).resumed(ago(6 * m)), unhealthy(MachineCondition)},
	}.run(t, evidence)
}

// What was seen of the nodes: TestAnOutageIsLeftOut.
func TestWhatWasWrittenByWhoWasBlindTooCountsFromTheEndOfAnOutage(t *testing.T) {
	const m, h = time.Minute, time.Hour
	unknown := machineSays("EtcdPodHealthy", "Unknown", InspectionFailed, ago(h))
	nodeDown := machineSays(NodeReady, "False", "NodeNotReady", ago(h))
	judgeCases{
		"a read that failed counts from the next one on":  {with(NodePresent, unknown).reached(ago(2 * m)), pending(Pending, 4*m, MachineCondition)},
		"so does what Cluster API saw of the node":        {with(NodePresent, nodeDown, notReady(ago(m))).reached(ago(2 * m)), pending(Pending, 4*m, MachineCondition, NodeCondition)},
		"and what anybody does not know":                  {with(NodePresent, machineSays("InfrastructureReady", "Unknown", "NoAnswer", ago(h))).reached(ago(2 * m)), pending(Pending, 4*m, MachineCondition)},
		"what a provider knows has nothing to do with it": {with(NodePresent, machineSays("InfrastructureReady", "False", "HostDead", ago(h))).reached(ago(2 * m)), unhealthy(MachineCondition)},
		"in the end it counts":                            {with(NodePresent, unknown).reached(ago(6 * m)), unhealthy(MachineCondition)},
		"a later end of a pause counts":                   {with(NodePresent, unknown).reached(ago(h)).resumed(ago(m)), pending(Pending, 5*m, MachineCondition)},
	}.run(t, evidence)
}

func TestALookThatWaitsForTheNodeIsNotHeldAgainstTheMachine(t *testing.T) {
	const m, h = time.Minute, time.Hour
	judgeCases{
		"a worker that waited for its control plane":            {awaited(ago(m), machineSays(NodeReady, "Unknown", InspectionFailed, ago(h))), pending(Starting, 9*m, NodeStartup)},
		"a first control plane, which cannot be inspected yet":  {awaited(ago(m), machineSays("EtcdPodHealthy", "Unknown", InspectionFailed, ago(h))), pending(Starting, 9*m, NodeStartup)},
		"a pod that failed is another thing":                    {awaited(ago(m), machineSays("EtcdPodHealthy", "False", "Failed", ago(h))), unhealthy(MachineCondition, NodeStartup).until(9 * m)},
		"when the node is there, a failed inspection may count": {with(NodePresent, machineSays("EtcdPodHealthy", "Unknown", InspectionFailed, ago(h))), unhealthy(MachineCondition)},
	}.run(t, evidence)
}

// Seeds 003 and 004: "If a Machine fails for any reason (if the FailureReason is set), the machine is remediated immediately".
func TestAFailureThatIsFinalCountsAtOnce(t *testing.T) {
	const how = "FailureReason: CreateError"
	judgeCases{
		"with a node":                       {with(NodePresent).failed(how), unhealthy(MachineFailed)},
		"before a node":                     {awaited(noon).failed(how), unhealthy(MachineFailed, NodeStartup).until(10 * time.Minute)},
		"out of reach":                      {with(NodeUnseen).failed(how), unhealthy(MachineFailed)},
		"before the cluster is initialized": {behind(ControlPlaneNotInitialized, awaited(noon)).failed(how), unhealthy(MachineFailed)},
		"after a mark by hand":              {marked(with(NodePresent).failed(how)), unhealthy(MarkedByHand, MachineFailed)},
		"not before Cluster API has looked again after a pause": {with(NodePresent).failed(how).paused(), unknown()},
		"and after that at once":                                {with(NodePresent).failed(how).resumed(noon), unhealthy(MachineFailed)},
	}.run(t, evidence)
	if f := Judge(with(NodePresent).failed(how), evidence, noon).Findings[0]; f.Failure != how {
		t.Errorf("it says %q", f.Failure)
	}
}

func TestAFindingThatCountsLateSaysWhy(t *testing.T) {
	hostDown := machineSays("InfrastructureReady", "False", "HostDead", ago(time.Hour))
	for name, tc := range map[string]struct {
		given Target
		want  Doubt
	}{
		"after a pause":         {with(NodePresent, hostDown).resumed(ago(time.Minute)), NotSincePause},
		"after an outage":       {with(NodePresent, machineSays("EtcdPodHealthy", "Unknown", "", ago(time.Hour))).reached(ago(time.Minute)), NotSinceOutage},
		"not what turned since": {with(NodePresent, hostDown).resumed(ago(2 * time.Hour)), ""},
		"not without either":    {with(NodePresent, hostDown), ""},
	} {
		if got := Judge(tc.given, evidence, noon).Findings[0].Late; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
