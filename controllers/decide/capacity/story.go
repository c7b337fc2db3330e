package capacity

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// Stage is how far the way from an unhealthy machine to capacity is.
type Stage string

// The stages, in their order. Of the last three each is an end.
const (
	// OwnerActs: the owner is asked to replace the machine, and has not begun.
	OwnerActs Stage = "OwnerActs"
	// Deleting: a Machine is being deleted, and no new one is made before it is gone.
	Deleting Stage = "Deleting"
	// NoReplacement: the machine is gone, and its owner has made no new one.
	NoReplacement Stage = "NoReplacement"
	// WaitingForBootstrapData: the new Machine has no bootstrap data.
	WaitingForBootstrapData Stage = "WaitingForBootstrapData"
	// NoHostFits: no BareMetalHost is free for the new Machine.
	NoHostFits Stage = "NoHostFits"
	// Provisioning: the infrastructure of the new Machine is not ready.
	Provisioning Stage = "Provisioning"
	// Booting: the infrastructure is ready, and no node has registered.
	Booting Stage = "Booting"
	// NodeNotReady: the node has registered, and is not Ready.
	NodeNotReady Stage = "NodeNotReady"
	// Unread: what tells the stage could not be read.
	Unread Stage = "Unread"
	// Back: the capacity is back.
	Back Stage = "Back"
	// NotReplaced: there will be no new machine, and none is due.
	NotReplaced Stage = "NotReplaced"
)

// Ended reports whether nothing more is waited for.
func (s Stage) Ended() bool { return s == Back || s == NotReplaced }

// Reason is what is waited for in a stage, or why it has ended.
type Reason string

// The reasons of the stage OwnerActs.
const (
	// WaitsForOwner: the owner has not answered.
	WaitsForOwner Reason = "WaitingForRemediation"
	// OwnerDeferred: it has put that off, with a reason in its own words; KubeadmDefers: by a rule of KubeadmControlPlanes, which Kubeadm has.
	OwnerDeferred Reason = "RemediationDeferred"
	KubeadmDefers Reason = "KubeadmDefers"
	// OwnerRefuses: it says that it cannot.
	OwnerRefuses Reason = "CannotBeRemediated"
	// OwnerDeletes: it is about to delete the machine. OwnerRollsOut: it does not remediate it, since a rollout replaces the machine.
	OwnerDeletes  Reason = "MachineDeleting"
	OwnerRollsOut Reason = "OwnerRollsOut"
	// RolledOutOnDelete: nor does it remediate it, and the rollout waits until a person has deleted it. OtherFirst: it has answered for another machine, and
	// replaces one at a time.
	RolledOutOnDelete Reason = "RolledOutOnDelete"
	OtherFirst        Reason = "OtherFirst"
)

// The reasons of the stage Deleting. Those that Cluster API has are spelled as there.
const (
	// DeletionBegins: its controller has not said how far it is.
	DeletionBegins Reason = "DeletionBegins"
	PreDrainHook   Reason = "WaitingForPreDrainHook"
	// Draining: pods are left on the node; DrainBlockedByBudget: of these one or more may not be evicted.
	Draining             Reason = "DrainingNode"
	DrainBlockedByBudget Reason = "DrainBlockedByBudget"
	VolumesAttached      Reason = "WaitingForVolumeDetach"
	PreTerminateHook     Reason = "WaitingForPreTerminateHook"
	// InfrastructureDeletion: its infrastructure is being deleted; HostDeprovisioning: on bare metal, by a host that does not say anything is wrong;
	// HostHindersDeletion: by one that does. InfrastructureFinalizer: it has a finalizer that is not its provider's.
	InfrastructureDeletion  Reason = "WaitingForInfrastructureDeletion"
	HostDeprovisioning      Reason = "HostDeprovisioning"
	HostHindersDeletion     Reason = "HostHindersDeletion"
	InfrastructureFinalizer Reason = "InfrastructureFinalizer"
	BootstrapDeletion       Reason = "WaitingForBootstrapDeletion"
	NodeDeletion            Reason = "DeletingNode"
	// ForeignFinalizer: Cluster API is done, and another finalizer is left.
	ForeignFinalizer Reason = "ForeignFinalizer"
	// DeletionFails: an error, in Cluster API's own words. DeletionCompletes: nothing is left to wait for.
	DeletionFails     Reason = "InternalError"
	DeletionCompletes Reason = "DeletionCompleted"
)

