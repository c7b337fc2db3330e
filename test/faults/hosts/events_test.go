package hosts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/must"
)

// interruption is something that happens to a remediation at a standstill.
type interruption struct {
	id, name string
	do       func(*environment)
	// resumes means that what the remediation waits for happens after that.
	resumes bool
	// ends is the state in which the remediation then ends: empty for that of the standstill, "gone" if it is deleted.
	ends string
}

const stopsIt = "the remediation is timed out"

var interruptions = []interruption{
	{id: "N11", name: "the manager is killed", do: killed, resumes: true},
	{id: "N10", name: "the remediation is another object, as after a move", do: moved, resumes: true},
	{id: "C3, N2", name: "the remediation is deleted", do: deleted, ends: "gone"},
	{name: stopsIt, do: stopped, ends: "Stopped"},
	{id: "N3", name: "the Machine vanishes", do: func(e *environment) { e.vanish(e.management, e.machine()) }, ends: "Ended"},
	{
		id: "N3", name: "the Metal3Machine vanishes", ends: "OwnerRequested",
		do: func(e *environment) { e.vanish(e.management, e.management.At(betweenKind, e.at)) },
	},
}

// endOf returns the state in which the remediation of a standstill ends; one that has ended before stays as it is.
func (i interruption) endOf(s standstill) string {
	if i.ends == "" || s.state == "OwnerRequested" && i.ends != "gone" {
		return s.ends
	}
	return i.ends
}

// everyStandstill tries every interruption at every standstill.
func everyStandstill(t *testing.T, all *figures) {
	for _, i := range interruptions {
		for _, s := range standstills {
			for _, k := range kinds {
				if i.id == "" && !faults.Tries(i.name, s.state, k.Kind) { // an interruption with an id is the only test of a rule
					continue
				}
				t.Run(strings.TrimSpace(i.id+" "+i.name)+" while "+s.state+" of a "+k.Kind.Kind, func(t *testing.T) {
					t.Parallel()
					i.at(t, s, k)
					all.add(k)
				})
			}
		}
	}
}

func (i interruption) at(t *testing.T, s standstill, k kind) {
	t.Helper()
	script := []cue{s.there(i.do)}
	as := s.settings
	if i.resumes {
		script = append(script, cue{func(*environment) bool { return true }, s.resume})
	} else {
		own := as.box
		as.box = func(b *box) { // owner remediation is not requested for a machine that has recovered
			b.mute = -1
			if own != nil {
				own(b)
			}
		}
		// When nothing keeps it off any more, the host must come on.
		script = append(script, later(time.Hour, func(e *environment) {
			s.resume(e)
			e.box.revive()
		})...)
	}
	tl := tale{settings: as, script: script, ends: i.endOf(s), cycles: s.cycles}
	if tl.ends == "gone" {
		tl.ends = ""
	}
	p := tl.play(t, k, i.name+" while "+s.state, 0, "")
	if len(p.Orphans) > 0 {
		t.Errorf("orphans are left: %q\n%s", p.Orphans, p.story())
	}
	if !p.Powered {
		t.Errorf("the host stays off\n%s", p.story())
	}
	if i.resumes && p.cycles() != s.cycles {
		t.Errorf("%d power cycles, want %d\n%s", p.cycles(), s.cycles, p.story())
	}
	if i.name == stopsIt && tl.ends == "Stopped" {
		for _, c := range []string{nhcv1.ProcessingCondition, nhcv1.SucceededCondition} {
			must.Is(t, "False/TimedOutByCheck", p.Reported.Conditions[c], "condition %s is", c)
		}
	}
	if _, asked := p.Conditions[clusterv1.MachineOwnerRemediatedCondition]; asked != (tl.ends == "OwnerRequested") && p.machine() != nil && tl.ends != "" {
		t.Errorf("the owner of the machine was asked: %t", asked)
	}
}

