package nodehealthcheck

import (
	"testing"
	"time"
)

// A step that cannot be requested is given up when its time is over, counted from the first try.
func TestTheStepAfterOneThatCannotBeRequested(t *testing.T) {
	two := steps(reboot(0), host2())
	refusals := func(a Refusal, more ...Refusal) func(*Facts) {
		return func(f *Facts) {
			f.Memory.Refusals = map[string]Refusal{"a": a}
			for _, b := range more {
				f.Memory.Refusals["b"] = b
			}
		}
	}
	no := func(ago time.Duration) Refusal { return Refusal{First: epoch.Add(-ago), Last: epoch.Add(-time.Second)} }
	down := func(ago time.Duration) Refusal {
		refusal := no(ago)
		refusal.Unanswered = true
		return refusal
	}
	const tooLong, long, short = 6 * time.Minute, 5 * time.Minute, 4 * time.Minute
	onSecond := lost(asked(on(1)))
	for name, tc := range map[string]struct {
		given Facts
		want  []int // the step that starts for each node
	}{
		"is not taken at once":             {of(lost()).with(two, refusals(no(short))), []int{0}},
		"is taken when the time is over":   {of(lost()).with(two, refusals(no(long))), []int{1}},
		"also if the webhook is down":      {of(lost()).with(two, refusals(down(long))), []int{1}},
		"the last one is tried on":         {of(lost()).with(steps(reboot(0)), refusals(no(long))), []int{0}},
		"nothing follows the only one":     {of(lost()).with(refusals(no(long))), []int{0}},
		"a lease that fails is no request": {of(lost()).with(two, refusals(Refusal{Last: epoch})), []int{0}},
		"for all that are refused":         {of(lost(), lost()).with(two, refusals(no(long), no(long))), []int{1, 1}},
		"for the first while it is down":   {of(lost(), lost()).with(two, refusals(down(long), down(tooLong))), []int{0, 1}},
		"for none while another is on it":  {of(lost(), onSecond).with(two, refusals(down(tooLong))), []int{0, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			for i, want := range tc.want {
				if got := p.Decisions[i].Start; got != want {
					t.Errorf("node %d: step %d starts, want %d", i, got, want)
				}
			}
		})
	}
}

// host2 is a template of another kind of requests than reboot.
func host2() Template {
	t := reboot(0)
	t.Name, t.Request.Kind = "replace", "Replace"
	return t
}

// A node that is healthy for less than a minute, and for less than its rule lasts, goes on with the step that it was on.
func TestTheStepAfterAShortRecovery(t *testing.T) {
	for name, tc := range map[string]struct {
		healthy time.Duration
		want    int
	}{
		"a recovery of less than a minute": {59 * time.Second, 1},
		"one of a minute":                  {time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(lost(asked(failed))).with(steps(reboot(0), host2()))
			at := func(after time.Duration, n Node) *Decision {
				n.Name, n.Object.UID = "a", "uid-a"
				f.Now, f.Nodes = epoch.Add(after), []Node{n}
				p := Decide(f)
				f.Memory = p.Memory
				return &p.Decisions[0]
			}
			at(0, healthy(asked(startedBefore(time.Minute), on(1))))
			at(time.Second, healthy())
			again := func() Node { return lost(since(-tc.healthy)) }
			at(tc.healthy, again())
			d := at(tc.healthy+5*time.Minute, again())
			if d.Start != tc.want {
				t.Errorf("step %d starts, want %d; %v", d.Start, tc.want, reasons(d.Blockers))
			}
		})
	}
}
