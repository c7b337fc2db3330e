package powercycle

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// The walk visits situations that an obedient environment can reach if it is disturbed twice, by anything, at any moment; either at random,
// or all of them. Time is counted in ticks, and every timeout is one tick, so that a moment is only before or after a deadline.

const tick = time.Minute

var walked = Policy{Retries: 1, Timeout: tick, Boot: tick, Move: tick, Releasing: tick, Settle: tick, Doubt: tick, Watch: tick, Servicing: tick, Unreachable: tick, Queue: 2 * tick}

// scene is the environment and the remediation's memory. Moments are relative to noon, which is now.
type scene struct {
	f Facts
	// rising says that the host was asked to power on before it was kept off, and will come on all the same.
	rising bool
	// cured says that the node is healthy once it has booted after a power-off.
	cured bool
	// stubborn says that the node cannot be unfenced.
	stubborn bool
	// disturbances is how many disturbances may still come.
	disturbances int
}

// normal makes scenes equal that do not differ in anything that matters: it limits old moments, and clears what has no effect any more.
func (s scene) normal() scene {
	old := noon.Add(-3 * tick)
	for _, at := range s.f.clocks() {
		if !at.IsZero() && at.Before(old) {
			*at = old
		}
	}
	s.f.Attempt = min(s.f.Attempt, 3)
	f, acts := &s.f, s.f.acts()
	if f.Acted.After(f.Began) && acts {
		f.Began = f.Acted
	}
	f.Acted, f.SignSeen = time.Time{}, time.Time{}
	if !f.FencedAt.IsZero() {
		f.FencedAt = old
	}
	if !f.WasOff || !acts {
		f.Receipt, f.ReceiptAsked, f.ReceiptGiven, f.Doubt = time.Time{}, false, false, ""
		if !f.Asked.IsZero() {
			f.Asked = old
		}
	}
	f.Faulted = f.Faulted && (acts || f.State == PoweringOn)
	return s
}

// acts reports whether the host is, or is about to be, kept off or rebooted.
func (f Facts) acts() bool {
	return f.State == PoweringOff || f.State == MovingWorkload || f.State == Rebooting
}

// key encodes the scene in few bytes, because there are many scenes.
func (s scene) key() [21]byte {
	f, k, bits := s.f, [21]byte{}, uint64(0)
	k[0], k[1], k[2] = byte(slices.Index(order, f.State)), byte(f.Attempt), byte(s.disturbances)
	k[3] = byte(f.Machine)<<4 | byte(f.Host)<<2 | byte(f.Node)
	for i, at := range f.clocks() {
		k[4+i] = byte(noon.Sub(*at) / tick)
		if at.IsZero() {
			k[4+i] = 255
		}
	}
	for i, b := range []bool{
		f.Moved != "", f.WasOff, f.StartedUnhealthy, f.Fencing, f.Marked, f.Deleting, f.Finalizer, f.Healthy, f.OwnerAsked, f.ControlPlane, len(f.Ahead) == 0, f.Wanted, f.PoweredOn, f.Unmanaged == "",
		f.NoPowerOff, f.KeptOff, f.HasPowerAnnotations, f.RebootAsked, f.RebootPending, f.HostMarked, f.Fenced, f.FencedByUs, f.Drained, f.Unhealthy, s.rising, s.cured,
		f.Paused, !f.Memory.Paused.IsZero(), s.stubborn, f.Touched, f.KeptOffBy != "", f.Stop, f.Teardown, f.Faulted, f.Fails, f.HostAnew, f.Serviced,
		f.Provable, f.Doubt == "", f.ReceiptAsked, f.ReceiptGiven, f.OutOfReach, f.NewBoot, f.Person != "", f.Held,
		f.Lived, f.Sign.After(f.Memory.Sign), f.Disproved, f.Twin != "", f.Waited, f.SetAside, f.SwitchedOn,
	} {
		if b {
			bits |= 1 << i
		}
	}
	binary.LittleEndian.PutUint64(k[13:], bits)
	return k
}

// later returns the scene a tick later.
func (s scene) later() scene {
	if !s.f.stands() || s.f.Memory.Paused.IsZero() { // else the clocks stand still
		for _, at := range s.f.clocks() {
			if !at.IsZero() {
				*at = at.Add(-tick)
			}
		}
	}
	if s.rising { // a host that was about to come on is on
		s.rising, s.f.PoweredOn = false, true
	}
	return s
}

// stepped returns the scene after one step of the remediation.
func (s scene) stepped() (scene, Step) {
	step := Next(s.f, walked, noon)
	if s.stubborn && step.Do == Unfence {
		return s, step
	}
	s.f = Expect(s.f, step, noon)
	return s.normal(), step
}