// event is something that a partner program, a tenant, a person or bad luck does to a power cycle at any time.
type event struct {
	name string
	do   func(*environment)
	// needs is the name of an event that must come before.
	needs string
	// blames means that the host or the request is at fault, so that owner remediation may be requested.
	blames bool
}

// The events of a power cycle. Before the first ones the host ignores its orders and nothing leaves the node.
var (
	goesOff   = event{name: "the host goes off", do: func(e *environment) { e.box.model.Faults.IgnoresOff = false }}
	goesOn    = event{name: "it comes on", do: func(e *environment) { e.box.model.Faults.IgnoresOn = false }}
	podsLeave = event{name: "the pods leave", do: func(e *environment) { e.pods.stuck = false }}
	restarts  = event{name: "the manager restarts", do: killed}
	pauses    = event{name: "a pause begins", do: func(e *environment) { e.pause(true) }}
	goesOnToo = event{name: "the pause ends", do: func(e *environment) { e.pause(false) }, needs: "a pause begins"}
	lags      = event{name: "the caches lag", do: func(e *environment) { e.lag(true) }}
	catchesUp = event{name: "they catch up", needs: "the caches lag", do: func(e *environment) {
		e.lag(false)
		e.seen = -1
	}}
	breaks   = event{name: "the workload cluster is out of reach", do: func(e *environment) { e.pods.unreachable = true }}
	heals    = event{name: "it can be reached again", needs: breaks.name, do: func(e *environment) { e.pods.unreachable, e.seen = false, -1 }}
	recovers = event{name: "the node is Ready again", do: func(e *environment) { e.box.recover() }}
	cancels  = event{name: "the remediation is deleted", do: func(e *environment) {
		if e.remediation() != nil {
			deleted(e)
		}
	}}
	stops = event{name: "the remediation is timed out", do: func(e *environment) {
		if e.remediation() != nil {
			stopped(e)
		}
	}}
	machineGoes = event{name: "the Machine is deleted", do: func(e *environment) {
		if e.machine() != nil {
			e.vanish(e.management, e.machine())
		}
	}}
	released = event{name: "a person removes the hold", do: func(e *environment) {
		if h := e.host(); h != nil && heldOff(h) {
			e.editHost(func(h *bmov1alpha1.BareMetalHost) {
				for key := range h.Annotations {
					if strings.HasPrefix(key, "reboot.metal3.io/") {
						delete(h.Annotations, key)
					}
				}
			})
		}
	}}
	switchedOff = event{name: "the owner switches the host off", do: func(e *environment) {
		e.editHost(func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = false })
	}}
	switchedOn = event{name: "the owner switches it on again", needs: switchedOff.name, do: func(e *environment) {
		e.editHost(func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true })
	}}
)

// orders are sets of events; each set is tried in every order.
var orders = [][]event{
	{goesOff, podsLeave, goesOn, pauses, goesOnToo},
	{goesOff, podsLeave, goesOn, lags, catchesUp},
	{goesOff, podsLeave, goesOn, breaks, heals},
	{goesOff, podsLeave, goesOn, recovers, cancels},
	{goesOff, goesOn, pauses, goesOnToo, cancels},
	{goesOff, goesOn, lags, catchesUp, restarts},
}

// between is the time between two events.
const between = 20 * time.Second

// everyOrder plays the events of each set in every order.
func everyOrder(t *testing.T, all *figures) {
	for _, set := range orders {
		name := namesOf(set)
		for _, k := range kinds {
			t.Run(name+" with a "+k.Kind.Kind, func(t *testing.T) {
				t.Parallel()
				for order := range faults.Orders(set) {
					if happens(order) && faults.Tries(k.Kind, namesOf(order)) {
						playInOrder(t, k, order)
						all.add(k)
					}
				}
			})
		}
	}
}

func namesOf(events []event) string {
	names := make([]string, 0, len(events))
	for _, ev := range events {
		names = append(names, ev.name)
	}
	return strings.Join(names, ", ")
}

