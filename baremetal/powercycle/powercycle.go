// Package powercycle is the state machine that brings one bare-metal host back: off, proven off, its workload moved, on, healthy again; or
// retried, or left to the owner of its machine.
//
// The machine is the table in table.go. Next finds the row of a situation in it and returns one step. Carrying the step out, and
// remembering what After says, is the caller's work. The package knows no client, no clock and no kind of object.
package powercycle

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

// State is where a remediation stands. It is finer than the phase that the API has (see Phase), and it is what is remembered.
type State string

const (
	// Pending has touched nothing and begun nothing.
	Pending State = "Pending"
	// Preparing is an attempt that has begun and holds no host yet.
	Preparing State = "Preparing"
	// PoweringOff holds the host off and waits until that is proven.
	PoweringOff State = "PoweringOff"
	// MovingWorkload has a host that is proven off. Its node is fenced, and what ran there moves.
	MovingWorkload State = "MovingWorkload"
	// PoweringOn no longer holds the host off and waits until it is seen on.
	PoweringOn State = "PoweringOn"
	// Rebooting has asked for one reboot of a host that cannot be held off.
	Rebooting State = "Rebooting"
	// Servicing has a host whose firmware is being written, which its operator does as soon as it is off. It is powered on for that,
	// whatever is asked of it, and boots in the end.
	Servicing State = "Servicing"
	// Booting waits for the machine to be healthy. It has a clock of its own.
	Booting State = "Booting"
	// RequestingOwner releases the host, marks it, and asks the owner of the machine to replace it.
	RequestingOwner State = "RequestingOwner"

	// Succeeded is the end of a remediation after which the machine was healthy.
	Succeeded State = "Succeeded"
	// OwnerRequested is the end of a remediation that the owner of the machine was asked to continue.
	OwnerRequested State = "OwnerRequested"
	// Failed is the end of a remediation that somebody else made impossible, or that must not touch what it finds.
	Failed State = "Failed"
	// Ended is the end of a remediation that is being deleted, or whose machine is.
	Ended State = "Ended"
	// Stopped is the end of a remediation that its health check has timed out, and that stays.
	Stopped State = "Stopped"
)

// Final reports whether s is an end: nothing follows but to release the host.
func (s State) Final() bool {
	return s == Succeeded || s == OwnerRequested || s == Failed || s == Ended || s == Stopped
}

// Known reports whether s is one of the states. What is remembered is in an annotation, in which users may write anything.
func (s State) Known() bool { return slices.Contains(order, s) }

// Action is one thing to do. All are safe to repeat.
type Action string

const (
	// Wait does nothing.
	Wait Action = "wait"
	// AskPerson does nothing but to say, once, that a person has to do something, and to remember that it was said.
	AskPerson Action = "ask a person"
	// waitForPerson stands in the table for AskPerson, and for Wait once that was done.
	waitForPerson Action = "wait for a person"
	// Advance does nothing but to remember the next state.
	Advance Action = "advance"
	// BeginAttempt remembers that one more attempt has begun. It is counted before anything is done for it.
	BeginAttempt Action = "begin an attempt"
	// KeepOff asks for the host to be powered off and kept off.
	KeepOff Action = "keep the host powered off"
	// AddFinalizer keeps the remediation until the host is released. It comes before anything is done to the host.
	AddFinalizer Action = "add the finalizer"
	// NoteAsked remembers that, and when, the host was asked to power off, if somebody else has asked: it was held off already for the
	// remediation.
	NoteAsked Action = "note that the host was asked"
	// NoteOn remembers that the host was seen on after it was asked: that it is off from now on was our doing.
	NoteOn Action = "note that the host is on"
	// AskReceipt asks the operator of a host that is held off to show that it has read the hardware since. It comes with the hold in one
	// write.
	AskReceipt Action = "ask for a receipt"
	// NoteReceipt remembers when it was seen that the operator has done so.
	NoteReceipt Action = "note the receipt"
	// Reboot asks for one reboot.
	Reboot Action = "reboot the host"
	// Fence lets what ran on the node start elsewhere, by the out-of-service taint.
	Fence Action = "fence the node"
	// Release takes every mark of ours off the host that acts on its power.
	Release Action = "release the host"
	// Unfence takes the taint of ours off the node.
	Unfence Action = "unfence the node"
	// MarkHost marks the host as unhealthy, so that no machine is put on it.
	MarkHost Action = "mark the host"
	// Disprove notes on the host that its node went on to live after it was proven off, so that no other remediation believes its power.
	Disprove Action = "note the disproved power-off"
	// RequestOwner asks the owner of the machine to remediate it.
	RequestOwner Action = "request owner remediation"
	// Withdraw undoes MarkHost and RequestOwner: the machine is healthy after all.
	Withdraw Action = "withdraw the request for owner remediation"
	// DropFinalizer lets the remediation be deleted.
	DropFinalizer Action = "drop the finalizer"
)

