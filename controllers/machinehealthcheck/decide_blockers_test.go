package machinehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

func TestWhatBlocksARemediation(t *testing.T) {
	const minute = time.Minute
	forever := func(t *givenMachine) { t.Verdict.Recheck = time.Time{} }
	recheck := func(t *givenMachine) { t.Verdict.Recheck = noon.Add(minute) }
	cyclesUnread := func(f *Facts) { f.CyclesUnread = noon.Add(minute) }
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason // of the first machine
	}{
		"nothing blocks an unhealthy machine":     {facts(bad()), nil},
		"a healthy machine is not unhealthy":      {facts(is(health.Healthy)), []Reason{NotUnhealthy}},
		"a pending machine is within its timeout": {facts(is(health.Pending)), []Reason{WithinTimeout}},
		"a starting machine too":                  {facts(is(health.Starting)), []Reason{WithinTimeout}},
		"also if it starts without a timeout":     {facts(is(health.Starting, forever)), []Reason{WithinTimeout}},
		"a machine of an unreachable cluster is unjudged": {
			facts(is(health.Unknown)).with(func(f *Facts) { f.Link = health.Down }), []Reason{ClusterUnreachable},
		},
		"so is one whose node could not be asked for": {facts(is(health.Unknown)), []Reason{NodeNotSeen}},
		"so is one that Cluster API has not looked at since a pause": {
			facts(is(health.Unknown, unjudgedSincePause)), []Reason{AwaitsClusterAPI},
		},
		"so is one whose control plane is not initialized": {facts(is(health.Unknown, func(t *givenMachine) {
			t.Verdict.Gate = health.ControlPlaneNotInitialized
		})), []Reason{ControlPlaneNotInitialized}},
		"so is one whose infrastructure is not ready": {facts(is(health.Unknown, func(t *givenMachine) {
			t.Verdict.Gate = health.InfrastructureNotReady
		})), []Reason{InfrastructureNotReady}},
		"so is any while clocks differ by more than a timeout": {facts(is(health.Unknown, func(t *givenMachine) {
			t.Verdict.Gate = health.ClockWrong
		})), []Reason{ManagerClockWrong}},
		"W2: a machine that is being deleted": {facts(bad(deleting)), []Reason{MachineDeleting}},
		"a machine of an older check":         {facts(bad(olderActs)), []Reason{OlderCheckActs}},
		"a machine that another check remediates": {
			facts(bad(besideCheck(Opinion{Heard: true, InFlight: true}))), []Reason{OtherCheckRemediates},
		},
		"a machine that another check has not judged yet": {facts(bad(besideCheck(Opinion{}))), []Reason{OtherCheckUnheard}},
		"which it has not for ten minutes":                {facts(bad(besideCheck(Opinion{}))).with(knownSince("a", CyclesUnreadFor)), nil},
		"a failure that the node contradicts":             {facts(bad(saidToFail)).with(capacityMissing), []Reason{FailureContradicted}},
		"a check that is not acted on":                    {facts(bad()).with(observe), []Reason{NotActing}},
		"an update in place that has failed": {
			facts(bad(condOf(clusterv1.MachineUpdatingCondition, "True", clusterv1.MachineInPlaceUpdateFailedReason))), nil,
		},
		"one against which there is a rule": {facts(bad(updatingNow, ruledOut)), nil},
		"one of more than two hours":        {facts(bad(updatingFor(2 * time.Hour))), nil},
		"one of less":                       {facts(bad(updatingFor(time.Hour))), []Reason{MachineUpdating}},
		"one of more that has made progress": {
			facts(bad(updatingFor(5*time.Hour), turnedAgo(clusterv1.MachineUpToDateCondition, time.Hour))), []Reason{MachineUpdating},
		},
		"one of more without progress": {
			facts(bad(updatingFor(5*time.Hour), turnedAgo(clusterv1.MachineUpToDateCondition, 2*time.Hour))), nil,
		},
		"one of more whose machine a check has marked": {
			facts(bad(updatingFor(5*time.Hour), turnedAgo(HealthCheckSucceeded, time.Hour), turnedAgo(clusterv1.MachineReadyCondition, 0))), nil,
		},
		"one of more that turns tomorrow, by the clock of its kubelet": {
			facts(bad(updatingFor(5*time.Hour), turnedAgo(clusterv1.MachineNodeReadyCondition, -24*time.Hour))), nil,
		},
		"one of more on a host whose firmware is written": {
			facts(bad(onHost, updatingFor(2*time.Hour), withHost(Host{Serviced: true}))), []Reason{MachineUpdating},
		},
		"one of more on a host that was not read yet": {facts(bad(onHost, updatingFor(2*time.Hour))), []Reason{MachineUpdating}},
		"no owner":                              {facts(bad(unowned)), []Reason{NoOwner}},
		"no owner, where a template needs none": {byRequests(bad(unowned)), nil},
		"a host that is externally provisioned": {
			facts(bad(onHost, withHost(Host{External: true}))), []Reason{HostExternal},
		},
		"a host whose Metal3Machine is paused": {facts(bad(onHost, withHost(Host{Paused: true}))), []Reason{HostPaused}},
		"a host, where power cycles are requested": {
			byRequests(bad(onHost, withHost(Host{External: true, Paused: true}))), nil,
		},
		"a first node that never came, as those of machines before it": {
			facts(bad(unstarted)).with(former(2 * time.Hour)), []Reason{RemediationLoop},
		},
		"until its wait is over": {
			facts(bad(unstarted)).with(former(2*time.Hour), func(f *Facts) { f.Now = noon.Add(30 * time.Second) }), nil,
		},
		"no longer than the start-up timeout": {
			facts(bad(unstarted)).with(former(2*time.Hour, 3*time.Hour, 4*time.Hour), func(f *Facts) { f.Policy.NodeStartup = 30 * time.Second }), nil,
		},
		"a first node that never came, while it is not known what was before": {
			facts(bad(unstarted)).with(func(f *Facts) { f.FormerAwaited = f.Now.Add(time.Second) }), []Reason{RemediationLoop},
		},
		"nothing of that for a machine that had one": {
			facts(bad(unstarted, func(t *givenMachine) { t.Status.NodeRef.Name = "node" })).with(func(f *Facts) {
				f.FormerAwaited = f.Now.Add(time.Second)
			}), nil,
		},
		"nor when that has taken too long":          {facts(bad(unstarted)).with(func(f *Facts) { f.FormerAwaited = f.Now }), nil},
		"none of a machine that was made with them": {facts(bad(unstarted)).with(former(time.Minute)), nil},
		"none of a machine that had a node": {
			facts(bad(unstarted, func(t *givenMachine) { t.Status.NodeRef.Name = "node" })).with(former(2 * time.Hour)), nil,
		},
		"none of one that a person has marked": {facts(bad(unstarted, byPerson)).with(former(2 * time.Hour)), nil},
		"an update in place":                   {facts(bad(updatingNow)), []Reason{MachineUpdating}},
		"a power cycle":                        {facts(bad(cycled)), []Reason{PowerCycleInProgress}},
		"power cycles that cannot be read":     {facts(bad(onHost)).with(cyclesUnread), []Reason{PowerCyclesUnread}},
		"but only on a host":                   {facts(bad()).with(cyclesUnread), nil},
		"too many":                             {facts(bad()).with(tooMany), []Reason{TooManyUnhealthy}},
		"too few":                              {facts(bad()).with(tooFew), []Reason{TooFewUnhealthy}},
		"no place by a RemediationPolicy":      {facts(bad()).with(noPlace), []Reason{Reason(place.GroupInFlight)}},
		"a limit that cannot be read":          {facts(bad()).with(invalid), []Reason{InvalidLimit}},
		"a request that is not the check's": {
			byRequests(bad(foreign)), []Reason{RequestInTheWay},
		},
		"a template that is missing":             {facts(bad()).with(missing), []Reason{TemplateMissing}},
		"a template that can be none":            {facts(bad()).with(refused), []Reason{TemplateRefused}},
		"a template of no use":                   {byRequests(bad(unusable)), []Reason{TemplateUnusable}},
		"requests that are not known":            {facts(bad()).with(unknown), []Reason{RequestsUnread}},
		"a change that may be the first of many": {facts(bad()).with(limitsMatter), []Reason{JustSeen}},
		"all that has to change is said": {
			facts(bad(olderActs, updatingNow)).with(tooMany), []Reason{OlderCheckActs, MachineUpdating, TooManyUnhealthy},
		},
		"nothing blocks what is in flight already":                   {facts(bad(asked)).with(tooMany), nil},
		"nor do an update and a power cycle":                         {facts(bad(asked, updatingNow, cycled)), nil},
		"nor do requests that are not known, if its owner was asked": {facts(bad(refuses)).with(unknown), nil},
		"a healthy machine that is marked so":                        {facts(is(health.Healthy, markedHealthy)), []Reason{NotUnhealthy}},
		"a mark by hand is the way out of an update that never ends": {facts(bad(updatingNow, byPerson)), nil},
		"to one that is being deleted a power cycle is no matter":    {facts(bad(deleting, cycled)), []Reason{MachineDeleting}},
		"nor are power cycles that cannot be read": {
			facts(bad(deleting, onHost)).with(cyclesUnread), []Reason{MachineDeleting},
		},
		"nor that its node cannot be seen": {facts(is(health.Unknown, deleting)), []Reason{MachineDeleting}},
		"a power cycle is known although others cannot be read": {
			facts(bad(onHost, cycled)).with(cyclesUnread), []Reason{PowerCycleInProgress},
		},
		"of what is due it is no matter what else would be later": {facts(bad(recheck)), nil},
		"a machine that starts, of which nothing is known since a pause": {
			facts(is(health.Starting, forever, unjudgedSincePause)), []Reason{AwaitsClusterAPI},
		},
		"a pending one, of which something is not known since a pause": {
			facts(is(health.Pending, unjudgedSincePause)), []Reason{WithinTimeout},
		},
		"an unknown one whose timeout runs all the same": {
			facts(is(health.Unknown, recheck)), []Reason{NodeNotSeen, WithinTimeout},
		},
		"a request in the way of one that is pending": {
			byRequests(is(health.Pending, foreign)), []Reason{WithinTimeout, RequestInTheWay},
		},
		"a template that is missing, while requests are not known": {facts(bad()).with(missing, unknown), []Reason{TemplateMissing}},
		"limits that cannot be read go before all others": {
			facts(bad()).with(invalid, tooMany), []Reason{InvalidLimit},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var got []Reason
			for _, b := range p.Decisions[0].Blockers {
				got = append(got, b.Rule)
			}
			must.List(t, tc.want, got, "blocked by")
		})
	}
}

// blockerEnd is a blocker, and when time alone ends it.
type blockerEnd struct {
	by    Reason
	until time.Time
}

func (d *Decision) blockerEnds() []blockerEnd {
	var all []blockerEnd
	for _, blocker := range d.Blockers {
		all = append(all, blockerEnd{blocker.Rule, blocker.Until})
	}
	return all
}

// A rule that says why a machine is not judged now does not block its later remediation.
func TestWhichBlockersAreOfMachinesThatAreNotJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"a cluster that is not reached":          {facts(is(health.Unknown)).with(func(f *Facts) { f.Link = health.Down }), true},
		"a node that is not seen":                {facts(is(health.Unknown)), true},
		"what Cluster API has not looked at":     {facts(is(health.Unknown, unjudgedSincePause)), true},
		"a timeout that runs":                    {facts(is(health.Pending)), false},
		"a limit":                                {facts(bad()).with(tooMany), false},
		"a machine that nothing is held against": {facts(is(health.Healthy)), false},
	} {
		if got := Decide(tc.given).Decisions[0].Blockers[0]; got.unjudged != tc.want {
			t.Errorf("%s: %s says that the machine is not judged: %t", name, got.Rule, got.unjudged)
		}
	}
}
