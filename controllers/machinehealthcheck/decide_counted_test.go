package machinehealthcheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// alone are the facts for a reader that has read one machine of f, and the status of the check after p.
func (f Facts) alone(i int, p *Plan) Facts {
	f.Targets, f.Verdicts = f.Targets[i:i+1], f.Verdicts[i:i+1]
	f.Counted = &StatusCounts{Total: p.Population.Total(), Healthy: p.Population.Healthy}
	f.Check = f.Check.DeepCopy()
	has(f.Check, p.Allowed)
	return f
}

func TestTheNumbersOfTheStatusDecideAsAllMachinesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		f.Limits.InFlight = budget.Unlimited
		all := Decide(f)
		for i := range f.Targets {
			one := Decide(f.alone(i, &all))
			if diff := cmp.Diff(all.Decisions[i], one.Decisions[0], cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("machine %d: -all machines read +one machine read\n%s", i, diff)
			}
			if got, want := one.Population.NotHealthy(), all.Population.NotHealthy(); got != want {
				t.Fatalf("%d are not healthy, want %d", got, want)
			}
		}
	})
}

func TestThePlaceInTheQueueIsNotKnownFromTheStatus(t *testing.T) {
	counted := func(f *Facts) { f.Counted = &StatusCounts{Total: 5, Healthy: 3} }
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"a machine that would wait in the queue": {facts(bad()).with(atOnce(1)).with(counted), true},
		"a machine that is pending":              {facts(is(health.Pending)).with(atOnce(1)).with(counted), true},
		"there is no queue":                      {facts(bad()).with(counted), false},
		"nothing starts anyway":                  {facts(bad()).with(atOnce(0)).with(counted), false},
		"too many are unhealthy anyway":          {facts(bad()).with(atOnce(1)).with(counted).with(func(f *Facts) { f.Limits.AtMost = 1 }), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.given).Decisions[0]
			if got := d.Blocked(QueueUnread); got != tc.want || got && d.Starts() {
				t.Errorf("blocked by %v, starts: %t", d.Blockers, d.Starts())
			}
		})
	}
}
