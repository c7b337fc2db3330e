package capacity

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// wait is one thing that capacity waits for, or one end of the wait: its reason, its words, what comes next, and what a user can do.
//
// {machine}, {owner}, {object}, {host} and {lost} are names; {said} and {reported} quote the condition of a partner, the latter with its
// reason; {ailing} is what the infrastructure reports besides.
type wait struct {
	stage, reason, message string
	next                   step
	// hint is what a user can do, once the wait has lasted for longer than usual.
	hint  step
	usual time.Duration
}

// step is one thing that happens, or that a user can do.
type step struct{ reason, text string }

// How long waits usually take. None is a deadline: nothing happens then.
const (
	atOnce        = time.Duration(0)
	drainTakes    = 2 * time.Minute // pods that leave a node, and volumes after them
	ownerTakes    = 2 * time.Minute
	nodeTakes     = 5 * time.Minute // also bootstrap data, and the power of a host that was provisioned
	machineTakes  = 20 * time.Minute
	cleaningTakes = 2 * time.Hour // to erase a whole disk
)

// What comes next, where several waits have the same.
var (
	triesAgain    = step{"OwnerReplaces", "{owner} tries again by itself"}
	ownerReplaces = step{"OwnerReplaces", "{owner} deletes {machine}, and makes another one"}
	givenUp       = step{"DeletionGivenUp", "the deletion of {machine} goes on all the same"}
	machineGoes   = step{"MachineGoes", "once {machine} is gone, {owner} makes the machines that it lacks"}
	machineIsGone = step{"MachineIsGone", "{machine} is gone, and no machine is made for it"}
	makesAnother  = step{"ReplacementIsMade", "{owner} makes a new Machine"}
	hostIsTaken   = step{"HostIsTaken", "the provider takes a BareMetalHost that fits for {machine}"}
	infraComes    = step{"InfrastructureComes", "the infrastructure of {machine} becomes ready"}
	nodeRegisters = step{"NodeRegisters", "the node of {machine} registers"}
	goesOn        = step{"GoesOn", "it goes on from there"}
)

// Unpause is the reason of what a user can do about anything that is paused.
const Unpause = "Unpause"

// What a user can do, where several waits have the same, or one only in some cases.
var (
	lookAtOwner      = step{"LookAtOwner", "look at {owner} and its controller"}
	lookAtController = step{"LookAtController", "look at the log of Cluster API's controllers for {machine}"}
	lookAtProvider   = step{"LookAtProvider", "look at {object} and its provider"}
	endHook          = step{"EndHook", "let the owner of the annotation finish, or remove the annotation from {machine}"}
	endOwnHook       = step{"LookAtOwner", "look at {owner}, which ends its own hook, and at the owners of the other annotations"}
	freeBudget       = step{"FreeBudget", "make {object} allow a disruption (more replicas, or another limit), or delete the pod yourself"}
	reconnect        = step{"RestoreConnection", "make the API server of {object} reachable for Cluster API"}
	repairHost       = step{"RepairHost", "repair BareMetalHost {host}"}
	powerOn          = step{"PowerHostOn", "set spec.online of BareMetalHost {host} to true, unless it is kept off on purpose"}
	unpause          = step{Unpause, "remove the annotation cluster.x-k8s.io/paused from {object}"}
	unpauseCluster   = step{Unpause, "unpause {object} (spec.paused)"}
	unpauseHost      = step{Unpause, "remove the annotation baremetalhost.metal3.io/paused from {object}"}
	attachHost       = step{Unpause, "remove the annotation baremetalhost.metal3.io/detached from {object}"}
)