// obeyed returns the scenes that follow if the environment does one thing that it was asked for.
func (s scene) obeyed() []scene {
	var next []scene
	add := func(change func(*scene)) {
		n := s
		change(&n)
		next = append(next, n.normal())
	}
	managed := s.f.Unmanaged == "" && s.f.Host != HostGone && !s.f.Fails && !s.f.Serviced
	if s.f.Serviced {
		add(func(n *scene) { n.f.Serviced, n.f.PoweredOn, n.rising, n.f.Healthy = false, true, false, false })
	}
	if managed && s.f.ReceiptAsked && !s.f.ReceiptGiven && !s.f.PoweredOn {
		add(func(n *scene) { n.f.ReceiptGiven = true })
	}
	if managed && s.f.KeptOff && s.f.PoweredOn && !s.f.NoPowerOff {
		add(func(n *scene) { n.f.PoweredOn, n.f.Healthy, n.rising = false, false, false })
	}
	if managed && !s.f.KeptOff && !s.f.PoweredOn && s.f.Wanted && s.f.KeptOffBy == "" && !s.rising {
		add(func(n *scene) { n.rising = true })
	}
	if s.rising {
		add(func(n *scene) { n.rising, n.f.PoweredOn = false, true })
	}
	if managed && s.f.RebootPending {
		add(func(n *scene) { n.f.RebootPending = false })
	}
	if (s.f.Fenced || s.f.Node == NodeAbsent) && !s.f.PoweredOn && !s.f.Drained {
		add(func(n *scene) { n.f.Drained = true })
	}
	if s.cured && s.f.PoweredOn && !s.f.Healthy && s.f.State == Booting && s.f.Node == NodePresent {
		add(func(n *scene) { n.f.Healthy = true })
	}
	return next
}

// disturbed returns the scenes that follow if anybody else interferes.
func (s scene) disturbed() []scene {
	if s.disturbances == 0 {
		return nil
	}
	var next []scene
	for _, change := range []func(*scene){
		func(n *scene) { n.f.Deleting = true },
		func(n *scene) { n.f.Stop = !n.f.Stop },
		func(n *scene) { n.f.Machine = min(n.f.Machine+1, MachineGone) },
		func(n *scene) { n.f.Host = HostGone },
		func(n *scene) { n.f.Host = HostForeign },
		func(n *scene) { n.f.Wanted = !n.f.Wanted },
		func(n *scene) { n.f.Unmanaged, n.f.SetAside = toggled(n.f.Unmanaged), false },
		func(n *scene) {
			n.f.SetAside = !n.f.SetAside
			n.f.Unmanaged = map[bool]string{true: "so"}[n.f.SetAside]
		},
		func(n *scene) { n.f.Ahead = []Ahead{{}}[len(n.f.Ahead):] },
		func(n *scene) { n.f.PoweredOn, n.f.Healthy, n.rising = !n.f.PoweredOn, false, false },
		func(n *scene) { n.f.KeptOff, n.f.HasPowerAnnotations = false, n.f.RebootAsked },
		func(n *scene) { n.f.Node = NodeUnseen },
		func(n *scene) { n.f.Node = NodePresent },
		func(n *scene) { n.f.Node, n.f.Fenced, n.f.FencedByUs = NodeAbsent, false, false },
		func(n *scene) { n.f.Fenced, n.f.FencedByUs = true, false },
		func(n *scene) { n.f.Healthy = !n.f.Healthy },
		func(n *scene) { n.f.Paused = !n.f.Paused },
		func(n *scene) { n.f.Teardown, n.disturbances = true, 1 }, // only one more, or the walk would be repeated
		func(n *scene) { n.f.NoPowerOff = !n.f.NoPowerOff },
		func(n *scene) { n.f.KeptOffBy = toggled(n.f.KeptOffBy) },
		func(n *scene) { n.f.Fails = !n.f.Fails && (n.f.acts() || n.f.State == PoweringOn) },
		func(n *scene) { n.f.Serviced = !n.f.Serviced },
		func(n *scene) { n.f.NewBoot = !n.f.NewBoot && n.f.acts() },
		func(n *scene) { // with the old boot ID
			if n.f.acts() || n.f.State == PoweringOn || n.f.State == Booting {
				n.f.Sign = n.f.Memory.Sign.Add(time.Second)
			}
		},
		func(n *scene) { n.f.OutOfReach = !n.f.OutOfReach && n.f.State == Booting },
		func(n *scene) {
			if n.f.Doubt = toggled(n.f.Doubt); !n.f.WasOff {
				n.f.Doubt = ""
			}
		},
		func(n *scene) { n.f.HostAnew = n.f.HasPowerAnnotations && n.f.acts() },
		func(n *scene) { n.stubborn = true },
		func(n *scene) { n.f.Disproved = !n.f.Disproved },
		func(n *scene) { n.f.Twin = map[string]string{"": "n2"}[n.f.Twin] },
		func(n *scene) { // a crash before Asked was stored
			if n.f.State == PoweringOff {
				n.f.Asked, n.f.WasOff = time.Time{}, false
			}
		},
	} {
		n := s
		change(&n)
		n.disturbances--
		next = append(next, n.normal())
	}
	if step := Next(s.f, walked, noon); step.Do.Intended() { // a crash after the step was stored, before it was done
		n := s
		n.f.Memory = After(s.f, step, noon)
		n.f.HostAnew = n.f.HostAnew && step.Do != KeepOff // Asked was stored
		n.disturbances--
		next = append(next, n.normal())
	}
	return next
}

