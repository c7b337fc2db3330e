// Package powercycle is the state machine that power-cycles one bare-metal host: power off, prove it off, move its workload, power on, wait
// until the machine is healthy. If that fails, the machine retries, or asks the owner of the Machine to replace it.
//
// Next finds the row of the table (table.go) that matches the facts, and returns one step. The caller carries the step out, and stores what
// After returns. The package has no client and no clock. "BMO" in comments is whatever manages the host's power, "ours" is what this
// remediation wrote.
// A "receipt" is BMO's sign that it has read the power from the BMC: BMO removes the annotation reboot.metal3.io only after that.
package powercycle

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

// State is the stored state of a remediation. The phase in the API is coarser.
type State string

const (
	// Pending means that no attempt has begun, and that nothing was changed.
	Pending State = "Pending"
	// Preparing means that an attempt has begun, and that the host was not yet asked to power off.
	Preparing State = "Preparing"
	// PoweringOff keeps the host powered off, and waits for proof that the host is off.
	PoweringOff State = "PoweringOff"
	// MovingWorkload means that the host is proven off. The node is fenced, and its workload moves.
	MovingWorkload State = "MovingWorkload"
	// PoweringOn has stopped keeping the host off, and waits until the host is seen on.
	PoweringOn State = "PoweringOn"
	// Rebooting asks for one reboot, because the host cannot be kept off (spec.disablePowerOff).
	Rebooting State = "Rebooting"
	// Servicing waits while BMO writes the host's firmware. BMO begins that as soon as the host is off, powers the host on for it, and
	// boots the host afterwards, whatever the annotations say.
	Servicing State = "Servicing"
	// Booting waits for the machine to be healthy. The boot timeout applies.
	Booting State = "Booting"
	// RequestingOwner releases the host, marks the host unhealthy, and asks the owner of the machine to replace the machine.
	RequestingOwner State = "RequestingOwner"

	// Succeeded is final: the machine became healthy.
	Succeeded State = "Succeeded"
	// OwnerRequested is final: the owner of the machine was asked to replace the machine.
	OwnerRequested State = "OwnerRequested"
	// Failed is final: another client made the remediation impossible, or the remediation must not touch the host that it found.
	Failed State = "Failed"
	// Ended is final: the remediation or its machine is being deleted.
	Ended State = "Ended"
	// Stopped is final: the health check has timed the remediation out. The remediation object stays.
	Stopped State = "Stopped"
)

// Final reports whether s is a final state, in which only the release of host and node is left to do.
func (s State) Final() bool {
	return s == Succeeded || s == OwnerRequested || s == Failed || s == Ended || s == Stopped
}

// Known reports whether s is one of the states: users can write anything into the annotation that stores the state.
func (s State) Known() bool { return slices.Contains(order, s) }

// Action is one thing to do. Every action is safe to repeat.
type Action string

const (
	// Wait does nothing.
	Wait Action = "wait"
	// AskPerson reports, once, that a person has to do something. It changes nothing but the memory.
	AskPerson Action = "ask a person"
	// waitForPerson is used in the table only. It means AskPerson the first time, and Wait after that.
	waitForPerson Action = "wait for a person"
	// Advance only remembers the next state.
	Advance Action = "advance"
	// BeginAttempt remembers that one more attempt has begun, before anything is done for that attempt.
	BeginAttempt Action = "begin an attempt"
	// KeepOff asks BMO to power the host off and to keep it off.
	KeepOff Action = "keep the host powered off"
	// AddFinalizer keeps the remediation until the host is released, and comes before anything is done to the host.
	AddFinalizer Action = "add the finalizer"
	// NoteAsked remembers when the host was asked to power off. It is for a host that somebody else already keeps off for this remediation.
	NoteAsked Action = "note that the host was asked"
	// NoteOn remembers that the host was seen on after the request: if the host is off later, the request has caused that.
	NoteOn Action = "note that the host is on"
	// AskReceipt asks BMO to show that it has read the hardware since the host was asked to power off. The request and the annotation that
	// keeps the host off are one write.
	AskReceipt Action = "ask for a receipt"
	// NoteReceipt remembers when the receipt was seen.
	NoteReceipt Action = "note the receipt"
	// Reboot asks for one reboot.
	Reboot Action = "reboot the host"
	// Fence puts the out-of-service taint on the node, so that its workload can start elsewhere.
	Fence Action = "fence the node"
	// Release removes from the host all annotations of ours that act on its power.
	Release Action = "release the host"
	// Unfence removes our taint from the node.
	Unfence Action = "unfence the node"
	// MarkHost marks the host as unhealthy, so that CAPM3 puts no machine on it.
	MarkHost Action = "mark the host"
	// Disprove notes on the host that its node lived on after the host was proven off. No remediation believes the host's reported power
	// after that.
	Disprove Action = "note the disproved power-off"
	// RequestOwner asks the owner of the machine to remediate the machine.
	RequestOwner Action = "request owner remediation"
	// Withdraw undoes MarkHost and RequestOwner, because the machine became healthy.
	Withdraw Action = "withdraw the request for owner remediation"
	// DropFinalizer lets the API server delete the remediation.
	DropFinalizer Action = "drop the finalizer"
)

