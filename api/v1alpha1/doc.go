// Package v1alpha1 has kubemend's own kinds, group kubemend.io: HostRemediation and its template, RemediationRecord, RemediationPolicy and
// RemediationOverride. It also has the names of annotations, labels, conditions and events on other objects.
//
// +kubebuilder:object:generate=true
// +groupName=kubemend.io
package v1alpha1

// Claim is the value of the annotation cluster.x-k8s.io/paused that gives a MachineHealthCheck to kubemend: Cluster API's controller
// ignores objects with this annotation, and kubemend acts on those with this value.
const Claim = "kubemend"

// FieldOwner is kubemend's name in metadata.managedFields. After a restart kubemend recognizes by it which fields it wrote.
const FieldOwner = "kubemend"

// CommandLineFieldOwner is the name of kubectl mend in metadata.managedFields. It must not begin with "kubectl": Flux treats the fields of
// such managers as its own, and removes those that are not in Git.
const CommandLineFieldOwner = "kubemend-cli"

const (
	// MadeByAnnotation on a remediation request is the name of the MachineHealthCheck that created it, which is in the same namespace.
	MadeByAnnotation = "kubemend.io/made-by"

	// MadeByUIDLabel on a remediation request is the UID of the MachineHealthCheck that created it.
	MadeByUIDLabel = "kubemend.io/made-by-uid"

	// MadeByNodeCheckAnnotation on a remediation request is the name of the NodeHealthCheck that created it. It differs from
	// MadeByAnnotation, because a request with MadeByAnnotation is deleted when no MachineHealthCheck of that name judges its machine.
	MadeByNodeCheckAnnotation = "kubemend.io/made-by-node-health-check"

	// MadeByNodeCheckUIDLabel on a remediation request is the UID of the NodeHealthCheck that created it.
	MadeByNodeCheckUIDLabel = "kubemend.io/made-by-node-health-check-uid"
)

// Annotations of a power cycle in progress. kubemend removes them when it ends, except PowerCycleAnnotation.
const (
	// PowerCycleAnnotation on a remediation is the stored state of its power cycle, as JSON. It is not in the status, because `clusterctl
	// move` may lose the status and CAPM3's CRD drops kubemend's fields from it.
	PowerCycleAnnotation = "kubemend.io/power-cycle"

	// WaitsForAnnotation on a remediation is the reason why it waits for something outside of kubemend, such as a user who keeps its host
	// powered off. Meanwhile the remediation does not count under maxInFlight of a RemediationPolicy.
	WaitsForAnnotation = "kubemend.io/waits-for"

	// RebootedForAnnotation on a BareMetalHost is the remediation and the attempt that requested a reboot, as UID/attempt. kubemend writes
	// it together with RebootAnnotation. It stays after BMO has removed that one, so the host is rebooted only once per attempt.
	RebootedForAnnotation = "kubemend.io/rebooted-for"

	// ReceiptForAnnotation on a BareMetalHost is the remediation that asked BMO for a receipt, that is to show that BMO has read the power
	// of the host, as UID/time; the time is when the host was asked to power off. kubemend writes it together with the annotation
	// reboot.metal3.io. BMO removes that one from a host that is kept off once it has read its power.
	ReceiptForAnnotation = "kubemend.io/receipt-for"

	// FencedByAnnotation on a node of a workload cluster is the UID of the remediation that put the out-of-service taint on it.
	FencedByAnnotation = "kubemend.io/fenced-by"
)

// MarkedForAnnotation on a BareMetalHost is the UID of the machine for which kubemend marked it unhealthy. A user's mark does not have it.
const MarkedForAnnotation = "kubemend.io/marked-unhealthy-for"

// PowerOffDisprovedAnnotation on a BareMetalHost is when its node was seen alive although the host had been proven off (RFC 3339). Its
// reported power is then not reliable: kubemend does not power-cycle it until `kubectl mend reset` removes the annotation.
const PowerOffDisprovedAnnotation = "kubemend.io/power-off-disproved"

// WorkloadClusterAnnotation on a Cluster is its UID, a slash, and the UID of the namespace kube-system of its workload cluster, as first
// read or as confirmed by a user. kubemend ignores it if the first UID is that of another Cluster.
const WorkloadClusterAnnotation = "kubemend.io/workload-cluster"