func toggled(text string) string {
	if text == "" {
		return "so"
	}
	return ""
}

// wrong returns the safety rule that a step breaks; empty if it breaks none.
func wrong(s scene, step Step) string {
	f := s.f
	switch {
	case step.Do == Fence && (f.PoweredOn || s.rising || !f.KeptOff || f.HostAnew || f.Unmanaged != "" || f.Serviced || f.Asked.IsZero()):
		return "1: fences the node of a host that is not proven off by us"
	case step.Do == Fence && f.WasOff && (f.Receipt.IsZero() || !f.ReceiptGiven || !f.Provable):
		return "1: fences the node of a host that was off when asked, and of which nothing was said since"
	case step.Do == Fence && (f.NewBoot || f.Sign.After(f.Memory.Sign) && !f.SignSeen.IsZero()) && f.Looked:
		return "1: fences a node that shows life"
	case step.Next == RequestingOwner && f.State != RequestingOwner && f.State != Booting && f.Host == HostOurs && !f.faulted() && step.Reason != "QueueTimedOut":
		return "12: condemns a host for which nothing says that it is at fault"
	case step.Next == RequestingOwner && f.State != RequestingOwner && f.Host == HostGone && (f.Missing.IsZero() || noon.Before(f.Missing.Add(tick))):
		return "12: condemns a machine whose host is not to be found for a moment"
	case step.Next == RequestingOwner && f.State != RequestingOwner && f.Serviced && f.Host != HostGone:
		return "12: condemns a host that is being serviced"
	case step.Do == Fence && f.NoPowerOff:
		return "1: fences the node of a host that cannot be off"
	case f.State == MovingWorkload && step.Next == PoweringOn && f.Node == NodePresent && f.Twin == "" && !f.Drained && f.KeptOff && noon.Before(f.Began.Add(tick)):
		return "2: lets the host on before the workload has moved and before the deadline"
	case step.Do == Release && f.State == MovingWorkload && (f.moving() || !f.Paused && !f.NoPowerOff && !f.Disproved):
		return "2: releases a host in the middle"
	case step.Do == Wait && f.PoweredOn && f.FencedByUs && f.Node == NodePresent && !s.stubborn && f.Host != HostGone:
		return "2: leaves the fence on a node whose host is on"
	case step.Do == Wait && f.NewBoot && f.FencedByUs && f.Node == NodePresent && f.Looked && !s.stubborn && !f.State.Final():
		return "2: leaves the fence on a node that has booted"
	case step.Next.Final() && step.Reason != HostMismatchReason && f.State == MovingWorkload && f.moving() && f.Fenced && !f.Drained && f.Node == NodePresent &&
		!f.PoweredOn && !f.Serviced && !f.NewBoot && !f.HostAnew && f.Host != HostForeign && noon.Before(f.Memory.Deadline(walked)):
		return "2: ends while the workload of a host that is off is on its way"
	case step.Do == Unfence && f.Fenced && !f.Drained && !f.PoweredOn && !f.Serviced && !f.NewBoot && f.Sign.Equal(f.Memory.Sign) &&
		!f.HostAnew && f.Host != HostForeign && noon.Before(f.awake(false, noon).Deadline(walked)):
		return "2: removes the fence while the workload of a host that is off is on its way"
	case step.Do == KeepOff && f.State == PoweringOff && situation{Facts: f}.provenOff() && !f.HostAnew && !f.KeptOff:
		return "2: holds a host off again that was proven off and released"
	case (step.Do == KeepOff || step.Do == Reboot) && len(f.Ahead) > 0:
		return "4: holds a second control-plane host off"
	case step.Do == KeepOff && f.NoPowerOff:
		return "holds a host off that would be rebooted again and again"
	case f.stands() && step.Do != Wait && step.Do != Release && step.Do != Unfence:
		return "does more than to release the host, although it is paused"
	case (step.Do == KeepOff || step.Do == Reboot) && (f.Attempt == 0 || f.Attempt > walked.Attempts() || !f.Finalizer):
		return "5: acts on what was not counted"
	case step.Next == RequestingOwner && f.State != RequestingOwner && f.KeptOffBy != "" && f.Host == HostOurs && f.State != MovingWorkload && f.State != Rebooting:
		return "condemns a host that somebody keeps off"
	case (step.Do == KeepOff || step.Do == BeginAttempt) && f.Lived && !f.NewBoot && f.Sign.After(f.Memory.Sign) &&
		f.Node == NodePresent && f.Looked && !f.FencedByUs:
		return "4: power-cycles once more by a proof that was wrong"
	case (step.Do == KeepOff || step.Do == Reboot || step.Do == Fence || step.Do == BeginAttempt && f.State == Pending) && f.Disproved:
		return "4: power-cycles a host whose power was wrong before, without a person"
	case f.Twin != "" &&
		(step.Do == Fence || step.Do == RequestOwner || step.Do == BeginAttempt && (f.State == Pending || f.State == Booting)):
		return "fences, tries again or condemns a machine of which it is not known which node is its own"
	case step.Do == BeginAttempt && f.Attempt >= walked.Attempts():
		return "5: begins an attempt too many"
	case (step.Do == KeepOff || step.Do == Reboot || step.Do == MarkHost) && f.Host != HostOurs:
		return "touches somebody else's host"
	case (step.Do == KeepOff || step.Do == Reboot || step.Do == RequestOwner) && (f.Deleting || f.Stop):
		return "begins what is to end"
	case f.Teardown && slices.Contains([]Action{BeginAttempt, AddFinalizer, KeepOff, Reboot, Fence, MarkHost, RequestOwner}, step.Do) && !f.moving():
		return "begins something while kubemend leaves"
	case f.State.Final() && step.Next != f.State && step.Do != Withdraw:
		return "goes on after its end"
	case f.State != Stopped && step.Next == Stopped && !f.Stop:
		return "stops although no check has timed it out"
	case step.Do == RequestOwner && (f.Healthy || f.KeptOff || f.Host == HostOurs && !f.HostMarked):
		return "asks the owner of a healthy machine, or of one whose host is kept powered off or not marked"
	case !step.Next.Final() && step.Again.IsZero() && !f.Paused && f.Person == "":
		return "8: waits without an end"
	case step.Reason == "QueueTimedOut" && (len(f.Ahead) == 0 || f.Since.IsZero() || noon.Before(f.Since.Add(walked.Queue))):
		return "8: asks a person although its turn may still come"
	case step.Next == RequestingOwner && f.State != RequestingOwner && len(f.Ahead) > 0 && !f.KeptOff && f.Host == HostOurs && (f.State == Pending || f.State == Preparing):
		return "12: condemns a host for the wait for its turn"
	case step.Do == DropFinalizer && (f.HasPowerAnnotations || f.Node == NodePresent && f.FencedByUs && noon.Before(f.Since.Add(tick))):
		return "2: ends and has not released the host"
	}
	return ""
}

