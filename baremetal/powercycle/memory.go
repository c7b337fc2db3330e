package powercycle

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// After returns what to remember once step was carried out.
func After(f Facts, step Step, now time.Time) Memory {
	f.Paused = f.stands()
	before := f.Memory
	f.Memory = f.awake(f.frozen(), now)
	m := f.Memory
	if m.State != step.Next || m.Since.IsZero() || step.Do == Advance {
		m.State, m.Since = step.Next, now
	}
	m = m.did(f, step, now).acted(f, step, now).withAttempt(f, step, now)
	m.Cause = causeOf(f, step)
	m = m.withFence(f, step, now).withHost(f, step, now)
	if goesOn := f.frozen() && !before.Paused.IsZero(); goesOn && step.Do == Wait && step.Next == f.State {
		m.restore(before) // the same is remembered
	}
	return m
}

// withAttempt is m with why the workload is not waited for any more, and since when the attempt goes on: to wait for others takes nothing
// of its time. A host that they have kept off is switched on then.
func (m Memory) withAttempt(f Facts, step Step, now time.Time) Memory {
	leaves := step.Next == PoweringOn || step.Next == Servicing
	if leaves && (f.State == MovingWorkload || f.State == PoweringOff) {
		m.Moved = step.Reason
	}
	waits := !f.First && step.Do == Wait || step.Reason == HostReleasedByOthersReason
	if f.State == Preparing && waits {
		m.Began = now
	}
	if step.Reason == HostReleasedByOthersReason {
		m.SwitchedOn = !f.PoweredOn
	}
	m.SwitchedOn = m.SwitchedOn && (step.Next == Pending || step.Next == Preparing)
	return m
}

// Expect returns what the facts are once step was carried out, if nothing else changes: so the status can show at once what is waited for
// next.
func Expect(f Facts, step Step, now time.Time) Facts {
	memory := After(f, step, now)
	f = f.changed(step)
	if !memory.Asked.Equal(f.Asked) { // a receipt is one for what was asked last
		f.ReceiptAsked, f.ReceiptGiven = false, false
	}
	f.Memory = memory
	return f
}

// changed are the facts after an action, but for the memory.
func (f Facts) changed(step Step) Facts {
	switch step.Do {
	case BeginAttempt, AddFinalizer:
		f.Finalizer = true
	case KeepOff:
		f.KeptOff, f.HasPowerAnnotations, f.HostAnew, f.ReceiptAsked, f.ReceiptGiven = true, true, false, false, false
	case AskReceipt:
		f.ReceiptAsked, f.ReceiptGiven, f.HasPowerAnnotations = true, false, true
	case Reboot:
		f.RebootAsked, f.RebootPending, f.HasPowerAnnotations = true, true, true
	case Fence:
		f.Fenced, f.FencedByUs, f.Inherited = true, true, false
	case Release:
		f.Marks = Marks{HostMarked: f.HostMarked}
	case Unfence:
		f.Fenced, f.FencedByUs = false, false
	case MarkHost:
		f.HostMarked = true
	case Disprove:
		f.Disproved = true
	case RequestOwner:
		f.OwnerAsked = true
	case Withdraw:
		f.HostMarked, f.OwnerAsked = false, false
	case DropFinalizer:
		f.Finalizer = false
	}
	return f
}

// causeOf is why a remediation ends, or asks the owner, as far as it is known after step. The first cause counts: of a machine whose
// owner is asked it is what the last attempt failed for.
func causeOf(f Facts, step Step) Cause {
	switch over := step.Next.Final() || step.Next == RequestingOwner; {
	case !over:
		return Cause{}
	case f.Cause == Cause{} && f.State != step.Next, step.Next == Succeeded && f.State != Succeeded,
		step.Reason == HostExternalReason || step.Reason == OwnerlessReason: // more than that the attempts have not helped
		step.Again = time.Time{}
		return Cause{Step: step}
	}
	return f.Cause
}