// The reasons that callers ask for. Those that Cluster API has are spelled as there.
const (
	WaitsForOwner        = "WaitingForRemediation"
	NoOwner              = "NoOwner"
	DrainBlockedByBudget = "DrainBlockedByBudget"
	NoHost               = "NoHost"
	NodeNotReadyReason   = "NodeNotReady"
	Disconnected         = "ConnectionDown"
	StillUnhealthy       = "StillUnhealthy"
	Replaced             = "Replaced"
	Recovered            = "Recovered"
	RolledOut            = "RolledOut"
	OwnerComplete        = "OwnerComplete"
	ScaledDown           = "ScaledDown"
	OwnerDeleted         = "OwnerDeleted"
	ClusterDeleted       = "ClusterDeleted"
	NamespaceDeleted     = "NamespaceDeleted"
	// DeletionBegins: the Machine controller has not reported how far the deletion is.
	DeletionBegins = "DeletionBegins"
)

// The waits for the owner, which was asked to replace the machine.
var (
	asked = wait{
		OwnerActs, WaitsForOwner, "{owner} was asked to replace {machine}, and has not answered",
		ownerReplaces, lookAtOwner, ownerTakes,
	}
	putOff  = wait{OwnerActs, "RemediationDeferred", "{owner} has put off the replacement of {machine}{said}", triesAgain, step{}, atOnce}
	deletes = wait{OwnerActs, "MachineDeleting", "{owner} is about to delete {machine}", ownerReplaces, lookAtOwner, ownerTakes}
	refused = wait{
		OwnerActs, "CannotBeRemediated", "{owner} cannot replace {machine}{said}", ownerReplaces,
		step{"AnswerOwner", "end what keeps {owner} from replacing {machine}, or replace it by hand"}, atOnce,
	}
	ownerless = wait{
		OwnerActs, NoOwner, "{machine} has no owner that could replace it", step{},
		step{"CreateMachine", "replace {machine} by hand: it has no owner that could"}, atOnce,
	}
	// paused keeps the stage of the wait that it takes the place of.
	paused = wait{"", "ObjectPaused", "{object} is paused, and nothing goes on", goesOn, unpause, atOnce}
)

// deletions are the waits of a deletion, by the reason of the condition Deleting. (Cluster API, core/reconcilers/machine: reconcileDelete.)
var deletions = map[string]wait{
	clusterv1.MachineDeletingWaitingForPreDrainHookReason: {
		Deleting, "", "the deletion of {machine} waits before the drain for the owner of an annotation{said}",
		step{"DrainBegins", "the node of {machine} is drained as soon as the annotation is gone"}, endHook, atOnce,
	},
	clusterv1.MachineDeletingDrainingNodeReason: {
		Deleting, "", "the node of {machine} is being drained{said}",
		step{"DrainGoesOn", "the deletion of {machine} goes on as soon as the pods have left its node; the drain has no timeout"},
		step{"SetDrainTimeout", "free the node of {machine} from its pods, or set nodeDrainTimeoutSeconds for machines of {owner}"},
		drainTakes,
	},
	clusterv1.MachineDeletingWaitingForVolumeDetachReason: {
		Deleting, "", "volumes are attached to the node of {machine}{said}",
		step{"InfrastructureGoes", "the infrastructure of {machine} is deleted once the volumes are detached; that wait has no timeout"},
		step{"DetachVolumes", "look at the storage driver, or set nodeVolumeDetachTimeoutSeconds for machines of {owner}"},
		drainTakes,
	},
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason: {
		Deleting, "", "the deletion of {machine} waits before its infrastructure is deleted for the owner of an annotation{said}",
		step{"InfrastructureGoes", "the infrastructure of {machine} is deleted as soon as the annotation is gone"}, endHook, atOnce,
	},
	clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: {
		Deleting, "", "{object}, the infrastructure of {machine}, is being deleted{ailing}", machineGoes, lookAtProvider, machineTakes,
	},
	clusterv1.MachineDeletingWaitingForBootstrapDeletionReason: {
		Deleting, "", "{object}, which has the bootstrap data of {machine}, is being deleted", machineGoes, lookAtProvider, nodeTakes,
	},
	clusterv1.MachineDeletingDeletingNodeReason: {
		Deleting, "", "{object} cannot be deleted from the workload cluster{said}", machineGoes, lookAtController, drainTakes,
	},
	clusterv1.MachineDeletingInternalErrorReason: {
		Deleting, "", "the deletion of {machine} fails{said}", goesOn, lookAtController, atOnce,
	},
	clusterv1.MachineDeletingDeletionCompletedReason: {
		Deleting, "", "the deletion of {machine} is complete", machineGoes, step{}, atOnce,
	},
}

