package hostremediation

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// gathered returns the samples that a collector exports, by name and labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	must.Do(t, err)
	samples := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				name = append(name, l.GetValue())
			}
			samples[strings.Join(name, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return samples
}

func TestWhatIsUnderWayIsCounted(t *testing.T) {
	clock, r := clocktesting.NewFakePassiveClock(noon), &Reconciler{Kind: remediation.Own}
	u := &UnderWay{Clock: clock, Reconcilers: []*Reconciler{r, {Kind: remediation.Metal3}}}
	for name, s := range map[string]progress{
		"a": {state: powercycle.MovingWorkload, keptOff: true, since: noon.Add(-time.Minute), due: noon.Add(time.Hour)},
		"b": {state: powercycle.MovingWorkload, keptOff: true, since: noon.Add(-time.Hour), due: noon.Add(2 * time.Hour)},
		"c": {state: powercycle.Pending},
		"d": {state: powercycle.Booting, due: noon},
	} {
		r.kept.Store(client.ObjectKey{Namespace: "ns", Name: name}, kept{progress: s})
	}
	r.kept.Delete(client.ObjectKey{Namespace: "ns", Name: "d"})
	want := map[string]float64{
		"kubemend_host_remediations HostRemediation ns MovingWorkload": 2, "kubemend_host_remediations HostRemediation ns Pending": 1,
		"kubemend_hosts_kept_powered_off HostRemediation ns": 2, "kubemend_host_remediations_stuck HostRemediation ns": 0,
		"kubemend_hosts_kept_powered_off_oldest_timestamp_seconds HostRemediation ns": float64(noon.Add(-time.Hour).Unix()),
	}
	if got := gathered(t, u); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	clock.SetTime(noon.Add(time.Hour))
	want["kubemend_host_remediations_stuck HostRemediation ns"] = 1
	if got := gathered(t, u); !maps.Equal(got, want) {
		t.Errorf("an hour later %v, want %v", got, want)
	}
	r.kept.Delete(client.ObjectKey{Namespace: "ns", Name: "a"})
	r.kept.Store(client.ObjectKey{Namespace: "ns", Name: "b"}, kept{}) // it is over
	want = map[string]float64{
		"kubemend_host_remediations HostRemediation ns Pending": 1, "kubemend_hosts_kept_powered_off HostRemediation ns": 0, "kubemend_host_remediations_stuck HostRemediation ns": 0,
	}
	if got := gathered(t, u); !maps.Equal(got, want) {
		t.Errorf("when no host is held off any more %v, want %v", got, want)
	}
}

// One alert about an unreachable cluster is enough for all remediations that wait for it.
func TestWhoWaitsForAPersonIsCountedByCluster(t *testing.T) {
	r := &Reconciler{Kind: remediation.Own}
	u := &UnderWay{Clock: clocktesting.NewFakePassiveClock(noon), Reconcilers: []*Reconciler{r}}
	for name, s := range map[string]progress{
		"a": {cluster: "c1", state: powercycle.Booting, person: "ClusterUnreachable"}, "b": {cluster: "c1", state: powercycle.Booting, person: "ClusterUnreachable"},
		"c": {cluster: "c2", state: powercycle.Booting, person: "ClusterUnreachable"}, "d": {cluster: "c2", state: powercycle.Booting, person: "OperatorSilent"},
		"e": {cluster: "c2", state: powercycle.Booting},
	} {
		r.kept.Store(client.ObjectKey{Namespace: "ns", Name: name}, kept{progress: s})
	}
	const name = "kubemend_host_remediations_waiting_for_person "
	got, want := gathered(t, u), map[string]float64{
		name + "c1 HostRemediation ns ClusterUnreachable": 2, name + "c2 HostRemediation ns ClusterUnreachable": 1, name + "c2 HostRemediation ns OperatorSilent": 1,
	}
	maps.DeleteFunc(got, func(sample string, _ float64) bool { return !strings.HasPrefix(sample, name) })
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhyANodeWasNotFencedIsCountedOnceItsAttemptIsPastThat(t *testing.T) {
	past := func(next powercycle.State, reason powercycle.Reason) powercycle.Step {
		return powercycle.Step{Do: powercycle.Advance, Next: next, Reason: reason}
	}
	for name, tc := range map[string]struct {
		was    powercycle.State
		step   powercycle.Step
		node   powercycle.Node
		fenced bool
		want   string
	}{
		"the BMC did not answer in time":           {was: powercycle.PoweringOff, step: past(powercycle.RequestingOwner, "PowerOffTimedOut"), want: "PowerOffTimedOut"},
		"one that may answer yet is waited for":    {was: powercycle.PoweringOff, step: powercycle.Step{Do: powercycle.Wait, Next: powercycle.PoweringOff, Reason: "PowerOffFailed"}},
		"the host could not be proven off":         {was: powercycle.PoweringOff, step: past(powercycle.PoweringOn, "FencingImpossible"), want: "FencingImpossible"},
		"the host was serviced instead":            {was: powercycle.PoweringOff, step: past(powercycle.Servicing, "HostServiced"), want: "HostServiced"},
		"somebody may act yet":                     {was: powercycle.Preparing, step: powercycle.Step{Do: powercycle.Wait, Next: powercycle.Preparing, Reason: "HostNotReady"}},
		"the host must not be powered off":         {was: powercycle.Preparing, step: past(powercycle.Rebooting, "PowerOffDisabled"), want: "PowerOffDisabled"},
		"the cluster could not be asked":           {was: powercycle.MovingWorkload, step: past(powercycle.PoweringOn, "ClusterUnreachable"), node: powercycle.NodeUnseen, want: "ClusterUnreachable"},
		"the fence was refused":                    {was: powercycle.MovingWorkload, step: past(powercycle.PoweringOn, "WorkloadStuck"), want: "WorkloadStuck"},
		"the host was serviced before the fence":   {was: powercycle.MovingWorkload, step: past(powercycle.Servicing, "HostServiced"), want: "HostServiced"},
		"a node that is fenced, and not yet empty": {was: powercycle.MovingWorkload, step: past(powercycle.PoweringOn, "WorkloadStuck"), fenced: true},
		"a node that is gone needs no fence":       {was: powercycle.MovingWorkload, step: past(powercycle.PoweringOn, "NodeGone"), node: powercycle.NodeAbsent},
		"an end that somebody else made":           {was: powercycle.MovingWorkload, step: past(powercycle.Ended, "Cancelled")},
	} {
		t.Run(name, func(t *testing.T) {
			w := &observed{facts: powercycle.Facts{Memory: powercycle.Memory{State: tc.was}, Node: tc.node, Fenced: tc.fenced}}
			must.Is(t, tc.want, unfencedFor(w, tc.step))
		})
	}
}

func TestAnAttemptWhoseHostIsNotSeenOffCountsAsUnfenced(t *testing.T) {
	const name = "kubemend_host_remediation_attempts_unfenced_total c HostRemediation ns PowerOffTimedOut"
	before := gathered(t, unfenced)[name]
	k := fixtureOf(t)
	k.host.Status.OperationalStatus, k.host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.PowerManagementError
	k.expects(powersOff, releases, powersOff, releases, marks)
	k.pass()
	k.wait(10 * time.Minute)
	k.wait(10 * time.Minute)
	if got := gathered(t, unfenced)[name]; got != before+2 {
		t.Errorf("%g of two attempts count", got-before)
	}
}

func TestAFenceThatStaysIsCountedOnce(t *testing.T) {
	const name = "kubemend_host_fences_left_total HostRemediation ns"
	before, unfencedBefore := gathered(t, fencesLeft)[name], gathered(t, unfenced)
	k := fixtureOf(t)
	k.expects(powersOff, fences, releases)
	k.reaches(powercycle.MovingWorkload)
	fenced := k.seen
	k.seen = fence.Seen{Presence: powercycle.NodeUnseen}
	k.wait(10 * time.Minute) // the workload is not waited for any longer
	if got := gathered(t, unfenced); !maps.Equal(got, unfencedBefore) {
		t.Errorf("its node, which was fenced, counts as unfenced: %v", got)
	}
	k.edit(func(rem *mendv1.HostRemediation) {
		rem.Annotations[nhcv1.TimedOutAnnotation] = "now" // it stops, and stays
	})
	k.pass()
	if got := gathered(t, fencesLeft)[name]; got != before {
		t.Error("it counts while the node may be seen again in time")
	}
	k.wait(10 * time.Minute)
	if got := gathered(t, fencesLeft)[name]; got != before+1 {
		t.Errorf("%g fences stay, want 1", got-before)
	}
	k.expects(unfences)
	k.seen = fenced
	k.wait(10 * time.Minute)
	if got := gathered(t, fencesLeft)[name]; got != before+1 {
		t.Errorf("%g fences stay, want the same one still", got-before)
	}
}

// W19.
func TestAPowerCycleIsCounted(t *testing.T) {
	before, over := gathered(t, attempts)["kubemend_host_remediation_attempts_total HostRemediation ns"], gathered(t, ends)
	k := fixtureOf(t)
	k.expects(powersOff, fences, releases, unfences)
	k.reaches(powercycle.Booting)
	k.deletes(k.machine(t.Context()))
	k.pass()
	if got := gathered(t, attempts)["kubemend_host_remediation_attempts_total HostRemediation ns"]; got != before+1 {
		t.Errorf("%g attempts, want %g", got, before+1)
	}
	const gone = "kubemend_host_remediations_finished_total HostRemediation ns MachineGone ended"
	if got := gathered(t, ends)[gone]; got != over[gone]+1 {
		t.Errorf("it did not end: %v", gathered(t, ends))
	}
	for name, n := range gathered(t, &UnderWay{Clock: k.clock, Reconcilers: []*Reconciler{k.r}}) {
		if n != 0 {
			t.Errorf("%s is %g after the end", name, n)
		}
	}
}

func TestABootIsNotStuckWithinItsOwnTimeout(t *testing.T) {
	w := &observed{policy: powercycle.PolicyOf(1, 10*time.Minute, 20*time.Minute)}
	w.record.Since = noon
	for state, want := range map[powercycle.State]time.Duration{powercycle.PoweringOn: 11 * time.Minute, powercycle.Booting: 21 * time.Minute} {
		w.record.State = state
		must.Is(t, want, stuckAt(w).Sub(noon), "%s is stuck after", state)
	}
}