// Visible reports whether a does something that is to be seen on the host, the node or the machine afterwards, and not only remembered.
func (a Action) Visible() bool {
	return slices.Contains([]Action{KeepOff, AskReceipt, Reboot, Fence, Release, Unfence, MarkHost, Disprove, RequestOwner, Withdraw}, a)
}

// Remembered reports whether nothing but remembering is done for a: what a remediation does next can be decided at once.
func (a Action) Remembered() bool {
	return slices.Contains([]Action{AskPerson, Advance, BeginAttempt, AddFinalizer, NoteAsked, NoteOn, NoteReceipt}, a)
}

// Intended reports whether a is remembered before it is done, as if it was done already. After a crash in between the next reconcile sees
// that it was not, and it is done then; while what was done and is not remembered would be lost: that a host may be held off, that a node
// may be fenced, that a host is to be on again. All other actions are remembered once they are done.
func (a Action) Intended() bool {
	return slices.Contains([]Action{KeepOff, AskReceipt, Reboot, Fence, Release}, a)
}

// Machine is what there is of the machine.
type Machine int

const (
	// MachinePresent is there and stays.
	MachinePresent Machine = iota
	// MachineDeleting is being deleted.
	MachineDeleting
	// MachineGone does not exist, or another one has its name.
	MachineGone
)

// Host is what there is of the host.
type Host int

const (
	// HostOurs is there, and says that it belongs to the machine.
	HostOurs Host = iota
	// HostForeign is there, and says that it does not.
	HostForeign
	// HostGone is not there, or is being deleted, or nothing says which it is.
	HostGone
)

// Node is what there is of the node.
type Node int

const (
	// NodeUnseen may be there: the workload cluster could not be asked. It is the zero value, so that nothing is ever concluded from a read
	// that failed.
	NodeUnseen Node = iota
	// NodeAbsent is not there: the workload cluster itself said so, or the machine never had a node.
	NodeAbsent
	// NodePresent is there.
	NodePresent
)

// Memory is what a remediation remembers of itself. It is stored before an action that is intended, and after any other (see
// Action.Intended).
type Memory struct {
	State State `json:"state"`
	// Since is when State was entered.
	Since time.Time `json:"since,omitzero"`
	// Attempt counts the attempts that were begun.
	Attempt int `json:"attempt,omitempty"`
	// Began is when the current attempt was begun, Acted when it began to act on the host: its time counts from then.
	Began time.Time `json:"began,omitzero"`
	Acted time.Time `json:"acted,omitzero"`
	// Asked is when the host was asked to power off in this attempt; zero if it was not.
	Asked time.Time `json:"asked,omitzero"`
	// Said is when the operator of the host had said anything of it last when it was asked for a change of its power, by its own
	// clock. What it said before proves nothing.
	Said time.Time `json:"said,omitzero"`
	// WasOff says that the host was off when it was asked: it was not seen to go off because of us, so that only a receipt proves it.
	WasOff bool `json:"wasOff,omitempty"`
	// Held says that the host was seen to be held off for this attempt: that it is not any more means that it was released. It is not
	// stored, which would be one more write: after a restart such a host is asked once more to power off.
	Held bool `json:"-"`
	// Receipt is when the receipt was seen that was asked for after that; zero if it was not.
	Receipt time.Time `json:"receipt,omitzero"`
	// Sign is the last sign of life that the node had given when its host was proven off, SignSeen when that was looked at.
	Sign     time.Time `json:"sign,omitzero"`
	SignSeen time.Time `json:"signSeen,omitzero"`
	// Lived says that Sign is one that it gave under the boot of before while it was fenced. A kubelet that starts may renew its lease
	// before it says under which boot: only one more proves the proof wrong.
	Lived bool `json:"lived,omitempty"`
	// Faulted says that the power of the host was reported to fail in this attempt. Reports come and go while it is tried again.
	Faulted bool `json:"faulted,omitempty"`
	// Missing is since when the host cannot be found; zero if it can.
	Missing time.Time `json:"missing,omitzero"`
	// Person is the reason for which a person was asked in this state; empty if none was.
	Person Reason `json:"person,omitempty"`
	// Waited says that it has waited in this state for somebody else, who keeps the host off, or has paused or detached it.
	Waited bool `json:"waited,omitempty"`
	// SwitchedOn says that the host was off when it was released by others before its attempt began: it boots without being asked.
	SwitchedOn bool `json:"switchedOn,omitempty"`
	// Touched says that anything was asked of the host, in any attempt.
	Touched bool `json:"touched,omitempty"`
	// StartedUnhealthy says that the machine was seen to be bad before its host was touched. One that was not is rebooted because somebody
	// wants it, and does not become well by itself.
	StartedUnhealthy bool `json:"startedUnhealthy,omitempty"`
	// Fencing says that we may have fenced the node and have not taken it back.
	Fencing bool `json:"fencing,omitempty"`
	// FencedAt is since when the workload is on its way: the node was fenced, or seen to be fenced or gone. Zero if it is not.
	FencedAt time.Time `json:"fencedAt,omitzero"`
	// Unseen is since when the workload cluster cannot be asked, while the workload is to move.
	Unseen time.Time `json:"unseen,omitzero"`
	// Moved is the reason for which the workload was not waited for any longer; empty while it is.
	Moved Reason `json:"moved,omitempty"`
	// Marked says that we marked the host as unhealthy.
	Marked bool `json:"marked,omitempty"`
	// TakenOver says that somebody else had begun the remediation before any attempt of it was counted, CAPM3's controller or a kubemend
	// whose memory is lost: the host may be held off for it already, and its node be fenced.
	TakenOver bool `json:"takenOver,omitempty"`
	// Cause is the step that led to the end, or to the request for owner remediation; empty before.
	Cause Cause `json:"cause,omitzero"`
	// Paused is since when the remediation is paused; zero if it is not. All clocks stand still from then on.
	Paused time.Time `json:"paused,omitzero"`
}

