package v1alpha1

// Annotations and labels that a check writes on a remediation request. (medik8s, node-healthcheck-operator.)
const (
	// NodeNameAnnotation is the name of the node; the name of the request may be another one.
	NodeNameAnnotation = "remediation.medik8s.io/node-name"
	// TemplateNameAnnotation is the name of the template that the request was created from.
	TemplateNameAnnotation = "remediation.medik8s.io/template-name"
	// TimedOutAnnotation asks the remediator to stop, after a timeout or a reported failure. The value is the time (RFC 3339).
	TimedOutAnnotation = "remediation.medik8s.io/nhc-timed-out"
	// HealthyDelayAnnotation is the time since when the node has been healthy, while spec.healthyDelay keeps the request. RFC 3339, UTC.
	HealthyDelayAnnotation = "remediation.medik8s.io/healthy-delay"
	// OldRequestAnnotation is on a request that the metric nodehealthcheck_old_remediation_cr has counted as older than 48 hours.
	OldRequestAnnotation = "nodehealthcheck.medik8s.io/old-remediation-cr-flag"
	// OldRequestFlag is the value of OldRequestAnnotation.
	OldRequestFlag = "flagon"

	// PartOfLabel is on every request, with the value PartOf.
	PartOfLabel = "app.kubernetes.io/part-of"
	// PartOf is the value of PartOfLabel.
	PartOf = "node-healthcheck-controller"
	// ControlPlaneLabel, with an empty value, is on requests for control-plane nodes.
	ControlPlaneLabel = "remediation.medik8s.io/isControlPlaneNode"
)

// Annotations and labels that users and remediators write and a check reads. (medik8s.)
const (
	// MultipleTemplatesAnnotation on a template, with any value, says that its remediator supports several requests for one node.
	MultipleTemplatesAnnotation = "remediation.medik8s.io/multiple-templates-support"
	// ExcludeLabel on a node, with the value ExcludeValue, excludes the node from remediation. The node still counts as unhealthy.
	ExcludeLabel = "remediation.medik8s.io/exclude-from-remediation"
	// ExcludeValue is the only value of ExcludeLabel that has an effect.
	ExcludeValue = "true"
	// ConfirmedHealthyAnnotation on a node, with any value, ends the healthy delay. The check then removes it.
	ConfirmedHealthyAnnotation = "remediation.medik8s.io/manually-confirmed-healthy"
)

// Conditions that a remediator writes on its request. (medik8s, contract of remediators.)
const (
	// ProcessingCondition is True while the remediation is in progress.
	ProcessingCondition = "Processing"
	// SucceededCondition is Unknown while ProcessingCondition is True, then True or False. False means failed or stopped.
	SucceededCondition = "Succeeded"
	// NodeDeletionExpectedCondition is True if the node will not come back under its name.
	NodeDeletionExpectedCondition = "PermanentNodeDeletionExpected"
)

// Leases on nodes: they keep several checks, and Node Maintenance Operator, from working on one node at the same time.
const (
	// DefaultLeaseNamespace is the namespace of the leases unless the flag --node-lease-namespace names another one.
	DefaultLeaseNamespace = "medik8s-leases"
	// LeasePrefix and the name of the node, in lower case, are the name of a lease.
	LeasePrefix = "node-"
	// LeaseHolderPrefix and the name of the check are the holder of a lease.
	LeaseHolderPrefix = "NodeHealthCheck-"
)

// Conditions of a NodeHealthCheck.
const (
	// DisabledCondition is True while the check does nothing, for example because its template is missing.
	DisabledCondition = "Disabled"
	// StormActiveCondition is True from when too many nodes are unhealthy until enough are healthy and the cooldown has passed.
	StormActiveCondition = "StormActive"
	// StormCooldownActiveCondition is True while enough nodes are healthy again but spec.stormCooldownDuration has not passed.
	StormCooldownActiveCondition = "StormCooldownActive"
	// RemediationAllowedCondition is False while no new remediation may start, for any reason. medik8s' operator does not have it.
	RemediationAllowedCondition = "RemediationAllowed"
)

// Reasons of the conditions above, except those of blockers. docs/reference/conditions.md is generated from these comments.
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

// Reasons of events (medik8s), whose texts begin with EventPrefix. docs/reference/events.md is generated from these comments.
const (
	EventPrefix              = "[remediation] "
	EventDisabled            = "Disabled"                     // Warning: `Disabling NHC. Reason: <reason>, Message: <message>`
	EventEnabled             = "Enabled"                      // Normal: `No issues found, NodeHealthCheck is enabled.`
	EventDetectedUnhealthy   = "DetectedUnhealthy"            // Normal: `Node matches unhealthy condition. Node "<node>", ...`
	EventRemediationCreated  = "RemediationCreated"           // Normal: `Created remediation object for node <node>`
	EventRemediationRemoved  = "RemediationRemoved"           // Normal: `Deleted remediation CR of kind <kind> with name <name>`
	EventRemediationSkipped  = "RemediationSkipped"           // Normal, Warning: a node that is due is not remediated, see below
	EventRemediationTimedOut = "RemediationTimedOut"          // Warning: the timeout of a step has expired or its request failed, see below
	EventRequestFailed       = "RemediationFailed"            // Warning: a request could not be created, see below
	EventInvalidNodeLabel    = "InvalidNodeLabel"             // Warning: the exclude label of a node has an empty value and is ignored
	EventNoTemplateLeft      = "NoTemplateLeft"               // Warning: `Remediation timed out, and no template left to try. ...`
	EventStormStarted        = "StormRecoveryStarted"         // Warning: `Storm recovery mode activated - delaying remediation ...`
	EventStormCooldown       = "StormRecoveryCooldownStarted" // Warning: `Storm recovery mode will exit after cooldown delay`
	EventStormEnded          = "StormRecoveryEnded"           // Normal: `Storm recovery mode deactivated - normal remediation resumed`
)

// OpenShiftMachineAnnotation on a node names its OpenShift Machine, as namespace/name.
const OpenShiftMachineAnnotation = "machine.openshift.io/machine"