// The reasons of the stage NoReplacement.
const (
	// OwnerCreates: the owner is about to make one.
	OwnerCreates Reason = "OwnerCreates"
	// OwnerUnfamiliar: when the owner makes one is not known, since the rules of its kind are not.
	OwnerUnfamiliar Reason = "OwnerUnfamiliar"
	// OwnerBlocked: it says what keeps it from that. CreationDisabled: its annotation does.
	OwnerBlocked     Reason = "ScalingUpBlocked"
	CreationDisabled Reason = "CreationDisabled"
)

// PausedReason means that nothing goes on, in any stage before an end, as the Cluster is paused; ObjectPaused, as the object that is waited for is.
const (
	PausedReason Reason = "Paused"
	ObjectPaused Reason = "ObjectPaused"
)

// Disconnected means that Cluster API does not reach the workload cluster, so that it neither sees nodes nor drains or deletes any.
const Disconnected Reason = "ConnectionDown"

// The reasons of the stages of a new Machine.
const (
	// NotInitialized: no worker gets bootstrap data before the control plane is initialized.
	NotInitialized Reason = "ControlPlaneNotInitialized"
	// BootstrapNotReady: its bootstrap provider has not made it, or reports why not.
	BootstrapNotReady Reason = "BootstrapNotReady"
	// NoHost: there is none that fits; HostFrees: one that fits is being freed.
	NoHost    Reason = "NoHost"
	HostFrees Reason = "HostFrees"
	// HostChosen: one fits, and the provider is to take it.
	HostChosen Reason = "HostChosen"
	// HostWorks: the host is prepared or provisioned. HostTrouble: it has an error, is paused or detached.
	HostWorks   Reason = "HostProvisioning"
	HostTrouble Reason = "HostTrouble"
	// InfrastructureNotReady: its infrastructure provider has not made it, or reports why not.
	InfrastructureNotReady Reason = "InfrastructureNotReady"
	// NoNode: no node has registered. HostOff: and its host is powered off.
	NoNode  Reason = "NoNode"
	HostOff Reason = "HostPoweredOff"
	// NodeNotReadyReason: the node says that it is not Ready, or nothing is known of it.
	NodeNotReadyReason Reason = "NodeNotReady"
	// StillUnhealthy: the node is Ready, and a check marks the machine as unhealthy for something else.
	StillUnhealthy Reason = "StillUnhealthy"
	// NodeGone: the node does not exist any more, and the machine does.
	NodeGone Reason = "NodeDeleted"
	// InfrastructureGone: the infrastructure does not exist any more, and the machine does.
	InfrastructureGone Reason = "InfrastructureDeleted"
)

// The reasons of the ends, and of Unread.
const (
	// Replaced: the new machine has a Ready node. Recovered: the old one has, and is healthy.
	Replaced  Reason = "Replaced"
	Recovered Reason = "Recovered"
	// RolledOut: as many machines as wanted have a Ready node, of a rollout at the same time.
	RolledOut Reason = "RolledOut"
	// OwnerComplete: as many machines as wanted have a Ready node, of an owner by whose rules it is not known which of them replaces the machine.
	OwnerComplete Reason = "OwnerComplete"
	// ScaledDown: the owner has as many machines as it is to have, without another one.
	ScaledDown Reason = "ScaledDown"
	// OwnerDeleted, ClusterDeleted and NamespaceDeleted: what would have made it is being deleted, or gone. NoOwner: it had no owner that makes machines.
	OwnerDeleted     Reason = "OwnerDeleted"
	ClusterDeleted   Reason = "ClusterDeleted"
	NamespaceDeleted Reason = "NamespaceDeleted"
	NoOwner          Reason = "NoOwner"
	// NotReadable: the kinds Args.Names could not be read.
	NotReadable Reason = "NotReadable"
)

// Todo is what a person can do.
type Todo string

// What a person can do; empty if there is nothing but to wait.
const (
	Unpause              Todo = "Unpause"
	EndHook              Todo = "EndHook"
	FreeBudget           Todo = "FreeBudget"
	SetDrainTimeout      Todo = "SetDrainTimeout"
	DetachVolumes        Todo = "DetachVolumes"
	RepairHost           Todo = "RepairHost"
	PowerHostOn          Todo = "PowerHostOn"
	RemoveFinalizer      Todo = "RemoveFinalizer"
	LookAtController     Todo = "LookAtController"
	LookAtOwner          Todo = "LookAtOwner"
	AnswerOwner          Todo = "AnswerOwner"
	RaiseRetries         Todo = "RaiseRetries"
	UnblockOwner         Todo = "UnblockOwner"
	AllowCreation        Todo = "AllowCreation"
	RepairControlPlane   Todo = "RepairControlPlane"
	LookAtBootstrap      Todo = "LookAtBootstrap"
	AddHost              Todo = "AddHost"
	LookAtInfrastructure Todo = "LookAtInfrastructure"
	LookAtConsole        Todo = "LookAtConsole"
	RepairMachine        Todo = "RepairMachine"
	LookAtNode           Todo = "LookAtNode"
	CreateMachine        Todo = "CreateMachine"
	DeleteMachine        Todo = "DeleteMachine"
	RestoreConnection    Todo = "RestoreConnection"
	RestartKubelet       Todo = "RestartKubelet"
)