const (
	// ClaimedByAnnotation on a MachineHealthCheck has the value ClaimedByPolicy if a RemediationPolicy with mode Act claimed the check.
	// kubemend does not remove a claim without it. Unlike metadata.managedFields it survives `clusterctl move` and backups.
	ClaimedByAnnotation = "kubemend.io/claimed-by"
	// ClaimedByPolicy is the value of ClaimedByAnnotation.
	ClaimedByPolicy = "RemediationPolicy"

	// ClaimFieldOwner is the name in metadata.managedFields for claims by policies.
	ClaimFieldOwner = "kubemend-claims"
)

const (
	// RequestedAnnotation on a Machine or a remediation says who requested its remediation with `kubectl mend remediate`, when and why, as
	// JSON. No decision depends on it, because any client may write it; the API server's audit log is the proof.
	RequestedAnnotation = "kubemend.io/remediation-requested"

	// ResetAnnotation on a BareMetalHost or a Machine says the same about the last `kubectl mend reset`.
	ResetAnnotation = "kubemend.io/reset"
)

// RecordOpenLabel on a RemediationRecord is "true" until the record is closed. It is then "false" until an hour after the remediation
// began, or, if the record counts for a loop, until twelve hours after its end. The manager watches only records with this label.
const RecordOpenLabel = "kubemend.io/open"

// RecordTargetLabel on a RemediationRecord is the UID of its Machine, else of its Node, else of its BareMetalHost.
const RecordTargetLabel = "kubemend.io/target-uid"

// Metadata of a RemediationRecord by which closed records are found without reading their content.
const (
	// RecordHostLabel is the name of the BareMetalHost, or a hash of the name if a label cannot have it as its value.
	RecordHostLabel = "kubemend.io/host"
	// RecordEndedAnnotation is when the record was closed (RFC 3339). `clusterctl move` changes the creation time.
	RecordEndedAnnotation = "kubemend.io/ended"
)

// RecordAnnotation on a remediation request, or on a Machine whose owner was asked to replace it, names the RemediationRecord: as name@uid,
// or as namespace/name@uid for an escalation with templates in several namespaces. A record whose UID no object carries counts for nothing.
const RecordAnnotation = "kubemend.io/record"

// ManagerAnnotation on the Lease manager.kubemend.io is the version, the settings and the served kinds of the manager that acts, as JSON.
// Package controllers/managerlease has the fields.
const ManagerAnnotation = "kubemend.io/manager"

// Conditions that kubemend adds to a MachineHealthCheck.
const (
	// WorkloadClusterReachable is False while kubemend does not judge nodes because it cannot reach the workload cluster.
	WorkloadClusterReachable = "WorkloadClusterReachable"

	// TargetsExclusive is False while another check selects some of the same machines.
	TargetsExclusive = "TargetsExclusive"

	// Effective is False while the check, or one of its rules, can never act as written. Otherwise the check does not have this condition.
	Effective = "Effective"

	// RemediationTemplateAvailable is True if kubemend can read the check's template. A check without a template does not have it.
	RemediationTemplateAvailable = "RemediationTemplateAvailable"

	// SpareHostAvailable is False on a Machine whose remediation waits for a spare host, and on its check. Otherwise it is absent.
	SpareHostAvailable = "SpareHostAvailable"

	// CapacityBack is False while the capacity of a remediation that the check requested is not back, and True once all capacity is back.
	// Its reason is that of the oldest record, with one reason for all steps of a power cycle. Without any missing capacity it is absent.
	CapacityBack = "CapacityBack"
)