// Visible reports whether a changes the host, the node or the machine, and not only the memory.
func (a Action) Visible() bool {
	return slices.Contains([]Action{KeepOff, AskReceipt, Reboot, Fence, Release, Unfence, MarkHost, Disprove, RequestOwner, Withdraw}, a)
}

// Remembered reports whether a changes only the memory, so that the next step can be decided at once.
func (a Action) Remembered() bool {
	return slices.Contains([]Action{AskPerson, Advance, BeginAttempt, AddFinalizer, NoteAsked, NoteOn, NoteReceipt}, a)
}

// Intended reports whether a is stored before it is done. A manager that crashes in between does it in the next reconcile. In the other
// order a crash would lose that a host may be kept off, that a node may be fenced, or that a host is to be on again. All other actions are
// stored after they are done.
func (a Action) Intended() bool {
	return slices.Contains([]Action{KeepOff, AskReceipt, Reboot, Fence, Release}, a)
}

// Machine says whether the machine exists.
type Machine int

const (
	// MachinePresent means that the machine exists and is not being deleted.
	MachinePresent Machine = iota
	// MachineDeleting means that the machine is being deleted.
	MachineDeleting
	// MachineGone means that the machine does not exist, or that another machine has its name.
	MachineGone
)

// Host says whether the host exists and is the machine's.
type Host int

const (
	// HostOurs means that the host exists and belongs to the machine.
	HostOurs Host = iota
	// HostForeign means that the host exists and does not belong to the machine.
	HostForeign
	// HostGone means that the host does not exist, is being deleted, or is not known.
	HostGone
)

// Node says whether the node exists.
type Node int

const (
	// NodeUnseen means that the workload cluster did not answer. It is the zero value, so that nothing is concluded from a failed read.
	NodeUnseen Node = iota
	// NodeAbsent means that the workload cluster has answered that the node does not exist, or that the machine never had a node.
	NodeAbsent
	// NodePresent means that the node exists.
	NodePresent
)

// Memory is what a remediation remembers of its power cycle, in an annotation. (When it is stored: see Action.Intended.)
type Memory struct {
	State State `json:"state"`
	// Since is when State was entered.
	Since time.Time `json:"since,omitzero"`
	// Attempt counts the attempts that have begun.
	Attempt int `json:"attempt,omitempty"`
	// Began is when the current attempt began.
	Began time.Time `json:"began,omitzero"`
	// Acted is when the attempt began to act on the host, from when its timeout counts; zero before.
	Acted time.Time `json:"acted,omitzero"`
	// Asked is when the host was asked to power off in this attempt; zero if it was not.
	Asked time.Time `json:"asked,omitzero"`
	// Said is Power.Said when a change of the power was last requested. A status that is older than Said proves nothing.
	Said time.Time `json:"said,omitzero"`
	// WasOff says that the host was already off when it was asked to power off, so that only a receipt proves that it is off.
	WasOff bool `json:"wasOff,omitempty"`
	// Held says that the host was seen kept off in this attempt. If it is not kept off any more, it was released. Held is not stored, which
	// saves a write: after a restart the host is asked again to power off.
	Held bool `json:"-"`
	// Receipt is when the receipt for the last request was seen; zero if it was not.
	Receipt time.Time `json:"receipt,omitzero"`
	// Sign is the node's last sign of life at the first look at the node after the host was proven off.
	Sign time.Time `json:"sign,omitzero"`
	// SignSeen is when the node was looked at.
	SignSeen time.Time `json:"signSeen,omitzero"`
	// Lived says that the node gave Sign while it was fenced, with the boot ID from before. A kubelet that starts may renew its lease
	// before it reports its new boot ID, so only one more sign disproves the power-off.
	Lived bool `json:"lived,omitempty"`
	// Faulted says that BMO reported a power failure in this state, even if BMO reports none now.
	Faulted bool `json:"faulted,omitempty"`
	// Missing is since when the host cannot be found; zero if it can.
	Missing time.Time `json:"missing,omitzero"`
	// Person is the reason for which a person was asked in this state; empty if none was.
	Person Reason `json:"person,omitempty"`
	// Waited says that in this state the remediation waited for a client that keeps the host off, or has paused or detached it.
	Waited bool `json:"waited,omitempty"`
	// SwitchedOn says that the host was off when others released it before this attempt touched it, so that it boots unasked.
	SwitchedOn bool `json:"switchedOn,omitempty"`
	// Touched says that the host was asked for something, in any attempt.
	Touched bool `json:"touched,omitempty"`
	// StartedUnhealthy says that the machine was seen unhealthy before its host was touched. If it was not, the power cycle goes on even
	// while the machine is healthy, because somebody asked for it.
	StartedUnhealthy bool `json:"startedUnhealthy,omitempty"`
	// Fencing says that kubemend may have fenced the node, and has not unfenced it.
	Fencing bool `json:"fencing,omitempty"`
	// FencedAt is since when the workload moves: the node was fenced, or was seen fenced or gone. Zero if the workload does not move.
	FencedAt time.Time `json:"fencedAt,omitzero"`
	// Unseen is since when the workload cluster does not answer, in MovingWorkload; zero if it answers.
	Unseen time.Time `json:"unseen,omitzero"`
	// Moved is the reason for which the remediation went on without waiting (any longer) for the workload; empty before.
	Moved Reason `json:"moved,omitempty"`
	// Marked says that kubemend marked the host unhealthy.
	Marked bool `json:"marked,omitempty"`
	// TakenOver says that another controller (CAPM3's, or a kubemend whose memory is lost) began the remediation before the first attempt.
	// It may have left the host kept off and the node fenced.
	TakenOver bool `json:"takenOver,omitempty"`
	// Cause is the step that led to the end, or to the request for owner remediation; empty before.
	Cause Cause `json:"cause,omitzero"`
	// Paused is since when the remediation is paused; zero if it is not. The clocks stand still during a pause.
	Paused time.Time `json:"paused,omitzero"`
}

