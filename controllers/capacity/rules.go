package capacity

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// wait is one thing that capacity waits for, or one end of the wait: its reason, its texts, what comes next, and what a user can do.
//
// {machine}, {owner}, {object}, {host} and {lost} are names. {said} quotes the message of a condition, {reported} also its reason. {ailing}
// is what the infrastructure reports besides.
type wait struct {
	stage, reason, message string
	// next is what happens next. hint is what a user can do once the wait has lasted longer than usual.
	next, hint step
	usual      time.Duration
}

// step is one thing that happens, or that a user has to do.
type step struct{ reason, text string }

// How long waits usually take. These are no deadlines: nothing happens afterwards.
const (
	atOnce        = time.Duration(0)
	drainTakes    = 2 * time.Minute // pods that leave a node, and volumes after them
	ownerTakes    = 2 * time.Minute
	nodeTakes     = 5 * time.Minute // also bootstrap data, and powering on a provisioned host
	machineTakes  = 20 * time.Minute
	cleaningTakes = 2 * time.Hour // to erase a whole disk
)

// The next steps that several waits share.
var (
	triesAgain     = step{"OwnerReplaces", "{owner} tries again by itself"}
	ownerReplaces  = step{"OwnerReplaces", "{owner} deletes {machine}, and makes another one"}
	deletionGoesOn = step{"DeletionGoesOn", "the deletion of {machine} goes on"}
	withoutTimeout = step{"DeletionGoesOn", "the deletion of {machine} goes on after that; this wait has no timeout"}
	givenUp        = step{"DeletionGivenUp", "the deletion of {machine} goes on all the same"}
	machineGoes    = step{"MachineGoes", "once {machine} is gone, {owner} creates its missing machines"}
	machineIsGone  = step{"MachineIsGone", "{machine} is gone, and no machine is made for it"}
	makesAnother   = step{"ReplacementIsMade", "{owner} makes a new Machine"}
	hostIsTaken    = step{"HostIsTaken", "the provider takes a BareMetalHost that fits for {machine}"}
	infraComes     = step{"InfrastructureComes", "the infrastructure of {machine} becomes ready"}
	nodeRegisters  = step{"NodeRegisters", "the node of {machine} registers"}
	goesOn         = step{"GoesOn", "it goes on from there"}
)

// Unpause is the reason of the hint to unpause an object.
const Unpause = "Unpause"

// What a user can do. The message of the wait quotes the details of the object.
var (
	lookAtOwner   = step{"LookAtOwner", "look at {owner} and its controller, or replace {machine} by hand"}
	createMachine = step{"CreateMachine", "replace {machine} by hand: it has no owner that could"}
	endHook       = step{"EndHook", "let the owner of the annotation or finalizer finish, or remove it from {machine}"}
	freeBudget    = step{"FreeBudget", "make {object} allow a disruption (more replicas, or another limit), or delete the pod yourself"}
	freeNode      = step{"FreeNode", "free {object} of {machine} from its pods and volumes, or set nodeDrainTimeoutSeconds and " +
		"nodeVolumeDetachTimeoutSeconds for machines of {owner}"}
	lookAtProvider   = step{"LookAtProvider", "look at {object} and its provider"}
	lookAtController = step{"LookAtController", "look at the log of Cluster API's controllers for {machine}"}
	reconnect        = step{"RestoreConnection", "make the API server of {object} reachable for Cluster API"}
	repairHost       = step{"RepairHost", "repair BareMetalHost {host}, and set its spec.online to true unless it is kept off on purpose"}
	addHost          = step{"AddHost", "make a BareMetalHost available that the hostSelector of {object} selects"}
	lookAtNode       = step{"LookAtNode", "look at {object}: its console, its kubelet, its network and its conditions"}
	unpause          = step{Unpause, "unpause {object}: {pause}"}
)

// The reasons that other packages use. Reasons of Cluster API are spelled as there.
const (
	NoOwner            = "NoOwner"
	NodeNotReadyReason = "NodeNotReady"
	Disconnected       = "ConnectionDown"
	StillUnhealthy     = "StillUnhealthy"
	Replaced           = "Replaced"
	Recovered          = "Recovered"
	RolledOut          = "RolledOut"
	OwnerComplete      = "OwnerComplete"
	ScaledDown         = "ScaledDown"
	OwnerDeleted       = "OwnerDeleted"
	ClusterDeleted     = "ClusterDeleted"
	NamespaceDeleted   = "NamespaceDeleted"
	// DeletionBegins: the Machine controller has not reported how far the deletion is.
	DeletionBegins = "DeletionBegins"
)

// The waits for an owner that was asked to replace the machine.
var (
	asked = wait{
		OwnerActs, "WaitingForRemediation", "{owner} was asked to replace {machine}, and has not answered",
		ownerReplaces, lookAtOwner, ownerTakes,
	}
	putOff  = wait{OwnerActs, "RemediationDeferred", "{owner} has put off the replacement of {machine}{said}", triesAgain, step{}, atOnce}
	deletes = wait{OwnerActs, "MachineDeleting", "{owner} is about to delete {machine}", ownerReplaces, lookAtOwner, ownerTakes}
	refused = wait{
		OwnerActs, "CannotBeRemediated", "{owner} cannot replace {machine}{said}", ownerReplaces, lookAtOwner, atOnce,
	}
	ownerless = wait{
		OwnerActs, NoOwner, "{machine} has no owner that could replace it", step{}, createMachine, atOnce,
	}
	// answers are the waits by the reason of OwnerRemediated.
	answers = map[string]wait{refused.reason: refused, deletes.reason: deletes, putOff.reason: putOff}
	// paused keeps the stage of the wait that it replaces.
	paused = wait{"", "ObjectPaused", "{object} is paused, and nothing goes on", goesOn, unpause, atOnce}
)