// withFence is m with what there is to remember of the node. Before a node is fenced it is remembered that it may be: a crash right after
// that must not leave a fence that nothing removes. It is forgotten when the node was seen without one, once nothing can be
// fenced any more.
func (m Memory) withFence(f Facts, step Step, now time.Time) Memory {
	switch {
	case step.Next == MovingWorkload:
		m.Fencing = true
	case f.Node == NodePresent && !f.FencedByUs && f.Looked:
		m.Fencing = false
	}
	switch {
	case step.Next != MovingWorkload || f.Node != NodeUnseen:
		m.Unseen = time.Time{}
	case m.Unseen.IsZero():
		m.Unseen = now
	}
	return m.withFencedAt(f, step, now)
}

// withFencedAt is m with since when the workload is on its way, for as long as the fence may stand.
func (m Memory) withFencedAt(f Facts, step Step, now time.Time) Memory {
	switch fenced := step.Do == Fence || f.Looked && (f.Fenced || f.Node == NodeAbsent); {
	case step.Next != MovingWorkload && (!m.Fencing || step.Do == Unfence):
		m.FencedAt = time.Time{}
	case step.Next == MovingWorkload && m.FencedAt.IsZero() && fenced:
		m.FencedAt = now
	}
	return m
}

// withHost is m with what there is to remember of the host and of signs of life. What the host was seen to be before a sign of life proves
// nothing any more: only a receipt does then.
func (m Memory) withHost(f Facts, step Step, now time.Time) Memory {
	switch {
	case f.Host != HostGone || f.State.Final():
		m.Missing = time.Time{}
	case m.Missing.IsZero():
		m.Missing = now
	}
	if f.State == PoweringOff && step.Next != Preparing {
		m.Held = f.holding() || m.Held && !f.HostAnew
	}
	stays := step.Next == f.State && step.Do != Advance
	if stays && f.powerFails() && slices.Contains([]State{PoweringOff, PoweringOn, Rebooting}, f.State) {
		m.Faulted = true
	}
	if step.Reason == SignOfLifeReason && step.Do == Advance {
		m.Asked, m.Said, m.WasOff, m.Receipt = now, f.Power.Said, true, time.Time{}
	}
	return m.withSign(f, step, now)
}

// withSign is m with the last sign of life that the node had given when that was first looked at, once its host was proven off. It is
// kept for as long as the fence may stand; one that is seen to come under the boot of before is kept in its place.
func (m Memory) withSign(f Facts, step Step, now time.Time) Memory {
	proven := f.State == PoweringOff && step.Next == MovingWorkload
	stands := step.Next.Final() && m.Fencing || slices.Contains([]State{PoweringOff, MovingWorkload, PoweringOn, Booting}, step.Next)
	switch lived := step.Do == Unfence && f.livedOn(); {
	case proven, !stands:
		m.Sign, m.SignSeen, m.Lived = time.Time{}, time.Time{}, false
	case f.NewBoot:
		m.Lived = false
	case lived, m.SignSeen.IsZero() && step.Next == MovingWorkload && f.Looked && f.Node == NodePresent:
		m.Sign, m.SignSeen, m.Lived = f.Sign, now, lived
	}
	return m
}

// stands says that a pause keeps the remediation where it is. It does not while a workload moves, nor does it keep anybody from
// noticing that a reboot was carried out: that would else be asked for once more.
func (f Facts) stands() bool {
	noticing := f.State == Rebooting && f.RebootAsked && !f.RebootPending && f.Host != HostGone
	return f.Paused && !f.moving() && !noticing
}

// frozen says that the clocks stand still. They go on while a fence has to stay, which would else last as long as the pause.
func (f Facts) frozen() bool { return f.stands() && !f.keepsFence() }

// moving says that the workload of a fenced node is on its way, or may be. To let the host on before it has arrived could run it twice.
func (f Facts) moving() bool {
	return f.State == MovingWorkload && f.KeptOff && (f.Fenced || f.Node != NodePresent)
}