// Reasons of these conditions and of RemediationAllowed. docs/reference/conditions.md is generated from these comments.
const (
	ReachableReason         = "Reachable"                   // WorkloadClusterReachable=True: nodes are judged
	ReachableAgainReason    = "ReachableAgain"              // WorkloadClusterReachable=True: judged again, without the time of the outage
	UnreachableReason       = "Unreachable"                 // WorkloadClusterReachable=False: nodes cannot be judged
	KubeconfigRefusedReason = "KubeconfigRefused"           // WorkloadClusterReachable=False: the Secret has no usable kubeconfig
	ChangedReason           = "WorkloadClusterChanged"      // WorkloadClusterReachable=False: another workload cluster answers
	NotInitializedReason    = "NotInitialized"              // WorkloadClusterReachable=Unknown: no control plane, or no answer yet
	ExclusiveReason         = "Exclusive"                   // TargetsExclusive=True: kubemend acts on all checks of these machines
	OverlapReason           = "Overlap"                     // TargetsExclusive=False: kubemend does not act on all checks of these machines
	FieldDroppedReason      = "FieldDropped"                // Effective=False: a field that was applied does not exist
	NoSuchStatusReason      = "NoSuchStatus"                // Effective=False: a rule names a status that no condition has
	NoRulesReason           = "NoRules"                     // Effective=False: neither a rule about conditions nor a start-up timeout
	SelectsNothingReason    = "SelectsNothing"              // Effective=False: no Machine and no template of Machines has the labels
	TemplateFoundReason     = "TemplateFound"               // RemediationTemplateAvailable=True: requests can be created
	TemplateNotFoundReason  = "RemediationTemplateNotFound" // RemediationTemplateAvailable=False: template or kind does not exist
	TemplateRefusedReason   = "TemplateRefused"             // RemediationTemplateAvailable=False: the kind is no remediation template
	ClusterNotFoundReason   = "ClusterNotFound"             // RemediationAllowed=False: `spec.clusterName` names no Cluster
	InvalidSelectorReason   = "InvalidSelector"             // RemediationAllowed=False: `spec.selector` cannot be parsed
	InvalidLimitReason      = "InvalidLimit"                // RemediationAllowed=False: a limit is impossible; the message names the field
	CapacityBackReason      = "CapacityBack"                // CapacityBack=True: all capacity is back, or not expected any more
)

// Remediation is a condition of a Machine that is pending or unhealthy by a MachineHealthCheck on which kubemend acts. It is True while its
// remediation is in progress, and False while something blocks it: the reason is the first blocker, the message has all.
const Remediation = "kubemend.io/Remediation"

// RecordMention precedes the RemediationRecord in the message of Remediation.
const RecordMention = ": see RemediationRecord "

// Reasons of Remediation that are neither blockers nor reasons of an owner.
const (
	OwnerAskedReason  = "OwnerAsked"           // Remediation=True: the owner of the Machine was asked to replace it
	OwnerSilentReason = "OwnerSilent"          // Remediation=False: an owner that may be unable to remediate is silent for an hour
	RequestedReason   = "RemediationRequested" // Remediation=True: there is a remediation request for the Machine
	NoOwnerReason     = "NoOwner"              // Remediation=False: the Machine has no owner that could be asked
	// PowerCycleFailedReason is for a Machine without a check: its owner replaces it only if HealthCheckSucceeded is False.
	PowerCycleFailedReason = "PowerCycleFailed" // HealthCheckSucceeded=False: a power cycle failed, and no check judges the Machine
)

// Reasons of events, two of which Cluster API's controller uses too. docs/reference/events.md is generated from these comments.
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
	EventCheckReleased          = "CheckReleased"              // Normal, Warning on check: no policy claims it, or kubemend is removed
	EventCheckNotClaimed        = "CheckNotClaimed"            // Warning on check: a policy claims it, but it is paused for all controllers
	EventMarksRemoved           = "MarksRemoved"               // Normal on all kinds: at removal kubemend removed its marks
	EventNotRemoved             = "NotRemoved"                 // Warning on Cluster: at removal its nodes could not be read
	EventRequestedByHand        = "RemediationRequested"       // Normal on Machine: a person ran `kubectl mend remediate`
	EventReset                  = "MarksReset"                 // Normal on BareMetalHost, Machine: a person ran `kubectl mend reset`
	EventRequestReleased        = "RemediationRequestReleased" // Normal on Machine: a request that its check does not need was deleted
	EventCapacityBack           = "CapacityBack"               // Normal on check, Machine: it is healthy again, or was replaced
	EventCapacityNotComing      = "CapacityNotComing"          // Normal, Warning on check, Machine: the remediation is over without that
)
