package hostremediation

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// gathered are the samples of what a collector exports, by name and labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
	clock := clocktesting.NewFakePassiveClock(noon)
	u := &underWay{clock: clock}
	for name, s := range map[string]standing{
		"a": {powercycle.MovingWorkload, true, noon.Add(time.Hour)},
		"b": {powercycle.MovingWorkload, true, noon.Add(2 * time.Hour)},
		"c": {powercycle.Pending, false, time.Time{}},
		"d": {powercycle.Booting, false, noon},
	} {
		u.note("Own", client.ObjectKey{Namespace: "ns", Name: name}, s)
	}
	u.forget("Own", client.ObjectKey{Namespace: "ns", Name: "d"})
	u.forget("Metal3", client.ObjectKey{Namespace: "ns", Name: "a"}) // another kind's
	want := map[string]float64{
		"kubemend_host_remediations Own ns MovingWorkload": 2, "kubemend_host_remediations Own ns Pending": 1,
		"kubemend_hosts_held_off Own ns": 2, "kubemend_host_remediations_stuck Own ns": 0,
	}
	if got := gathered(t, u); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	clock.SetTime(noon.Add(time.Hour))
	want["kubemend_host_remediations_stuck Own ns"] = 1
	if got := gathered(t, u); !maps.Equal(got, want) {
		t.Errorf("an hour later %v, want %v", got, want)
	}
}

// W19.
func TestAPowerCycleIsCounted(t *testing.T) {
	before, over := gathered(t, attempts)["kubemend_host_remediation_attempts_total HostRemediation ns"], gathered(t, ends)
	k := rackOf(t)
	k.holdsOff()
	k.fences()
	k.releases()
	k.unfences()
	k.pass()
	k.power(false)
	k.pass()
	const heldNow = "kubemend_hosts_held_off HostRemediation ns"
	if got := gathered(t, current)[heldNow]; got != 1 {
		t.Errorf("%g hosts are held off, want 1", got)
	}
	k.seen.Drained = true
	k.pass()
	k.power(true)
	k.pass()
	if got := gathered(t, current)[heldNow]; got != 0 {
		t.Errorf("%g hosts are held off after it, want none", got)
	}
	if err := k.client.Delete(t.Context(), k.machine(t.Context())); err != nil {
		t.Fatal(err)
	}
	k.pass()
	if got := gathered(t, attempts)["kubemend_host_remediation_attempts_total HostRemediation ns"]; got != before+1 {
		t.Errorf("%g attempts, want %g", got, before+1)
	}
	const gone = "kubemend_host_remediations_finished_total HostRemediation ns MachineGone ended"
	if got := gathered(t, ends)[gone]; got != over[gone]+1 {
		t.Errorf("it did not end: %v", gathered(t, ends))
	}
	for name, n := range gathered(t, current) {
		if n != 0 {
			t.Errorf("%s is %g after the end", name, n)
		}
	}
}
