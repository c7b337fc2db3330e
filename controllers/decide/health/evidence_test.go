package health

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"
)

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

// evidence has a rule with 5 minutes for each kind of writer: Cluster API's copy of a Node's condition, a condition that
// KubeadmControlPlane reads from a pod, a condition of an infrastructure provider, and a condition of the Node itself.
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
	if len(v.Void) != 1 || v.Void[0].Late != NodeDiffers || v.Void[0].Signal != notReadyMirror {
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

// TestAnOutageIsLeftOut has the conditions of Nodes.
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
		must.Is(t, tc.want, Judge(tc.given, evidence, noon).Findings[0].Late, "%s:", name)
	}
}

// A lastTransitionTime comes from another clock, or is missing. (After a power failure, a kubelet's clock may start in 2020.)
func TestSinceWhenAConditionCounts(t *testing.T) {
	const m, h = time.Minute, time.Hour
	notReady := func(stamp time.Time) []Signal { return []Signal{notReady(stamp)} }
	var first, healthy, bad, unruled = Seen{}, Seen{"node", ago(m), nil}, Seen{"node", ago(m), notReady(ago(h))}, Seen{Object: "node"}
	for name, tc := range map[string]struct {
		was   Seen
		blind bool
		stamp time.Time
		want  time.Duration // ago; negative: counts from now, because its lastTransitionTime cannot be true
	}{
		"since its stamp, at the first look":                              {first, false, ago(h), h},
		"a stamp older than the object, at the first look":                {first, false, ago(25 * h), -1},
		"none, at the first look":                                         {first, false, time.Time{}, -1},
		"one in the future, at the first look":                            {first, false, ago(-6 * h), -1},
		"it turned since the last look":                                   {healthy, false, ago(m), m},
		"it turned before, by a clock that is behind":                     {healthy, false, ago(45 * m), -1},
		"it turned, by one that is years behind":                          {healthy, false, noon.AddDate(-6, 0, 0), -1},
		"it turned, by one that is ahead":                                 {healthy, false, ago(-6 * h), -1},
		"it turned, and has no stamp":                                     {healthy, false, time.Time{}, -1},
		"it turned from another bad status":                               {Seen{"node", ago(m), []Signal{silent(ago(h))}}, false, ago(45 * m), -1},
		"a few seconds behind":                                            {healthy, false, ago(m + 10*time.Second), m + 10*time.Second},
		"a few seconds ahead":                                             {healthy, false, ago(-10 * time.Second), -10 * time.Second},
		"the same status under a new stamp":                               {bad, false, ago(time.Second), h},
		"the same status under none":                                      {bad, false, time.Time{}, h},
		"a new stamp after a time in which a turn would have been missed": {bad, true, ago(time.Second), time.Second},
		"after such a time, the stamp that it had":                        {bad, true, ago(h), h},
		"after such a time, one in the future":                            {bad, true, ago(-6 * h), h},
		"there was no rule about it at the last look":                     {unruled, false, ago(h), h},
		"what was seen was another object of the name":                    {Seen{"other", ago(m), notReady(ago(2 * h))}, false, ago(h), h},
	} {
		t.Run(name, func(t *testing.T) {
			want := notReady(ago(tc.want))[0]
			if tc.want == -1 {
				want.Since, want.Late = noon, NotSinceStamp
			}
			seen := tc.was.Next(Seen{"node", noon, notReady(tc.stamp)}, ago(24*h), tc.blind)
			must.Is(t, want, seen.Signals[0], "it is")
			if again := seen.Next(Seen{"node", noon.Add(h), notReady(tc.stamp)}, ago(24*h), false); again.Signals[0] != want {
				t.Errorf("an hour later it is %+v, and was %+v", again.Signals[0], want)
			}
		})
	}
}