// Power is what a host says of its power.
type Power struct {
	// Wanted says that its owner wants it on.
	Wanted bool
	// KeptOffBy is the annotation by which something else than a remediation keeps it powered off; empty if nothing does.
	KeptOffBy string
	// PoweredOn is what was last seen.
	PoweredOn bool
	// NoPowerOff says that it can only be rebooted.
	NoPowerOff bool
	// Unmanaged is why its operator does not act on what we ask now, as a clause for users; empty if it does.
	Unmanaged string
	// SetAside says that it is Unmanaged because somebody has paused or detached it, and will end that.
	SetAside bool
	// Serviced says that the firmware of the host is being written, or that this has failed and the host is not back.
	Serviced bool
	// External says that it is externally provisioned: a replacement could not be provisioned on it.
	External bool
	// Fails says that the operator reports that it cannot manage the power.
	Fails bool
	// Provable says that the operator reports whether it can manage the power, so that a receipt may be believed; Doubt is what it reports
	// against that, empty if it reports nothing.
	Provable bool
	Doubt    string
	// Said is when the operator has said anything of the host last, by its own clock; zero if it never has.
	Said time.Time
	// Trouble is the error that the operator reports; empty if there is none.
	Trouble string
}

// Same reports whether two answers differ in nothing that a step is decided on.
func (p Power) Same(q Power) bool {
	return p.Wanted == q.Wanted && p.PoweredOn == q.PoweredOn && p.NoPowerOff == q.NoPowerOff && p.KeptOffBy == q.KeptOffBy &&
		(p.Unmanaged == "") == (q.Unmanaged == "") && p.Serviced == q.Serviced && p.Provable == q.Provable &&
		(p.Doubt == "") == (q.Doubt == "")
}

// Marks are the annotations of a remediation on its host.
type Marks struct {
	// KeptOff says that the host is kept off.
	KeptOff bool
	// RebootAsked says that a reboot was asked for in this attempt, RebootPending that it was not carried out yet.
	RebootAsked, RebootPending bool
	// ReceiptAsked says that a receipt was asked for since the host was asked to power off, ReceiptGiven that the operator gave it.
	ReceiptAsked, ReceiptGiven bool
	// HasPowerAnnotations says that there is anything to remove when the remediation ends, the mark of an unhealthy host apart.
	HasPowerAnnotations bool
	// HostMarked says that the host is marked as unhealthy, for every generation of CAPM3.
	HostMarked bool
}

