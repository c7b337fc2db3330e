// Package v1alpha1 holds what is kubemend's own, all in the group kubemend.io: HostRemediation and its template, and what
// it adds to the objects of others, the names of its annotations, labels, conditions and events. It has no behaviour but
// the access to conditions.
//
// +kubebuilder:object:generate=true
// +groupName=kubemend.io
package v1alpha1

// Claim is the value of the annotation cluster.x-k8s.io/paused with which a
// MachineHealthCheck is handed to kubemend: Cluster API's own controller does
// not act on any object that has the annotation, and kubemend acts on those where
// it has this value.
const Claim = "kubemend"

// FieldOwner is the name under which all that kubemend writes stands in metadata.managedFields. It tells, after a restart
// and for ever, what is ours.
const FieldOwner = "kubemend"

// CommandLineFieldOwner is the name under which what kubectl mend writes stands there. It must not begin with "kubectl": Flux takes the
// fields of such managers for its own, and removes those that are not in Git.
const CommandLineFieldOwner = "kubemend-cli"

const (
	// MadeByAnnotation is set on a remediation request to the name of the check that made it.
	// The check is in the request's namespace.
	MadeByAnnotation = "kubemend.io/made-by"

	// MadeByUIDLabel is set on a remediation request to the UID of the check that made it.
	MadeByUIDLabel = "kubemend.io/made-by-uid"

	// MadeByNodeCheckAnnotation is set on a remediation request to the name of the NodeHealthCheck that made it. It is another one than
	// that of MachineHealthChecks, whose requests are deleted when no MachineHealthCheck of that name judges their machine.
	MadeByNodeCheckAnnotation = "kubemend.io/made-by-node-health-check"

	// MadeByNodeCheckUIDLabel is set on a remediation request to the UID of the NodeHealthCheck that made it.
	MadeByNodeCheckUIDLabel = "kubemend.io/made-by-node-health-check-uid"
)

// What a power cycle leaves on objects while it is under way. All of it is gone when it has ended, in whatever way, but for
// what the remediation remembers of itself.
const (
	// PowerCycleAnnotation on a remediation holds what it remembers of itself, as JSON. Status could be lost by `clusterctl move`,
	// and fields of ours in it are dropped by CAPM3's CRD.
	PowerCycleAnnotation = "kubemend.io/power-cycle"

	// WaitsForAnnotation on a remediation is the reason for which it waits for somebody else, such as who keeps its host powered off. Until
	// that has passed it takes no place under maxInFlight of a RemediationPolicy.
	WaitsForAnnotation = "kubemend.io/waits-for"

	// RebootedForAnnotation on a BareMetalHost says for which remediation and attempt it was asked to reboot, as UID/attempt. It
	// is written together with BMO's annotation, which BMO removes, so that a host is rebooted once in an attempt.
	RebootedForAnnotation = "kubemend.io/rebooted-for"

	// ReceiptForAnnotation on a BareMetalHost says for which remediation BMO was asked to show that it has read the hardware, as UID/time,
	// with the time at which the host was asked to power off. It is written together with BMO's annotation reboot.metal3.io, which BMO
	// removes from a host that is held off once it has read its power.
	ReceiptForAnnotation = "kubemend.io/receipt-for"

	// FencedByAnnotation on a node of a workload cluster is the UID of the remediation whose out-of-service taint the node has.
	FencedByAnnotation = "kubemend.io/fenced-by"
)

// MarkedForAnnotation on a BareMetalHost is the UID of the machine for which we marked the host as unhealthy. It stays with the
// mark, and tells it from one that a person made.
const MarkedForAnnotation = "kubemend.io/marked-unhealthy-for"

// PowerOffDisprovedAnnotation on a BareMetalHost is when a node went on to live although its host had been proven off, in RFC 3339. What
// reads the power of the host cannot be believed then: the host is not power-cycled until a person removes the annotation, as `kubectl
// mend reset` does.
const PowerOffDisprovedAnnotation = "kubemend.io/power-off-disproved"

// WorkloadClusterAnnotation on a Cluster is its UID, a slash, and the UID of the namespace kube-system of its workload cluster, as that was
// read first, or a person has confirmed it. With the UID of another Cluster it does not count.
const WorkloadClusterAnnotation = "kubemend.io/workload-cluster"

const (
	// ClaimedByAnnotation on a MachineHealthCheck that was claimed because of the mode of a RemediationPolicy is ClaimedByPolicy. A claim
	// without it is somebody else's, and stays when no policy asks for it. (It is copied when the object is, by `clusterctl move` or from a
	// backup, as metadata.managedFields is not.)
	ClaimedByAnnotation = "kubemend.io/claimed-by"
	// ClaimedByPolicy is the value of ClaimedByAnnotation.
	ClaimedByPolicy = "RemediationPolicy"

	// ClaimFieldOwner is the name under which claims that policies asked for stand in metadata.managedFields.
	ClaimFieldOwner = "kubemend-claims"
)

