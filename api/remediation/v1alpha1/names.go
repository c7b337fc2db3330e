package v1alpha1

// What a check writes on a remediation request. (medik8s, node-healthcheck-operator.)
const (
	// NodeNameAnnotation is the node that the request is about, also where the request is named otherwise.
	NodeNameAnnotation = "remediation.medik8s.io/node-name"
	// TemplateNameAnnotation is the template that the request was made from.
	TemplateNameAnnotation = "remediation.medik8s.io/template-name"
	// TimedOutAnnotation tells the remediator to stop: its time is over, or it said that it failed. RFC 3339.
	TimedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
	// HealthyDelayAnnotation is since when the node has been healthy, while spec.healthyDelay keeps the request. RFC 3339, UTC.
	HealthyDelayAnnotation = "remediation.medik8s.io/healthy-delay"
	// OldRequestAnnotation marks a request that was counted as older than 48 hours; its value is OldRequestFlag.
	OldRequestAnnotation = "nodehealthcheck.medik8s.io/old-remediation-cr-flag"
	// OldRequestFlag is the value of OldRequestAnnotation.
	OldRequestFlag = "flagon"

	// PartOfLabel has the value PartOf on every request.
	PartOfLabel = "app.kubernetes.io/part-of"
	// PartOf is the value of PartOfLabel.
	PartOf = "node-healthcheck-controller"
	// ControlPlaneLabel is on the requests for nodes of the control plane; its value is empty.
	ControlPlaneLabel = "remediation.medik8s.io/isControlPlaneNode"
)

// What others write for a check to read. (medik8s.)
const (
	// MultipleTemplatesAnnotation on a template, with any value, says that its remediator copes with several requests for one node.
	MultipleTemplatesAnnotation = "remediation.medik8s.io/multiple-templates-support"
	// ExcludeLabel on a node keeps it from being remediated if its value is ExcludeValue. It counts as unhealthy all the same.
	ExcludeLabel = "remediation.medik8s.io/exclude-from-remediation"
	// ExcludeValue is the value with which ExcludeLabel counts.
	ExcludeValue = "true"
	// ConfirmedHealthyAnnotation on a node, with any value, ends the healthy delay. The check removes it.
	ConfirmedHealthyAnnotation = "remediation.medik8s.io/manually-confirmed-healthy"
)

// Conditions of a remediation request, written by its remediator. (medik8s, the contract of remediators.)
const (
	// ProcessingCondition is True from the start of a remediation until it is over.
	ProcessingCondition = "Processing"
	// SucceededCondition is Unknown as long as ProcessingCondition is True; then it is True, or False if the remediation was in vain, or
	// was stopped.
	SucceededCondition = "Succeeded"
	// NodeDeletionExpectedCondition says whether the node will not come back under its name.
	NodeDeletionExpectedCondition = "PermanentNodeDeletionExpected"
)

// Leases on nodes, by which checks, and the node maintenance of medik8s, keep out of each other's way.
const (
	// DefaultLeaseNamespace is where they are unless a flag of the manager names another one.
	DefaultLeaseNamespace = "medik8s-leases"
	// LeasePrefix begins the name of each; the node's name in lower case follows.
	LeasePrefix = "node-"
	// LeaseHolderPrefix begins the holder's name; the check's name follows.
	LeaseHolderPrefix = "NodeHealthCheck-"
)

// Conditions of a NodeHealthCheck.
const (
	// DisabledCondition is True while the check does nothing because of its templates or of somebody else's checks.
	DisabledCondition = "Disabled"
	// StormActiveCondition is True from when too many nodes were unhealthy until the cooldown after that is over.
	StormActiveCondition = "StormActive"
	// StormCooldownActiveCondition is True while enough nodes are healthy again and spec.stormCooldownDuration runs.
	StormCooldownActiveCondition = "StormCooldownActive"
	// RemediationAllowedCondition is False while no new remediation starts, whatever the cause. It is kubemend's addition.
	RemediationAllowedCondition = "RemediationAllowed"
)

// Reasons of the conditions above, besides those of rules. docs/reference/conditions.md is made of the comments.
const (
	ConflictReason          = "ConflictingMachineHealthCheckDetected" // Disabled=True: OpenShift: a MachineHealthCheck of your own exists
	TemplateNotFoundReason  = "RemediationTemplateNotFound"           // Disabled=True: template or kind does not exist; read every 15 s
	TemplateInvalidReason   = "RemediationTemplateInvalid"            // Disabled=True: no `spec.template`, or no template
	TemplateForbiddenReason = "RemediationTemplateForbidden"          // Disabled=True: templates or requests may not be listed
	SelectorInvalidReason   = "SelectorInvalid"                       // Disabled=True: stored before the field was validated
	InvalidLimitReason      = "InvalidLimit"                          // Disabled=True: stored before the field was validated
	TeardownReason          = "ControllerTeardown"                    // Disabled=True: kubemend is being removed
	EnabledReason           = "NodeHealthCheckEnabled"                // Disabled=False: no issue
	ThresholdReason         = "HealthyNodeThresholdChange"            // StormActive, StormCooldownActive: too many nodes were not healthy
	AllowedReason           = "Allowed"                               // RemediationAllowed=True: blockers of one node are events
	KindUnreadReason        = "KindUnreadable"                        // RemediationAllowed=False: a kind could not be listed for 30 s
	KubeletsAwaitedReason   = "KubeletsAwaited"                       // RemediationAllowed=False: kubelets had no time to report
)

// Reasons of events on a NodeHealthCheck (medik8s), whose texts begin with EventPrefix. docs/reference/events.md is made of the comments.
const (
	EventPrefix              = "[remediation] "
	EventDisabled            = "Disabled"                     // Warning: `Disabling NHC. Reason: <reason>, Message: <message>`
	EventEnabled             = "Enabled"                      // Normal: `No issues found, NodeHealthCheck is enabled.`
	EventDetectedUnhealthy   = "DetectedUnhealthy"            // Normal: `Node matches unhealthy condition. Node "<node>", ...`
	EventRemediationCreated  = "RemediationCreated"           // Normal: `Created remediation object for node <node>`
	EventRemediationRemoved  = "RemediationRemoved"           // Normal: `Deleted remediation CR of kind <kind> with name <name>`
	EventRemediationSkipped  = "RemediationSkipped"           // Normal, Warning: a node that is due is not remediated, see below
	EventRemediationTimedOut = "RemediationTimedOut"          // Warning: a step was given up, see below
	EventRequestFailed       = "RemediationFailed"            // Warning: a request could not be created, see below
	EventInvalidNodeLabel    = "InvalidNodeLabel"             // Warning: the exclude label of a node has an empty value and is ignored
	EventNoTemplateLeft      = "NoTemplateLeft"               // Warning: `Remediation timed out, and no template left to try. ...`
	EventStormStarted        = "StormRecoveryStarted"         // Warning: `Storm recovery mode activated - delaying remediation ...`
	EventStormCooldown       = "StormRecoveryCooldownStarted" // Warning: `Storm recovery mode will exit after cooldown delay`
	EventStormEnded          = "StormRecoveryEnded"           // Normal: `Storm recovery mode deactivated - normal remediation resumed`
)

// OpenShiftMachineAnnotation names the Machine of OpenShift that a node is of, as namespace/name.
const OpenShiftMachineAnnotation = "machine.openshift.io/machine"