// Power is what a host reports about its power.
type Power struct {
	// Wanted says that the host's spec.online is true.
	Wanted bool
	// KeptOffBy is the annotation with which a client other than a remediation keeps the host off; empty if there is none.
	KeptOffBy string
	// PoweredOn is the power that BMO saw last.
	PoweredOn bool
	// NoPowerOff says that the host can only be rebooted (spec.disablePowerOff).
	NoPowerOff bool
	// Unmanaged is why BMO does not act on our annotations now, as a clause for users; empty if BMO acts on them.
	Unmanaged string
	// SetAside says that Unmanaged has a cause that a person will end: the host is paused or detached.
	SetAside bool
	// Serviced says that BMO writes the host's firmware, or has failed to, and the host is not back yet.
	Serviced bool
	// External says that the host is externally provisioned, so that a replacement machine could not be provisioned on it.
	External bool
	// Fails says that BMO reports that it cannot manage the power.
	Fails bool
	// Provable says that BMO reports the condition Manageable, without which no receipt is believed.
	Provable bool
	// Doubt is what the host reports against a receipt; empty if there is nothing.
	Doubt string
	// Said is when BMO last updated the status, by BMO's own clock; zero if it never did.
	Said time.Time
	// Trouble is the error that BMO reports; empty if there is none.
	Trouble string
}

// Same reports whether p and q agree in all that the decision to fence depends on.
func (p Power) Same(q Power) bool {
	return p.Wanted == q.Wanted && p.PoweredOn == q.PoweredOn && p.NoPowerOff == q.NoPowerOff && p.KeptOffBy == q.KeptOffBy &&
		(p.Unmanaged == "") == (q.Unmanaged == "") && p.Serviced == q.Serviced && p.Provable == q.Provable &&
		(p.Doubt == "") == (q.Doubt == "")
}

// Marks are the remediation's annotations on its host.
type Marks struct {
	// KeptOff says that the remediation keeps the host off.
	KeptOff bool
	// RebootAsked says that this attempt asked for a reboot. RebootPending says that BMO has not carried the reboot out yet.
	RebootAsked, RebootPending bool
	// ReceiptAsked says that a receipt was requested since Asked. ReceiptGiven says that BMO gave that receipt.
	ReceiptAsked, ReceiptGiven bool
	// HasPowerAnnotations says that the host has annotations that Release removes.
	HasPowerAnnotations bool
	// HostMarked says that the host has the unhealthy annotations of all CAPM3 versions.
	HostMarked bool
}