const (
	// RequestedAnnotation on a Machine, or on a remediation, says who asked for its remediation with `kubectl mend remediate`, when and
	// why, as JSON. Nothing is decided by it: who may write the object may write anything there. The audit log of the API server is the
	// proof.
	RequestedAnnotation = "kubemend.io/remediation-requested"

	// ResetAnnotation on a BareMetalHost, or on a Machine, says the same of the last `kubectl mend reset`.
	ResetAnnotation = "kubemend.io/reset"
)

// RecordOpenLabel is on a RemediationRecord; its value is "true" until it has ended, and "false" until an hour after it was begun or, of one
// that tells what was remediated again and again, until twelve hours after its end. The manager watches records with it, and no others.
const RecordOpenLabel = "kubemend.io/open"

// RecordTargetLabel is on a RemediationRecord; its value is the UID of the Machine that it is about, or of the Node, or of the
// BareMetalHost.
const RecordTargetLabel = "kubemend.io/target-uid"

// The metadata of a RemediationRecord that has ended, by which old ones are found without reading them.
const (
	// RecordHostLabel is the BareMetalHost, if its name can be the value of a label; else a hash of it.
	RecordHostLabel = "kubemend.io/host"
	// RecordEndedAnnotation is when the record has ended (RFC 3339): clusterctl move creates it anew, with another time of creation.
	RecordEndedAnnotation = "kubemend.io/ended"
)

// RecordAnnotation on a remediation request, or on a Machine whose owner was asked to replace it, names the RemediationRecord of the
// remediation: as name@uid or, as the steps of an escalation may have templates in several namespaces, as namespace/name@uid. A record
// whose UID nothing carries is none of that remediation, whatever target it names.
const RecordAnnotation = "kubemend.io/record"

// ManagerAnnotation on the Lease manager.kubemend.io is what the manager that acts says of itself, as JSON: its version, its settings, and
// the kinds that it serves. Package controllers/managerlease has the fields.
const ManagerAnnotation = "kubemend.io/manager"

// Conditions of a MachineHealthCheck, beside those of Cluster API.
const (
	// WorkloadClusterReachable is False while nodes are not judged because the workload cluster
	// cannot be asked. Its last transition says since when.
	WorkloadClusterReachable = "WorkloadClusterReachable"

	// TargetsExclusive is False while another check selects some of the same machines.
	TargetsExclusive = "TargetsExclusive"

	// Effective is False while the check, or one of its rules, can never act as it is written. At all other times it does not have it.
	Effective = "Effective"

	// RemediationTemplateAvailable says whether the template that the check names can be read. A
	// check without one does not have this condition.
	RemediationTemplateAvailable = "RemediationTemplateAvailable"

	// SpareHostAvailable is False on a MachineHealthCheck and on a Machine while the Machine's remediation waits for a spare host. At all
	// other times neither has it.
	SpareHostAvailable = "SpareHostAvailable"

	// CapacityBack is False on a MachineHealthCheck while the capacity of a remediation that it has asked for is not back, with the reason
	// of what the oldest one waits for, as its RemediationRecord has it, but for the steps of a power cycle. It is True once all are, and a
	// check whose capacity was never missing does not have it.
	CapacityBack = "CapacityBack"
)

// Reasons of the conditions above, and of RemediationAllowed. docs/reference/conditions.md is made of the comments.
const (
	ReachableReason         = "Reachable"                   // WorkloadClusterReachable=True: nodes are judged
	ReachableAgainReason    = "ReachableAgain"              // WorkloadClusterReachable=True: after an outage, whose time does not count
	UnreachableReason       = "Unreachable"                 // WorkloadClusterReachable=False: nodes cannot be judged
	KubeconfigRefusedReason = "KubeconfigRefused"           // WorkloadClusterReachable=False: the Secret has no usable kubeconfig
	ChangedReason           = "WorkloadClusterChanged"      // WorkloadClusterReachable=False: another workload cluster answers
	NotInitializedReason    = "NotInitialized"              // WorkloadClusterReachable=Unknown: no control plane, or no answer yet
	ExclusiveReason         = "Exclusive"                   // TargetsExclusive=True: kubemend acts on all checks of these machines
	OverlapReason           = "Overlap"                     // TargetsExclusive=False: kubemend does not act on another check of them
	FieldDroppedReason      = "FieldDropped"                // Effective=False: a field that was applied does not exist
	NoSuchStatusReason      = "NoSuchStatus"                // Effective=False: a rule names a status that no condition has
	NoRulesReason           = "NoRules"                     // Effective=False: no rule about conditions, and no start-up timeout
	SelectsNothingReason    = "SelectsNothing"              // Effective=False: no Machine and no template of Machines has the labels
	TemplateFoundReason     = "TemplateFound"               // RemediationTemplateAvailable=True: requests can be created
	TemplateNotFoundReason  = "RemediationTemplateNotFound" // RemediationTemplateAvailable=False: template or kind does not exist
	TemplateRefusedReason   = "TemplateRefused"             // RemediationTemplateAvailable=False: the kind is no remediation template
	ClusterNotFoundReason   = "ClusterNotFound"             // RemediationAllowed=False: `spec.clusterName` names no Cluster
	InvalidSelectorReason   = "InvalidSelector"             // RemediationAllowed=False: `spec.selector` cannot be parsed
	InvalidLimitReason      = "InvalidLimit"                // RemediationAllowed=False: a limit is impossible; the message names the field
	CapacityBackReason      = "CapacityBack"                // CapacityBack=True: all of it is back, or not expected any more
)

