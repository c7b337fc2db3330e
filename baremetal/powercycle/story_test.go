package powercycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/golden"
)

// cast is an environment that does what it is asked, each thing in its time, except where spoil interferes.
type cast struct {
	f Facts
	// takes is how long things take; never if zero.
	off, receipt, move, on, boot, service time.Duration
	// fails says that it is reported if the power does not change.
	fails bool
	// asked is since when each thing has been under way.
	since map[string]time.Time
	spoil func(now time.Time, f *Facts)
}

// happen lets the environment go on until now.
func (c *cast) happen(now time.Time) {
	f := &c.f
	c.after("off", c.off, f.KeptOff && f.PoweredOn && f.Acts && !f.NoPowerOff && !f.Serviced, now, func() { f.PoweredOn, f.Healthy = false, false })
	c.after("receipt", c.receipt, f.ReceiptAsked && !f.ReceiptGiven && f.Acts, now, func() { f.ReceiptGiven = true })
	c.after("service", c.service, f.Serviced, now, func() { f.Serviced, f.PoweredOn, f.Drained = false, true, false })
	if fails := f.KeptOff && c.off == 0 || !f.KeptOff && !f.PoweredOn && c.on == 0; c.fails {
		f.PowerFails = fails
	}
	c.after("on", c.on, !f.KeptOff && !f.PoweredOn && f.Acts && f.Wanted, now, func() { f.PoweredOn, f.Drained = true, f.Node == NodeAbsent })
	c.after("reboot", c.on, f.RebootPending, now, func() { f.RebootPending, f.Healthy = false, false })
	c.after("move", c.move, f.Fenced && !f.PoweredOn && !f.Drained, now, func() { f.Drained = true })
	c.after("boot", c.boot, f.PoweredOn && !f.Healthy && f.State == Booting, now, func() { f.Healthy = true })
	if c.spoil != nil {
		c.spoil(now, f)
	}
}

func (c *cast) after(what string, takes time.Duration, under bool, now time.Time, done func()) {
	if !under || takes == 0 {
		delete(c.since, what)
		return
	}
	if _, begun := c.since[what]; !begun {
		c.since[what] = now
	}
	if !now.Before(c.since[what].Add(takes)) {
		delete(c.since, what)
		done()
	}
}

// play tells what happens until nothing more does, and returns the end.
func play(t *testing.T, c *cast) (Facts, string) {
	t.Helper()
	c.since = map[string]time.Time{}
	var story strings.Builder
	told := ""
	for now := noon; now.Before(noon.Add(6 * time.Hour)); {
		c.happen(now)
		step := Next(c.f, policy, now)
		if line := fmt.Sprintf("%-14s  %-22s  %s", step.Next, step.Do, strings.TrimSpace(fmt.Sprintf("%s %s", step.Reason, step.Detail))); line != told {
			fmt.Fprintf(&story, "%8s  %s\n", now.Sub(noon), line)
			told = line
		}
		still := step.Do == Wait && step.Again.IsZero()
		c.f = Expect(c.f, step, now)
		if asked := c.f.Person != "" && len(c.since) == 0; asked && still {
			return c.f, story.String() + "          and there it stays, until a person does something\n"
		}
		if still && len(c.since) == 0 && !c.f.Paused && !(c.f.Deleting && c.f.Finalizer) {
			return c.f, story.String()
		}
		if step.Do == Wait {
			now = now.Add(10 * time.Second)
		} else {
			now = now.Add(time.Second)
		}
	}
	t.Fatalf("it goes on for ever:\n%s", story.String())
	return Facts{}, ""
}