// Facts are the observed state of one reconcile.
type Facts struct {
	Memory
	Power
	Marks

	// Deleting says that the remediation is being deleted, or no longer asks for a power cycle. Finalizer says that it has our finalizer.
	Deleting, Finalizer bool
	// Stop says that the NodeHealthCheck that made the remediation has timed it out.
	Stop bool
	// Paused says that the remediation, its Cluster, its Machine or its Metal3Machine is paused. Pause says by what, as a clause.
	Paused bool
	Pause  string
	// Teardown says that kubemend is being removed, and has to end what it has begun.
	Teardown bool

	// Did is what was last done to the host or the node in this attempt and state. Undoers names the clients that may have undone it.
	Did     Did
	Undoers string

	Machine Machine
	// Healthy says that the node is Ready and that no health check calls the machine unhealthy.
	Healthy bool
	// Unhealthy says that a health check calls the machine unhealthy, or that its node was seen unhealthy. It may be that neither is known.
	Unhealthy bool
	// OwnerAsked says that the owner of the machine was asked to remediate it. Ownerless says that the machine has no owner.
	OwnerAsked, Ownerless bool

	// ControlPlane says that the machine is a member of a control plane.
	ControlPlane bool
	// Ahead is what the remediation has to wait for before it acts on its host (see Queue); empty if it may begin.
	Ahead []Ahead

	Host Host
	// Mismatch is why the host is not the machine's, or is missing, as a clause; empty if it is the machine's.
	Mismatch string
	// HostAnew says that the host is not the object that was asked to power off, but a new one with its name. Nothing that was requested
	// of, or seen on, the old object counts.
	HostAnew bool
	// HostUnnamed says that no host is known that could come back.
	HostUnnamed bool
	// Loop is the earlier power cycles of the host that did not last.
	Loop repeats.Loop
	// LoopUntil is until when this power cycle waits because of Loop, or for the records from which Loop is read.
	LoopUntil time.Time
	// Disproved says that an earlier power-off of the host was disproved, and that no person has reset the host.
	Disproved bool

	Node Node
	// WhyUnseen is why the node cannot be seen, as a clause; empty if it can.
	WhyUnseen string
	// Looked says that the node was read from the workload cluster in this reconcile, not from a cache.
	Looked bool
	// Fenced says that anybody has fenced the node. FencedByUs says that this remediation has something to remove from the node.
	Fenced, FencedByUs bool
	// Inherited says that a remediation that is gone, or CAPM3, put up the fence that FencedByUs is about.
	Inherited bool
	// NodeMismatch says that the node is not the machine's: it belongs to another machine, or has registered again.
	NodeMismatch bool
	// Twin is a clause that names another node with the machine's provider ID, so that it is not known which of them runs on the host.
	Twin string
	// Drained says that nothing that has to move is left on the node, or of a node that is gone.
	Drained bool
	// Left are the first few of the LeftCount objects that are left on the node. IdleVolumes names attachments that no pod needs.
	Left        []string
	LeftCount   int
	IdleVolumes string
	// Discarded says that the power cycle does not wait for the workload: the workload cluster is gone or being deleted, or another client
	// deletes the node.
	Discarded bool
	// BootUnread says that the node's boot ID is not known, and may be known in a moment.
	BootUnread bool
	// OutOfReach says that the workload cluster cannot be reached. ClusterChanged says that another cluster answers at its address.
	OutOfReach, ClusterChanged bool
	// Sign is the node's last sign of life, by the node's clock; zero if none is known.
	Sign time.Time
	// NewBoot says that the node's boot ID has changed since the host was asked to power off. Up says that such a node is also Ready.
	NewBoot, Up bool
}

// Step is the decision: what to do, and in which state the remediation is afterwards. Message tells it to users.
type Step struct {
	Reason Reason `json:"reason,omitempty"`
	Detail Detail `json:"detail,omitempty"`
	Do     Action `json:"do,omitempty"`
	// From is the state in which the step is taken.
	From State `json:"from,omitempty"`
	Next State `json:"next,omitempty"`
	// Again is when to decide again even if no event comes; zero if only an event can change the decision.
	Again time.Time `json:"-"`
}

// Next returns the step for f. It always finds one, because the last row of every state always holds.
func Next(f Facts, p Policy, now time.Time) Step {
	f.Paused = f.stands()
	f.Memory = f.awake(f.frozen(), now)
	if f.State == "" {
		f.State = Pending
	}
	if f.Since.IsZero() {
		f.Since = now // the state is new, so that no timeout has passed
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
	// A later version stored this state. To start over is safe: whatever keeps the host off is seen on the host. The attempt is not counted
	// again.
	anew := Preparing
	if f.Attempt == 0 {
		anew = Pending
	}
	return Step{Do: Advance, From: f.State, Next: anew, Reason: StateUnknownReason, Again: now}
}