// Facts are the observed state, read once.
type Facts struct {
	Memory
	Power
	Marks

	// Deleting says that the remediation itself is being deleted; Finalizer, that it is kept until the host is released.
	Deleting, Finalizer bool
	// Stop says that the health check that asked for the remediation has timed it out.
	Stop bool
	// Paused says that the remediation or its cluster is to be left alone.
	Paused bool
	// Teardown says that kubemend itself is being removed: nothing goes on with what is under way.
	Teardown bool

	// Did is what was done last to host or node in this attempt and state.
	Did Did

	Machine Machine
	// Healthy says that the node is ready and that no health check calls the machine bad.
	Healthy bool
	// Unhealthy says that the machine was seen not to be healthy. A node that cannot be seen is neither.
	Unhealthy bool
	// OwnerAsked says that the owner of the machine was asked to remediate it, Ownerless that it has none.
	OwnerAsked, Ownerless bool

	// ControlPlane says that the machine is one; First, that no other remediation goes first (see Queue): of another control-plane host of
	// the cluster, or of the same machine.
	ControlPlane, First bool
	// ManagerHere says that it is not first for this alone: what takes these steps runs on the host. Placeless is the same of
	// RemediationPolicies, which let it not begin.
	ManagerHere, Placeless bool

	Host Host
	// HostAnew says that the host is not the object that was asked to power off, but another one of its name: what was asked of that, and
	// seen of it, is void.
	HostAnew bool
	// HostUnnamed says that there is none that could come back.
	HostUnnamed bool
	// Loop are the power cycles of the host before this one, none of which lasted, and LoopUntil is until when this one waits for that.
	Loop      repeats.Loop
	LoopUntil time.Time
	// Disproved says that an earlier power-off of the host was disproved, and no person has reset that.
	Disproved bool

	Node Node
	// Looked says that the node was asked for just now, and is not as a cache has it.
	Looked bool
	// Fenced says that the node is fenced, by whomever; FencedByUs, that there is something of this remediation's to remove.
	Fenced, FencedByUs bool
	// Inherited says that FencedByUs is true of a fence that another remediation has signed which is gone, or CAPM3, which signs nothing.
	Inherited bool
	// NodeMismatch says that the node is not the one that the machine had: it belongs to another machine, or has registered anew since.
	NodeMismatch bool
	// Twins says that several nodes have the provider ID of the machine: which of them runs on the host is not known.
	Twins bool
	// Drained says that nothing is left on the node, or of one that is gone, that would have to move.
	Drained bool
	// Idle says that attachments of volumes are left which nothing waits for.
	Idle bool
	// Discarded says that the workload cluster is gone or being deleted, or that another client deletes the node: a power cycle
	// does not wait for its workload then.
	Discarded bool
	// BootUnread says that there may be a node, and that under which boot it is will be known in a moment.
	BootUnread bool
	// OutOfReach says that the workload cluster cannot be reached, relevant or not; ClusterChanged that another one answers in its place.
	OutOfReach, ClusterChanged bool
	// Sign is the last sign of life of the node, by its own clock; zero if none is known. NewBoot says that it runs under another boot than
	// before the host was asked to power off, Up that it is ready under such a boot.
	Sign        time.Time
	NewBoot, Up bool
}

// Step is the answer: do this one thing, then be in that state. Message says it to users.
type Step struct {
	Reason Reason `json:"reason,omitempty"`
	Detail Detail `json:"detail,omitempty"`
	Do     Action `json:"do,omitempty"`
	// From is the state in which it is taken.
	From State `json:"from,omitempty"`
	Next State `json:"next,omitempty"`
	// Again is when to look again if nothing else is heard; zero if only an event can change anything.
	Again time.Time `json:"-"`
}

// Next returns the step for f. It is total: every state ends in a row that always matches.
func Next(f Facts, p Policy, now time.Time) Step {
	f.Paused = f.stands()
	f.Memory = f.awake(f.frozen(), now)
	if f.State == "" {
		f.State = Pending
	}
	if f.Since.IsZero() {
		f.Since = now // it is new; no patience has run out
	}
	if f.Node == NodeUnseen && f.Unseen.IsZero() {
		f.Unseen = now
	}
	if f.Host == HostGone && f.Missing.IsZero() {
		f.Missing = now
	}
	if f.Looked && f.SignSeen.IsZero() {
		f.Memory.Sign, f.SignSeen = f.Sign, now
	}
	s := situation{f, p, now}
	for _, row := range rowsOf[f.State] {
		if row.when.holds(s) {
			return s.step(row)
		}
	}
	// A state of a later version. To begin anew repeats nothing harmful: what holds the host is seen on the host. The attempt was
	// counted, though, and is not counted again.
	anew := Preparing
	if f.Attempt == 0 {
		anew = Pending
	}
	return Step{Do: Advance, From: f.State, Next: anew, Reason: StateUnknownReason, Again: now}
}