// Remediation is a condition of a Machine that is pending or unhealthy by a MachineHealthCheck on which kubemend acts: True while its
// remediation is in progress, False while something blocks it, with the reason of the first blocker and all of them in the message.
// A healthy Machine does not have it.
const Remediation = "kubemend.io/Remediation"

// Reasons of Remediation, beside those of blockers and those that an owner has given.
const (
	OwnerAskedReason  = "OwnerAsked"           // Remediation=True: the owner of the Machine was asked to replace it
	OwnerSilentReason = "OwnerSilent"          // Remediation=False: an owner that may not remediate was asked an hour ago, and is silent
	RequestedReason   = "RemediationRequested" // Remediation=True: there is a remediation request for the Machine
	NoOwnerReason     = "NoOwner"              // Remediation=False: the Machine has no owner that could be asked
	// PowerCycleFailedReason makes an owner act on a Machine that no MachineHealthCheck judges: it needs that condition.
	PowerCycleFailedReason = "PowerCycleFailed" // HealthCheckSucceeded=False: a power cycle failed, and no check judges the Machine
)

// Reasons of events. MachineMarkedUnhealthy and RemediationRestricted are Cluster API's. docs/reference/events.md is made of the comments.
const (
	EventMachineMarkedUnhealthy = "MachineMarkedUnhealthy"     // Normal, Warning on Machine: it became unhealthy; with all findings
	EventMachineHealthy         = "MachineHealthy"             // Normal on Machine: it is healthy again
	EventRemediationStarted     = "RemediationStarted"         // Normal on check: a remediation began; the Machine is `related`
	EventRemediationEnded       = "RemediationEnded"           // Normal on check: the `related` Machine is healthy again
	EventRemediationFailed      = "RemediationFailed"          // Warning on Machine: no request could be created
	EventRemediationRestricted  = "RemediationRestricted"      // Warning on check: short-circuited, or a limit is impossible
	EventRemediationAllowed     = "RemediationAllowed"         // Normal on check: no longer restricted; not after a rollout
	EventIneffective            = "IneffectiveCheck"           // Warning on check: it, or one of its rules, can never act as it is written
	EventOverlap                = "OverlappingChecks"          // Warning on check: kubemend does not act on another one of its machines
	EventUndone                 = "StepUndone"                 // Warning on Machine, check: another client removes what kubemend has set
	EventOrphanSwept            = "OrphanedMarkRemoved"        // Normal on BareMetalHost, Cluster: a remediation is gone, its mark removed
	EventMarkRemoved            = "UnhealthyMarkRemoved"       // Normal on BareMetalHost: its machine is healthy after all
	EventUnreachable            = "WorkloadClusterUnreachable" // Warning on check: the workload cluster was lost
	EventReachable              = "WorkloadClusterReachable"   // Normal on check: it is back
	EventWorkloadClusterChanged = "WorkloadClusterChanged"     // Warning on check: another workload cluster answers
	EventCheckClaimed           = "CheckClaimed"               // Normal on check: a RemediationPolicy claims it
	EventCheckReleased          = "CheckReleased"              // Normal, Warning on check: no policy claims it, or kubemend is being removed
	EventCheckNotClaimed        = "CheckNotClaimed"            // Warning on check: a policy claims it, but it is paused for all controllers
	EventMarksRemoved           = "MarksRemoved"               // Normal on all kinds: at removal kubemend removed its marks
	EventNotRemoved             = "NotRemoved"                 // Warning on Cluster: at removal its nodes could not be read
	EventRequestedByHand        = "RemediationRequested"       // Normal on Machine: a person ran `kubectl mend remediate`
	EventReset                  = "MarksReset"                 // Normal on BareMetalHost, Machine: a person ran `kubectl mend reset`
	EventRequestReleased        = "RemediationRequestReleased" // Normal on Machine: a request that its check does not need was deleted
	EventCapacityBack           = "CapacityBack"               // Normal on check, Machine: it is healthy again, or another one is in its place
	EventCapacityNotComing      = "CapacityNotComing"          // Normal, Warning on check, Machine: the remediation is over without that
)