// keepsFence says that the fence on the node may not be removed before the attempt's deadline: the host is off, by all that is known, and
// its workload has not moved. On a node that is unfenced before, Kubernetes finishes neither its pods nor their volumes while the host is
// off.
func (f Facts) keepsFence() bool {
	return f.FencedByUs && f.Fenced && f.Node == NodePresent && f.workloadStays()
}

// workloadStays says that the workload of a fenced node can move, has not, and that nothing shows that the host is on, or about to be.
func (f Facts) workloadStays() bool {
	return !f.Drained && !f.Discarded && !f.PoweredOn && !f.HostAnew && !f.Serviced && f.Host != HostForeign && !f.livedOn()
}

// Deadline is the end of the attempt that m remembers, until its power-on was asked for. What it waited before it acted on the host takes
// nothing of its time. However short its time is, it leaves enough to prove that the host is off, and to move the workload then: else the
// host would be switched off and on for nothing.
func (m Memory) Deadline(p Policy) time.Time {
	began := m.Began
	if m.Acted.After(began) {
		began = m.Acted
	}
	end, least := began.Add(p.Timeout), time.Time{}
	switch {
	case m.State == PoweringOff && m.WasOff:
		least = began.Add(2*p.Settle + p.Doubt)
	case m.State == MovingWorkload:
		least = m.Since.Add(p.Move)
	}
	if least.After(end) {
		return least
	}
	return end
}

// clocks are the moments that patience is counted from.
func (m *Memory) clocks() []*time.Time {
	return []*time.Time{&m.Since, &m.Began, &m.Acted, &m.Asked, &m.Unseen, &m.Receipt, &m.Missing, &m.SignSeen, &m.FencedAt}
}

// restore makes the clocks of m be those of before.
func (m *Memory) restore(before Memory) {
	clocks := before.clocks()
	for i, at := range m.clocks() {
		*at = *clocks[i]
	}
	m.Paused = before.Paused
}

// awake is m with its clocks as they are at now: a pause stops them, and when it is over they go on from where they stood.
func (m Memory) awake(paused bool, now time.Time) Memory {
	if !m.Paused.IsZero() {
		lost := now.Sub(m.Paused)
		for _, at := range m.clocks() {
			if !at.IsZero() {
				*at = at.Add(lost)
			}
		}
	}
	if m.Paused = now; !paused {
		m.Paused = time.Time{}
	}
	return m
}

// did is m after something was done.
func (m Memory) did(f Facts, step Step, now time.Time) Memory {
	if step.Next == Preparing && (f.State != Preparing || step.Do == BeginAttempt) {
		m.Asked, m.Acted, m.Said, m.Receipt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		m.Held, m.WasOff, m.Faulted, m.Moved = false, false, false, ""
		if f.Paused {
			m.Began = now // it starts over, with all of its time
		}
	}
	if f.State == Preparing && (step.Next == PoweringOff || step.Next == Rebooting) {
		m.Acted = now
	}
	if step.Next != f.State || step.Do == Advance { // that the host could not be powered off says nothing of powering it on
		m.Person, m.Faulted, m.Waited = "", false, false
	}
	if step.Reason == HostReleasedByOthersReason {
		m.Said = f.Power.Said // an error of before is of the work of others
	}
	m.Waited = m.Waited || step.awaitsOthers(f)
	// Not only when the attempt begins: a node may not be in the cache yet then.
	m.StartedUnhealthy = m.StartedUnhealthy || f.Unhealthy && !m.Touched
	return m
}

// awaitsOthers says that s waits for somebody who keeps the host off, or has paused or detached it.
func (s Step) awaitsOthers(f Facts) bool {
	if s.Do != Wait && s.Do != AskPerson {
		return false
	}
	return s.Reason == HostSwitchedOffReason || s.Reason == HostKeptOffReason || s.Reason == HostNotReadyReason && f.SetAside
}