// waits quotes the condition Deleting.
const waits = "the deletion of {machine} waits{said}{ailing}"

func whileDeleting(next, hint step, usual time.Duration) wait {
	return wait{Deleting, "", waits, next, hint, usual}
}

// deletions are the waits by the reason of the condition Deleting. (Cluster API, core/reconcilers/machine: reconcileDelete.)
var deletions = map[string]wait{
	clusterv1.MachineDeletingWaitingForPreDrainHookReason:           whileDeleting(deletionGoesOn, endHook, atOnce),
	clusterv1.MachineDeletingDrainingNodeReason:                     whileDeleting(withoutTimeout, freeNode, drainTakes),
	clusterv1.MachineDeletingWaitingForVolumeDetachReason:           whileDeleting(withoutTimeout, freeNode, drainTakes),
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason:       whileDeleting(deletionGoesOn, endHook, atOnce),
	clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: whileDeleting(machineGoes, lookAtProvider, machineTakes),
	clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:      whileDeleting(machineGoes, lookAtProvider, nodeTakes),
	clusterv1.MachineDeletingDeletingNodeReason:                     whileDeleting(machineGoes, lookAtController, drainTakes),
	clusterv1.MachineDeletingInternalErrorReason:                    whileDeleting(deletionGoesOn, lookAtController, atOnce),
	clusterv1.MachineDeletingDeletionCompletedReason:                whileDeleting(machineGoes, step{}, atOnce),
}

// Other waits of a deletion.
var (
	deletionBegins = wait{
		Deleting, DeletionBegins, "{machine} is being deleted, and its controller has not reported how far that is",
		deletionGoesOn, lookAtController, ownerTakes,
	}
	hostIsCleaned = wait{
		Deleting, "HostDeprovisioning", "BareMetalHost {host} of {machine} is being deprovisioned ({state})",
		machineGoes, lookAtProvider, cleaningTakes,
	}
	hostHinders    = wait{Deleting, "HostHindersDeletion", "the deletion of {machine} waits: {trouble}", machineGoes, repairHost, atOnce}
	otherFinalizer = wait{
		Deleting, "ForeignFinalizer", "Cluster API has finished deleting {machine}, but finalizers of other controllers still keep it: " +
			"{finalizers}", machineGoes, endHook, atOnce,
	}
)

// The waits for an owner to create a machine.
var (
	creates = wait{NoReplacement, "OwnerCreates", "{lost}, and {owner} has not made another one", makesAnother, lookAtOwner, ownerTakes}
	blocked = wait{
		NoReplacement, "ScalingUpBlocked", "{lost}, and {owner} cannot make another one{said}", makesAnother,
		lookAtOwner, nodeTakes,
	}
)

// The waits of a new machine.
var (
	bootstrapNotReady = wait{
		WaitingForBootstrapData, "BootstrapNotReady", "{machine} waits for the bootstrap data of {object}{reported}",
		infraComes, lookAtProvider, nodeTakes,
	}
	noHost = wait{
		NoHostFits, "NoHost", "{machine} waits for a BareMetalHost, and {hosts}", hostIsTaken, addHost, atOnce,
	}
	hostFits  = wait{Provisioning, "HostChosen", "{hosts} {machine}", hostIsTaken, lookAtProvider, machineTakes}
	hostWorks = wait{
		Provisioning, "HostProvisioning", "BareMetalHost {host} of {machine} is being provisioned ({state})",
		infraComes, lookAtProvider, machineTakes,
	}
	hostTrouble = wait{Provisioning, "HostTrouble", "{machine} waits: {trouble}", infraComes, repairHost, atOnce}
	notReady    = wait{
		Provisioning, "InfrastructureNotReady", "{object}, the infrastructure of {machine}, is not ready{reported}",
		infraComes, lookAtProvider, machineTakes,
	}
	noNode = wait{
		Booting, "NoNode", "{machine} is provisioned, and no node has registered", nodeRegisters, lookAtNode,
		machineTakes,
	}
	hostOff = wait{
		Booting, "HostPoweredOff", "{machine} is provisioned, and its BareMetalHost {host} is powered off",
		nodeRegisters, repairHost, nodeTakes,
	}
	nodeNotReady = wait{
		NodeNotReady, NodeNotReadyReason, "{object} of {machine} is not Ready{reported}{ailing}", step{}, lookAtNode, nodeTakes,
	}
	stillUnhealthy = wait{
		NodeNotReady, StillUnhealthy, "the node of {machine} is Ready, and a health check marks the machine as unhealthy",
		step{}, lookAtNode, nodeTakes,
	}
)

// The ends, and the wait if nothing could be read.
var (
	replaced    = wait{stage: Back, reason: Replaced, message: "the capacity is back: the node of {machine} is Ready"}
	recovered   = wait{stage: Back, reason: Recovered, message: "the capacity is back: {machine} is healthy again"}
	complete    = wait{stage: Back, reason: OwnerComplete, message: "the capacity is back: {owner} has {ready} machines with a Ready node"}
	scaledDown  = wait{stage: NotReplaced, reason: ScaledDown, message: "{old} is not replaced: {owner} has {machines} machines without it"}
	notReadable = wait{stage: Unread, reason: "NotReadable", message: "what {old} waits for could not be read with your rights: {unread}"}

	ends = map[string]string{
		OwnerDeleted:     "{old} is not replaced: {owner} is being deleted, or gone",
		ClusterDeleted:   "{old} is not replaced: its Cluster is being deleted, or gone",
		NamespaceDeleted: "{old} is not replaced: its namespace is being deleted",
		NoOwner:          "{machine} has no owner that could replace it",
	}
)