// Next is what comes next when what is waited for has come.
type Next string

// What comes next.
const (
	OwnerReplaces       Next = "OwnerReplaces"
	DeletionGoesOn      Next = "DeletionGoesOn"
	DrainBegins         Next = "DrainBegins"
	DrainGoesOn         Next = "DrainGoesOn"
	DrainGivenUp        Next = "DrainGivenUp"
	VolumesGivenUp      Next = "VolumesGivenUp"
	InfrastructureGoes  Next = "InfrastructureGoes"
	MachineGoes         Next = "MachineGoes"
	MachineIsGone       Next = "MachineIsGone" // and no machine is made for it
	ReplacementIsMade   Next = "ReplacementIsMade"
	NodeGivenUp         Next = "NodeGivenUp"
	HostIsTaken         Next = "HostIsTaken"
	InfrastructureComes Next = "InfrastructureComes"
	NodeRegisters       Next = "NodeRegisters"
	NodeGetsReady       Next = "NodeGetsReady"
	MachineGetsHealthy  Next = "MachineGetsHealthy"
	GoesOn              Next = "GoesOn"
	Nothing             Next = "Nothing"
)

// Evidence is by what one machine was found to replace another.
type Evidence string

// What tells which machine replaces which.
const (
	// Recorded: its owner has written it down, as KubeadmControlPlanes do. It is the only one that is no guess.
	Recorded Evidence = "Recorded"
	// Remembered: a RemediationRecord has it, in which the manager has kept what it found while there was more to see.
	Remembered Evidence = "Remembered"
	// SameHost: it has the host that the old one had.
	SameHost Evidence = "SameHost"
	// Alone: of the owner one machine was lost and one was made since.
	Alone Evidence = "Alone"
	// ByOrder: the owner has lost several, and made them in some order.
	ByOrder Evidence = "ByOrder"
)

// Replacement is the machine that replaces another.
type Replacement struct {
	Name string
	By   Evidence
}

// Guess reports whether that is not written down.
func (r Replacement) Guess() bool { return r.Name != "" && r.By != Recorded }

// HostAnswer is why a host is not taken.
type HostAnswer struct {
	Name string
	Why  HostReason
	// Detail is a label, a state, a consumer or an error.
	Detail string
}

// Args are the arguments of a reason. Which of them there are depends on it.
type Args struct {
	// Reason and Message are those of a condition of others, which are quoted.
	Reason, Message string
	// Names are kinds, and Finalizers, Hooks, Pods, Volumes and Hosts what their names say.
	Names      []string
	Finalizers []Finalizer
	Hooks      []Hook
	Pods       []Pod
	Volumes    []Volume
	Hosts      []HostAnswer
	// Fitting are the hosts that fit, where one of them is to be taken: CAPM3 takes any.
	Fitting []string
	// Host is the host of the machine. Timeout is what Deadline follows from.
	Host    *Host
	Timeout time.Duration
	// Ailing is what the owner says of its health, where the owner is waited for, or else the infrastructure of the machine.
	Ailing Condition
	// Topology is the Cluster whose topology writes the spec of the owner; empty if none does.
	Topology string
	// Kubeadm are the rules by which a KubeadmControlPlane defers, KubeadmAnswer what they come to.
	Kubeadm       *kubeadm.Facts
	KubeadmAnswer kubeadm.Answer
	// Numbers are how many machines the owner has that are not being deleted, how many of these have a Ready node, and how many it is to have.
	Machines, Ready, Replicas int
}

// Story is what the capacity of a machine waits for.
type Story struct {
	Stage  Stage
	Reason Reason
	Args   Args
	// Old is the machine that was lost, Machine the one that the stage is about: the old one, the new one, or a replacement that itself is replaced.
	Old, Machine string
	// Owner makes the new machine.
	Owner Object
	// Replacement is the new machine; without a name there is none.
	Replacement Replacement
	// WaitsFor is the object that is waited for; empty if it is none.
	WaitsFor Object
	// Since is when that began; zero if it is not known.
	Since time.Time
	// Deadline is when it ends by itself, whatever happens, or when a check counts the new machine as unhealthy; zero if neither is so. Overdue reports
	// that this moment has passed. NotBefore is before when it certainly does not end.
	Deadline, NotBefore time.Time
	Overdue             bool
	Next                Next
	Todo                Todo
}