// What else a deletion waits for.
var (
	deletionBegins = wait{
		Deleting, DeletionBegins, "{machine} is being deleted, and its controller has not reported how far that is",
		step{"DeletionGoesOn", "the Machine controller deletes {machine}"}, lookAtController, ownerTakes,
	}
	hostIsCleaned = wait{
		Deleting, "HostDeprovisioning", "BareMetalHost {host} of {machine} is being deprovisioned ({state})",
		machineGoes, lookAtProvider, cleaningTakes,
	}
	hostHinders    = wait{Deleting, "HostHindersDeletion", "the deletion of {machine} waits: {trouble}", machineGoes, repairHost, atOnce}
	otherFinalizer = wait{
		Deleting, "ForeignFinalizer", "Cluster API has deleted what belongs to {machine}, which finalizers of others keep: {finalizers}",
		machineGoes, step{"RemoveFinalizer", "make the owner of the finalizer finish, or remove it from {machine}"}, atOnce,
	}
)

// The waits for an owner to make a machine.
var (
	creates = wait{NoReplacement, "OwnerCreates", "{lost}, and {owner} has not made another one", makesAnother, lookAtOwner, ownerTakes}
	blocked = wait{
		NoReplacement, "ScalingUpBlocked", "{lost}, and {owner} cannot make another one{said}", makesAnother,
		step{"UnblockOwner", "end what keeps {owner} from making a machine"}, nodeTakes,
	}
	creationDisabled = wait{
		NoReplacement, "CreationDisabled", "{lost}, and an annotation forbids {owner} to make another one", makesAnother,
		step{"AllowCreation", "remove the annotation cluster.x-k8s.io/disable-machine-create from the MachineSet of {owner}"}, atOnce,
	}
)

// The waits of a new machine.
var (
	notInitialized = wait{
		WaitingForBootstrapData, "ControlPlaneNotInitialized",
		"{machine} gets no bootstrap data before the control plane of {object} is initialized",
		infraComes, step{"RepairControlPlane", "look at the control plane of {object}"}, atOnce,
	}
	bootstrapNotReady = wait{
		WaitingForBootstrapData, "BootstrapNotReady", "{machine} waits for the bootstrap data of {object}{reported}",
		infraComes, lookAtProvider, nodeTakes,
	}
	noHost = wait{
		NoHostFits, NoHost, "{machine} waits for a BareMetalHost, and {hosts}", hostIsTaken,
		step{"AddHost", "make a BareMetalHost available that the hostSelector of {object} selects"}, atOnce,
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
		Booting, "NoNode", "{machine} is provisioned, and no node has registered", nodeRegisters,
		step{"LookAtConsole", "look at the console of {object}: its kubelet has not registered, or with another spec.providerID"},
		machineTakes,
	}
	hostOff = wait{
		Booting, "HostPoweredOff", "{machine} is provisioned, and its BareMetalHost {host} is powered off",
		nodeRegisters, repairHost, nodeTakes,
	}
	nodeNotReady = wait{
		NodeNotReady, NodeNotReadyReason, "{object} of {machine} is not Ready{reported}{ailing}", step{},
		step{"LookAtNode", "look at {object} in the workload cluster: its kubelet and its network"}, nodeTakes,
	}
	stillUnhealthy = wait{
		NodeNotReady, StillUnhealthy, "the node of {machine} is Ready, and a health check marks the machine as unhealthy", step{},
		step{StillUnhealthy, "see which health check marks {machine}, and why"}, nodeTakes,
	}
)

// The ends, and what is not known.
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