// happens reports whether each event of an order comes after the one that it needs.
func happens(order []event) bool {
	came := map[string]bool{"": true}
	for _, ev := range order {
		if !came[ev.needs] {
			return false
		}
		came[ev.name] = true
	}
	return true
}

func playInOrder(t *testing.T, k kind, order []event) {
	t.Helper()
	var names []string
	mayRecycle, cancelled, leave := false, false, true
	for _, ev := range order {
		names = append(names, ev.name)
		mayRecycle = mayRecycle || ev.name == pauses.name
		cancelled = cancelled || ev.name == cancels.name
		leave = leave && ev.name != podsLeave.name
	}
	e := newEnvironment(t, k, settings{mayRecycle: mayRecycle, box: func(b *box) {
		b.model.Faults.IgnoresOff, b.model.Faults.IgnoresOn, b.e.pods.stuck = true, true, !leave
	}})
	e.label = strings.Join(names, ", ")
	for _, ev := range order {
		e.until(between)
		ev.do(e)
	}
	e.run(func(e *environment) bool {
		if cancelled {
			return e.remediation() == nil
		}
		return e.memory() == string(powercycle.Succeeded) && !e.kept()
	})
	e.holds(!cancelled)
}

// holds checks what must be true at the end, whatever has happened.
func (e *environment) holds(healthy bool) {
	e.t.Helper()
	is := e.outcome()
	switch {
	case len(e.unsafe) > 0:
		e.t.Errorf("it was unsafe\n%s", e.story())
	case len(is.Orphans) > 0:
		e.t.Errorf("orphans are left: %q\n%s", is.Orphans, e.story())
	case e.host() != nil && e.host().Spec.Online && !is.Powered:
		e.t.Errorf("the host stays off\n%s", e.story())
	case healthy && is.Ready != "True":
		e.t.Errorf("the node is not Ready\n%s", e.story())
	case e.node() != nil && is.Node["example.org/rack"] != "7":
		e.t.Errorf("the node has lost its labels\n%s", e.story())
	}
}

// befalls are events that may happen right after a write, each with the event that ends it.
var befalls = []struct{ event, end event }{
	{event: cancels}, {event: stops}, {event: pauses, end: goesOnToo}, {event: breaks, end: heals}, {event: lags, end: catchesUp},
	{event: recovers}, {event: machineGoes}, {event: released}, {event: switchedOff, end: switchedOn},
}

// everyMoment tries each of these events right after every write of some tales.
func everyMoment(t *testing.T, all *figures) {
	for _, b := range befalls {
		for _, tl := range []tale{tales[0], tales[3]} {
			for _, k := range kinds {
				t.Run(fmt.Sprintf("%s: %s by a %s", b.event.name, tl.name, k.Kind.Kind), func(t *testing.T) {
					t.Parallel()
					plain := tl.play(t, k, "undisturbed", 0, "")
					for nth := 1; nth <= len(plain.done); nth++ {
						if !faults.Tries(t.Name(), nth) {
							continue
						}
						as := tl.settings
						as.mayRecycle = slices.Contains([]string{pauses.name, released.name, lags.name, switchedOff.name}, b.event.name)
						as.remembers = b.event.name == lags.name
						e := newEnvironment(t, k, as)
						e.label = fmt.Sprintf("%s after write %d (%s)", b.event.name, nth, plain.done[nth-1])
						e.writes.Then = func(n int) {
							if n == nth {
								b.event.do(e)
								e.alarm = e.clock.Now().Add(5 * time.Minute)
							}
						}
						if b.end.do != nil {
							e.script = []cue{{func(e *environment) bool { return !e.alarm.IsZero() && !e.clock.Now().Before(e.alarm) }, b.end.do}}
						}
						e.run(ended)
						e.holds(false)
						all.add(k)
					}
				})
			}
		}
	}
}

// ended reports whether nothing is left to do for the remediation.
func ended(e *environment) bool {
	rem := e.remediation()
	return rem == nil || memoryOf(rem).State.Final() && !e.kept()
}