func (f Facts) faulted() bool { return f.Faulted || f.Fails }

// settles continues the scene without disturbances, in an environment that obeys or a dead one, and returns what stays undone; empty if
// nothing does. known are situations that are known to settle; all situations on the way are added to it.
func (s scene) settles(obeys bool, known map[[21]byte]bool) (undone string) {
	var way [][21]byte
	defer func() {
		for _, k := range way {
			known[k] = undone == ""
		}
	}()
	for range 200 {
		k := s.key()
		if known[k] {
			return ""
		}
		way = append(way, k)
		next, step := s.stepped()
		switch {
		case !reflect.DeepEqual(next, s):
			s = next
			continue
		case obeys && len(s.obeyed()) > 0:
			s = s.obeyed()[0]
			continue
		case !step.Again.IsZero() && !(step.Do == Unfence && s.f.Paused) && !reflect.DeepEqual(s.later().normal(), s):
			s = s.later().normal()
			continue
		}
		f := s.f
		switch {
		case s.stubborn && step.Do == Unfence && !f.State.Final():
			return "" // it is retried for ever, because nothing else can be done
		case f.Person != "" && !f.State.Final() && !f.Paused && !(f.FencedByUs && f.Node == NodePresent && f.PoweredOn):
			return "" // a person has to do something, and was asked; a host that is off keeps its fence until it is on
		case f.KeptOff || f.HasPowerAnnotations:
			return "the host is not released"
		case f.FencedByUs && f.Node == NodePresent && !s.stubborn:
			return "the node stays fenced"
		case f.Paused:
			s.f.Paused = false // a pause may last for ever, so that nothing may be kept off or fenced in it
			continue
		case !f.State.Final():
			return fmt.Sprintf("it stays in %s (%s)", f.State, step.Reason)
		case f.Finalizer:
			return "the finalizer stays"
		}
		return ""
	}
	return "it never settles"
}
