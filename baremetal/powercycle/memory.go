package powercycle

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/undone"
)

// After returns what the remediation remembers once step was carried out.
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
		m.Paused = before.Paused // nothing changed in the pause: another moment in the record would be one more write
		for i, at := range m.clocks() {
			*at = *before.clocks()[i]
		}
	}
	return m
}

// withAttempt returns m with the reason in Moved, and with a new Began after a wait for the queue or for other clients, because such waits
// do not count against the attempt. A host that others have released may be booting (SwitchedOn).
func (m Memory) withAttempt(f Facts, step Step, now time.Time) Memory {
	leaves := step.Next == PoweringOn || step.Next == Servicing
	if leaves && (f.State == MovingWorkload || f.State == PoweringOff) {
		m.Moved = step.Reason
	}
	waits := len(f.Ahead) > 0 && step.Do == Wait || step.Reason == HostReleasedByOthersReason
	if f.State == Preparing && waits {
		m.Began = now
	}
	if step.Reason == HostReleasedByOthersReason {
		m.SwitchedOn = !f.PoweredOn
	}
	m.SwitchedOn = m.SwitchedOn && (step.Next == Pending || step.Next == Preparing)
	return m
}

// Expect returns the facts after step if nothing else changes. The status uses them to show at once what the remediation waits for next.
func Expect(f Facts, step Step, now time.Time) Facts {
	memory := After(f, step, now)
	f = f.changed(step)
	if !memory.Asked.Equal(f.Asked) { // a receipt for an earlier request does not count
		f.ReceiptAsked, f.ReceiptGiven = false, false
	}
	f.Memory = memory
	return f
}

// changed returns the facts after the action of step, except for the memory.
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

// causeOf returns the step that led to the final state or to the request for owner remediation. The first such step is kept, because it
// says why the last attempt failed.
func causeOf(f Facts, step Step) Cause {
	switch over := step.Next.Final() || step.Next == RequestingOwner; {
	case !over:
		return Cause{}
	case f.Cause == Cause{} && f.State != step.Next, step.Next == Succeeded && f.State != Succeeded,
		step.Reason == HostExternalReason || step.Reason == OwnerlessReason: // these say more than that the attempts have failed
		step.Again = time.Time{}
		return Cause{Step: step}
	}
	return f.Cause
}

// withFence returns m with what there is to remember of the node. Fencing is set before the node is fenced: if the manager crashes right
// after, the fence must still be removed. It is cleared when the node was seen without our fence, once no fence can follow.
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

// withFencedAt returns m with FencedAt, which stays as long as the fence may be on the node.
func (m Memory) withFencedAt(f Facts, step Step, now time.Time) Memory {
	switch fenced := step.Do == Fence || f.Looked && (f.Fenced || f.Node == NodeAbsent); {
	case step.Next != MovingWorkload && (!m.Fencing || step.Do == Unfence):
		m.FencedAt = time.Time{}
	case step.Next == MovingWorkload && m.FencedAt.IsZero() && fenced:
		m.FencedAt = now
	}
	return m
}

// withHost returns m with what there is to remember of the host. After a sign of life nothing that was seen of the host's power counts any
// more, and only a receipt proves that the host is off.
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

// withSign returns m with the node's last sign of life at the first look after the host was proven off. It stays as long as the fence may
// be on the node. A later sign with the old boot ID replaces it.
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

// stands reports whether a pause stops the remediation. It does not stop one whose workload moves, or whose reboot was carried out and only
// has to be noted: after the pause such a reboot would be requested again.
func (f Facts) stands() bool {
	noticing := f.State == Rebooting && f.RebootAsked && !f.RebootPending && f.Host != HostGone
	return f.Paused && !f.moving() && !noticing
}

// frozen reports whether the clocks stand still. They run while the fence has to stay: else the fence would stay as long as the pause.
func (f Facts) frozen() bool { return f.stands() && !f.keepsFence() }

// moving reports whether the workload of a fenced node may be moving. If the host were powered on now, the workload could run twice.
func (f Facts) moving() bool {
	return f.State == MovingWorkload && f.KeptOff && (f.Fenced || f.Node != NodePresent)
}

// keepsFence reports whether the fence has to stay until the attempt's deadline, because the host seems off and its workload has not moved.
// If the node is unfenced earlier, Kubernetes removes neither its pods nor its volume attachments while the host is off.
func (f Facts) keepsFence() bool {
	return f.FencedByUs && f.Fenced && f.Node == NodePresent && f.workloadStays()
}

// workloadStays reports whether a workload can move and has not, while nothing shows that the host is on or about to be.
func (f Facts) workloadStays() bool {
	return !f.Drained && !f.Discarded && !f.PoweredOn && !f.HostAnew && !f.Serviced && f.Host != HostForeign && !f.livedOn()
}