// acted is m after an action.
func (m Memory) acted(f Facts, step Step, now time.Time) Memory {
	switch step.Do {
	case BeginAttempt:
		if m.Attempt == 0 && f.Finalizer {
			m.TakenOver, m.Fencing = true, true
		}
		m.Attempt, m.Began, m.Since = m.Attempt+1, now, now
	case KeepOff, NoteAsked:
		m.Asked, m.Said, m.WasOff, m.Receipt, m.Touched = now, f.Power.Said, !f.PoweredOn || f.HostAnew, time.Time{}, true
	case NoteReceipt:
		m.Receipt = now
	case AskPerson:
		m.Person = step.Reason
	case Reboot:
		m.Said, m.Touched = f.Power.Said, true
	case Release:
		if f.State == PoweringOn {
			m.Said = f.Power.Said
		}
	case NoteOn:
		m.WasOff, m.Receipt = false, time.Time{}
	case Unfence:
		m.Fencing, m.TakenOver = false, false
	case MarkHost:
		m.Marked = true
	case Withdraw:
		m.Marked = false
	}
	return m
}

// NotAfter is m without moments after now: a clock that never expires would keep others in the queue waiting for ever.
func (m Memory) NotAfter(now time.Time) Memory {
	for _, at := range append(m.clocks(), &m.Paused) {
		if at.After(now) {
			*at = now
		}
	}
	return m
}

// Did is what was done last to host or node.
type Did = undone.Did[Action]

// Policy is how to remediate. Of a remediation it has Retries, Timeout and Boot; the rest is the same for all (see PolicyOf).
type Policy struct {
	// Retries is how many attempts may follow the first.
	Retries int
	// Timeout bounds an attempt until its power-on is asked for, then once more until the host is on. Boot bounds the time until the
	// machine is healthy after that: a large server takes longer for its self-test than all the rest does.
	Timeout, Boot time.Duration
	// Move is the least that an attempt has to move the workload once its host is proven off. Kubernetes deletes the pods of a node that is
	// out of service in rounds of 20 s (kube-controller-manager, podgc), and detaches its volumes after that.
	Move time.Duration
	// Releasing is the most that a remediation that is over waits for a node that cannot be unfenced.
	Releasing time.Duration
	// Settle is how long a host that was off when it was asked has to stay off until a receipt is asked for: BMO reads a host's power once
	// a minute, and may have asked it to power on just before. After as long without a receipt a person is asked.
	Settle time.Duration
	// Doubt is how old a receipt has to be before it is believed: BMO writes its conditions after it has given it.
	Doubt time.Duration
	// Watch is how long a node is watched that may live: four times as long as a kubelet takes to renew its lease, after which the
	// controller manager calls it silent.
	Watch time.Duration
	// Skew is by how much the clocks of a node and of the manager may differ without that being taken for a sign of life.
	Skew time.Duration
	// Registering is how long a host that is gone may take to be registered anew until a person is asked.
	Registering time.Duration
	// Servicing is how long the firmware of a host may be written until a person is asked. Some take tens of minutes for each component.
	Servicing time.Duration
	// Unreachable is how long to wait for the API of the workload cluster while a host is held off that it may itself run on.
	Unreachable time.Duration
	// Queue is how long a remediation waits for its turn until a person is asked to see why.
	Queue time.Duration
}

// PolicyOf is the policy of a remediation.
func PolicyOf(retries int, timeout, boot time.Duration) Policy {
	return Policy{
		Retries: retries, Timeout: timeout, Boot: boot, Move: 2 * time.Minute, Releasing: time.Hour,
		Settle: 90 * time.Second, Doubt: 5 * time.Second, Watch: 40 * time.Second, Skew: 5 * time.Second,
		Registering: time.Hour, Servicing: 2 * time.Hour, Unreachable: time.Minute, Queue: 2 * time.Hour,
	}
}

// Attempts is how many attempts there may be.
func (p Policy) Attempts() int { return 1 + max(p.Retries, 0) }
