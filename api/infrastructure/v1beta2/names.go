package v1beta2

// The names below are those of CAPM3 and of the Bare Metal Operator (BMO), to the letter: CAPM3 cleans up and chooses
// hosts by them, BMO switches power by them.

// RemediationFinalizer keeps a Metal3Remediation until its host is no longer held off and its node is free again.
const RemediationFinalizer = "metal3remediation.infrastructure.cluster.x-k8s.io"

// On a BareMetalHost.
const (
	// PowerOffAnnotationPrefix followed by the UID of a remediation is the annotation with which BMO holds a host off, for
	// as long as it is there. The UID keeps remediations apart; BMO never removes the annotation of a provisioned host.
	PowerOffAnnotationPrefix = "reboot.metal3.io/metal3-remediation-"

	// PowerOffAnnotationValue is its value: switched off at once, without asking the operating system, and only on a host
	// that is provisioned.
	PowerOffAnnotationValue = `{"mode":"hard","force":false}`

	// RebootAnnotation switches a host off once. BMO removes it as soon as it has done so. It is the only one that a host
	// with spec.disablePowerOff follows without rebooting again and again.
	RebootAnnotation = "reboot.metal3.io"

	// UnhealthyAnnotation keeps CAPM3 v1.13 and later from choosing the host for another machine, whatever its value.
	UnhealthyAnnotation = "capm3.metal3.io/unhealthy"

	// LegacyUnhealthyAnnotation does the same for CAPM3 v1.12 and earlier, which know no other.
	LegacyUnhealthyAnnotation = "capi.metal3.io/unhealthy"

	// UnhealthyAnnotationValue is the value that CAPM3 gives to either.
	UnhealthyAnnotationValue = "capm3/UnhealthyNode"
)

// HostAnnotation on a Metal3Machine names its BareMetalHost as namespace/name.
const HostAnnotation = "metal3.io/BareMetalHost"

// The taint by which Kubernetes v1.28 and later moves pods and volumes away from a node that is known to be off. See
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown.
const (
	OutOfServiceTaintKey    = "node.kubernetes.io/out-of-service"
	OutOfServiceTaintValue  = "nodeshutdown"
	OutOfServiceTaintEffect = "NoExecute"
)

// Conditions of a remediation, of both kinds, in the order in which one attempt goes through them. CAPM3 has none.
const (
	// PowerOffRequestedCondition is True from the moment at which the host has our power-off annotation.
	PowerOffRequestedCondition = "PowerOffRequested"

	// PoweredOffCondition is True once the host was seen off after we had asked for it. On a host that cannot be switched
	// off it is never True, and says so.
	PoweredOffCondition = "PoweredOff"

	// WorkloadMovedCondition is True when no pod and no volume is left that the node would have to release.
	WorkloadMovedCondition = "WorkloadMoved"

	// PowerOnRequestedCondition is True once our power-off annotation is gone again.
	PowerOnRequestedCondition = "PowerOnRequested"

	// PoweredOnCondition is True once the host was seen on after that.
	PoweredOnCondition = "PoweredOn"

	// NodeHealthyCondition is True once the node is Ready after the host came on.
	NodeHealthyCondition = "NodeHealthy"
)