func TestStories(t *testing.T) {
	ordinary := func(changes ...func(*cast)) *cast {
		c := &cast{
			f:   Facts{Wanted: true, PoweredOn: true, Acts: true, First: true, Unhealthy: true, Looked: true, Provable: true, Sound: true},
			off: 20 * time.Second, receipt: time.Second, move: 30 * time.Second, on: 40 * time.Second, boot: 90 * time.Second, fails: true,
			service: 20 * time.Minute,
		}
		for _, change := range changes {
			change(c)
		}
		return c
	}
	from := func(at time.Duration, change func(*Facts)) func(*cast) {
		return func(c *cast) {
			c.spoil = func(now time.Time, f *Facts) {
				if !now.Before(noon.Add(at)) {
					change(f)
				}
			}
		}
	}
	stories := map[string]*cast{
		"the node comes back":                             ordinary(),
		"the node never comes back":                       ordinary(func(c *cast) { c.boot = 0 }),
		"the BMC is dead":                                 ordinary(func(c *cast) { c.off = 0 }),
		"the host does not come on":                       ordinary(func(c *cast) { c.on = 0 }),
		"the workload is stuck":                           ordinary(func(c *cast) { c.move = 0 }),
		"the workload cluster is silent":                  ordinary(func(c *cast) { c.f.Node = NodeUnseen }),
		"the only control plane is silent":                ordinary(func(c *cast) { c.f.Node, c.f.ControlPlane = NodeUnseen, true }),
		"the machine never had a node":                    ordinary(func(c *cast) { c.f.Node, c.f.Drained, c.boot = NodeAbsent, true, 0 }),
		"the host cannot be switched off":                 ordinary(func(c *cast) { c.f.NoPowerOff = true }),
		"the host was off":                                ordinary(func(c *cast) { c.f.PoweredOn, c.on = false, 40*time.Second }),
		"the host was off, and nothing is reported of it": ordinary(func(c *cast) { c.f.PoweredOn, c.receipt = false, 0 }),
		"the host is paused":                              ordinary(func(c *cast) { c.f.Acts = false }),
		"the operator does not act":                       ordinary(func(c *cast) { c.off, c.fails = 0, false }),
		"the host is serviced when it is off": ordinary(func(c *cast) {
			begun := false
			c.spoil = func(_ time.Time, f *Facts) {
				if !begun && !f.PoweredOn {
					begun, f.Serviced, f.PoweredOn = true, true, true
				}
			}
		}),
		"the node lives although its host shows off": ordinary(func(c *cast) {
			c.spoil = func(now time.Time, f *Facts) {
				f.NewBoot = f.Fenced && now.Sub(noon) < 5*time.Minute || f.NewBoot && now.Sub(noon) < 5*time.Minute
			}
		}),
		"the host is another object for a moment": ordinary(from(40*time.Second, func(*Facts) {}), func(c *cast) {
			c.spoil = func(now time.Time, f *Facts) {
				if f.Host = HostOurs; now.Sub(noon) > 30*time.Second && now.Sub(noon) < 50*time.Second {
					f.Host = HostGone
				}
			}
		}),
		"the machine recovers in time":         ordinary(func(c *cast) { c.f.Acts = false }, from(time.Minute, func(f *Facts) { f.Healthy = true })),
		"it is cancelled at once":              ordinary(from(0, func(f *Facts) { f.Deleting = true })),
		"it is cancelled in the middle":        ordinary(from(40*time.Second, func(f *Facts) { f.Deleting = true })),
		"its check times it out at once":       ordinary(from(0, func(f *Facts) { f.Stop = true })),
		"its check times it out in the middle": ordinary(from(40*time.Second, func(f *Facts) { f.Stop = true })),
		"the machine is deleted":               ordinary(from(40*time.Second, func(f *Facts) { f.Machine = MachineDeleting })),
		"the owner switches the host off":      ordinary(from(40*time.Second, func(f *Facts) { f.Wanted = false })),
		"the cluster is paused and moved": ordinary(func(c *cast) {
			c.spoil = func(now time.Time, f *Facts) {
				at := now.Sub(noon)
				f.Paused = at >= 30*time.Second && at < time.Hour
			}
		}),
		"the host is gone": ordinary(from(40*time.Second, func(f *Facts) { f.Host = HostGone })),
		"it is not its turn for a while": ordinary(func(c *cast) {
			c.f.ControlPlane = true
			c.spoil = func(now time.Time, f *Facts) { f.First = !now.Before(noon.Add(5 * time.Minute)) }
		}),
	}
	golden.Stories(t, stories, func(t *testing.T, c *cast) string {
		end, story := play(t, c)
		if end.Person != "" && !(end.FencedByUs && end.PoweredOn) {
			return story
		}
		if !end.State.Final() || end.HasPowerAnnotations || end.KeptOff || end.FencedByUs && end.Node == NodePresent || end.Finalizer {
			t.Errorf("it ends and has not released the host: %+v", end)
		}
		if end.Attempt > policy.Attempts() {
			t.Errorf("%d attempts, only %d allowed", end.Attempt, policy.Attempts())
		}
		if steps := strings.Count(story, "\n"); steps > 60 {
			t.Errorf("took %d steps: it spins", steps)
		}
		return story
	})
}