// An outage is added to timeouts that were running when it began. A condition that is first seen afterwards counts from a minute after it.
func TestAnOutageIsLeftOut(t *testing.T) {
	const m = time.Minute
	pod := func(status string, since time.Time) Signal { return machineSays("EtcdPodHealthy", status, "", since) }
	for name, tc := range map[string]struct {
		before []Signal
		given  Signal
		outage Outage
		want   time.Duration // ago
		late   Doubt
	}{
		"it was running when the outage began":           {[]Signal{notReady(ago(9 * m))}, notReady(ago(9 * m)), Outage{ago(3 * m), noon, true}, 6 * m, ThroughOutage},
		"it is first seen":                               {nil, notReady(ago(9 * m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it is first seen later, and is older":           {nil, notReady(ago(9 * m)), Outage{Ended: ago(4 * m)}, 3 * m, NotSinceOutage},
		"it turned meanwhile":                            {[]Signal{readySince(ago(9 * m))}, notReady(ago(2 * m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it turned twice meanwhile":                      {[]Signal{notReady(ago(9 * m))}, notReady(ago(m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it turned since":                                {nil, notReady(ago(m)), Outage{Ended: ago(2 * m)}, m, ""},
		"it goes on after the look at which it was over": {[]Signal{notReady(ago(9 * m))}, notReady(ago(9 * m)), Outage{Ended: ago(m)}, 9 * m, ""},
		"its beginning was not seen":                     {[]Signal{pod("False", ago(9*m))}, pod("False", ago(9*m)), Outage{Ended: noon, Now: true}, -m, NotSinceOutage},
		"a look into the cluster that was running":       {[]Signal{pod("False", ago(9*m))}, pod("False", ago(9*m)), Outage{ago(3 * m), noon, true}, 6 * m, ThroughOutage},
		"what a provider knows":                          {nil, machineSays("InfrastructureReady", "False", "", ago(9*m)), Outage{ago(3 * m), noon, true}, 9 * m, ""},
	} {
		got := Seen{Signals: []Signal{tc.given}}.Through(Seen{Signals: tc.before}, tc.outage).Signals[0]
		if want := ago(tc.want); !got.Since.Equal(want) || got.Late != tc.late {
			t.Errorf("%s: it counts from %s for %q, want %s for %q", name, got.Since, got.Late, want, tc.late)
		}
	}
	began := Streaks{"Ready": {Began: ago(9 * m), Turned: ago(4 * m)}}
	for _, lasted := range []time.Duration{0, 3 * m} {
		want := Streak{Began: ago(9*m - lasted), Turned: ago(4*m - lasted)}
		must.Is(t, want, began.Later(lasted)["Ready"], "after an outage of %s a streak is", lasted)
	}
}

// An outage does not count for a streak.
func TestTimeWithoutContactIsNotCountedTogether(t *testing.T) {
	const m = time.Minute
	rules := []Rule{
		{Source: OnMachine, Type: "EtcdMemberHealthy", Status: "Unknown", For: 5 * m},
		{Source: OnMachine, Type: "EtcdMemberHealthy", Status: "False", For: 5 * m},
	}
	for name, tc := range map[string]struct {
		reason  string
		reached time.Time
		want    time.Duration // ago
	}{
		"the author looked, and did not know": {"InspectionFailed", time.Time{}, 9 * m},
		"the author had no connection":        {ConnectionDown, time.Time{}, m},
		"the cluster was out of reach":        {"InspectionFailed", ago(2 * m), m},
		"it was long before":                  {"InspectionFailed", ago(20 * m), 9 * m},
	} {
		streaks, _ := Streaks(nil).After([]Signal{machineSays("EtcdMemberHealthy", "Unknown", tc.reason, ago(9*m))}, rules, false, time.Time{})
		if !tc.reached.IsZero() {
			streaks, _ = streaks.After([]Signal{machineSays("EtcdMemberHealthy", "Unknown", tc.reason, ago(9*m))}, rules, false, tc.reached)
		}
		_, together := streaks.After([]Signal{machineSays("EtcdMemberHealthy", "False", "", ago(m))}, rules, false, tc.reached)
		if got := together[0].Since; !got.Equal(ago(tc.want)) {
			t.Errorf("%s: it counts from %s, want %s", name, got, ago(tc.want))
		}
	}
}

func TestAClockThatIsSetBackInAnOutageShortensNoTimeout(t *testing.T) {
	must.Is(t, 0, (Outage{Began: noon.Add(time.Hour), Ended: noon, Now: true}).Lasted(), "the outage lasted")
}