// Deadline returns the end of the attempt's time for everything before the request to power on. The wait before the attempt acted on the
// host does not count. A short timeout is extended so that the host can be proven off and its workload can move: else the host would be
// power-cycled for nothing.
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

func (m *Memory) clocks() []*time.Time {
	return []*time.Time{&m.Since, &m.Began, &m.Acted, &m.Asked, &m.Unseen, &m.Receipt, &m.Missing, &m.SignSeen, &m.FencedAt}
}

// awake returns m with clocks that do not count a pause: at its end they are moved by its length. If paused, Paused is now.
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

// did returns m with what changes when the state changes or the attempt begins.
func (m Memory) did(f Facts, step Step, now time.Time) Memory {
	if step.Next == Preparing && (f.State != Preparing || step.Do == BeginAttempt) {
		m.Asked, m.Acted, m.Said, m.Receipt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		m.Held, m.WasOff, m.Faulted, m.Moved = false, false, false, ""
		if f.Paused {
			m.Began = now // the attempt starts over after the pause, with its whole timeout
		}
	}
	if f.State == Preparing && (step.Next == PoweringOff || step.Next == Rebooting) {
		m.Acted = now
	}
	if step.Next != f.State || step.Do == Advance { // a failed power-off says nothing about the power-on
		m.Person, m.Faulted, m.Waited = "", false, false
	}
	if step.Reason == HostReleasedByOthersReason {
		m.Said = f.Power.Said // an earlier power error was not caused by our request
	}
	m.Waited = m.Waited || step.awaitsOthers(f)
	// This is noted until the host is touched, not only when the attempt begins: the node may not be in the cache yet then.
	m.StartedUnhealthy = m.StartedUnhealthy || f.Unhealthy && !m.Touched
	return m
}

// awaitsOthers reports whether s waits for a client that keeps the host off, or has paused or detached it.
func (s Step) awaitsOthers(f Facts) bool {
	if s.Do != Wait && s.Do != AskPerson {
		return false
	}
	return s.Reason == HostSwitchedOffReason || s.Reason == HostKeptOffReason || s.Reason == HostNotReadyReason && f.SetAside
}

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

// NotAfter returns m without moments after now, which would never time out, and would keep other remediations in the queue waiting.
func (m Memory) NotAfter(now time.Time) Memory {
	for _, at := range append(m.clocks(), &m.Paused) {
		if at.After(now) {
			*at = now
		}
	}
	return m
}

// Did is the last action on the host or the node.
type Did = undone.Did[Action]

// Policy says how to remediate. Retries, Timeout and Boot are set for each remediation; PolicyOf sets the rest, the same for all.
type Policy struct {
	// Retries is how many attempts may follow the first.
	Retries int
	// Timeout bounds an attempt until the power-on is requested, and then bounds the power-on. Boot bounds the time from power-on until the
	// machine is healthy: the self-test of a large server takes longer than all the rest.
	Timeout, Boot time.Duration
	// Move is the least time that an attempt has to move the workload once the host is proven off. Kubernetes deletes the pods of an
	// out-of-service node in rounds of 20 s (kube-controller-manager, podgc), and detaches their volumes after that.
	Move time.Duration
	// Releasing bounds how long a finished remediation waits for a node that cannot be unfenced.
	Releasing time.Duration
	// Settle is how long a host that was already off must stay off before a receipt is requested: BMO reads the power once a minute, and
	// may just have powered the host on. If no receipt comes for as long again, a person is asked.
	Settle time.Duration
	// Doubt is how old a receipt must be before it counts: BMO writes its conditions after it has given the receipt.
	Doubt time.Duration
	// Watch is how long a node that may be alive is watched before it is fenced: the duration of its lease, renewed every 10 s.
	Watch time.Duration
	// Skew is how much the clocks of node and manager may differ before the difference counts as a sign of life.
	Skew time.Duration
	// Registering is how long a missing host may take to be registered again before a person is asked.
	Registering time.Duration
	// Servicing is how long a firmware update may take before a person is asked. Some components take tens of minutes each.
	Servicing time.Duration
	// Unreachable is how long to wait for the workload cluster's API while the host that is kept off may serve that API.
	Unreachable time.Duration
	// Queue is how long a remediation waits in the queue before a person is asked to look into it.
	Queue time.Duration
}

// PolicyOf returns the policy for a remediation with these settings.
func PolicyOf(retries int, timeout, boot time.Duration) Policy {
	return Policy{
		Retries: retries, Timeout: timeout, Boot: boot, Move: 2 * time.Minute, Releasing: time.Hour,
		Settle: 90 * time.Second, Doubt: 5 * time.Second, Watch: 40 * time.Second, Skew: 5 * time.Second,
		Registering: time.Hour, Servicing: 2 * time.Hour, Unreachable: time.Minute, Queue: 2 * time.Hour,
	}
}

// Attempts returns how many attempts there may be.
func (p Policy) Attempts() int { return 1 + max(p.Retries, 0) }
