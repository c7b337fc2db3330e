package v1beta2

// These names are those of CAPM3 and the Bare Metal Operator (BMO). CAPM3 uses them to clean up and to choose hosts, BMO to switch power.

// RemediationFinalizer keeps a Metal3Remediation until kubemend has released its host and removed the taint from its node.
const RemediationFinalizer = "metal3remediation.infrastructure.cluster.x-k8s.io"

// Annotations of a BareMetalHost.
const (
	// PowerOffAnnotationPrefix, followed by the UID of a remediation, is an annotation: BMO keeps the host powered off as long as it is
	// there. The UID tells remediations apart. BMO never removes the annotation from a provisioned host.
	PowerOffAnnotationPrefix = "reboot.metal3.io/metal3-remediation-"

	// PowerOffAnnotationValue makes BMO power the host off without asking the operating system, and only if the host is provisioned.
	PowerOffAnnotationValue = `{"mode":"hard","force":false}`

	// RebootAnnotation makes BMO power the host off once; BMO then removes the annotation. A host with spec.disablePowerOff gets only this
	// one: PowerOffAnnotationPrefix would make BMO reboot such a host again and again.
	RebootAnnotation = "reboot.metal3.io"

	// UnhealthyAnnotation, with any value, keeps CAPM3 v1.13 and later from choosing the host for another machine.
	UnhealthyAnnotation = "capm3.metal3.io/unhealthy"

	// LegacyUnhealthyAnnotation does the same for CAPM3 v1.12 and earlier, which ignore UnhealthyAnnotation.
	LegacyUnhealthyAnnotation = "capi.metal3.io/unhealthy"

	// UnhealthyAnnotationValue is the value that CAPM3 writes into both annotations.
	UnhealthyAnnotationValue = "capm3/UnhealthyNode"
)

// HostAnnotation is an annotation of a Metal3Machine: its BareMetalHost, as namespace/name.
const HostAnnotation = "metal3.io/BareMetalHost"

// The taint with which Kubernetes v1.28 and later moves pods and volumes away from a node that is known to be off. See
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown.
const (
	OutOfServiceTaintKey    = "node.kubernetes.io/out-of-service"
	OutOfServiceTaintValue  = "nodeshutdown"
	OutOfServiceTaintEffect = "NoExecute"
)

// Conditions of a HostRemediation and a Metal3Remediation, in the order in which an attempt reaches them. CAPM3 writes none of them.
const (
	// PowerOffRequestedCondition is True once kubemend has set its power-off annotation on the host.
	PowerOffRequestedCondition = "PowerOffRequested"

	// PoweredOffCondition is True once BMO reports the host as off after the request. It stays False if BMO cannot power off the host.
	PoweredOffCondition = "PoweredOff"

	// WorkloadMovedCondition is True once the node has no pod and no volume left that has to move.
	WorkloadMovedCondition = "WorkloadMoved"

	// PowerOnRequestedCondition is True once kubemend has removed its power-off annotation.
	PowerOnRequestedCondition = "PowerOnRequested"

	// PoweredOnCondition is True once BMO has reported the host as on after that.
	PoweredOnCondition = "PoweredOn"

	// NodeHealthyCondition is True once the node is Ready after the boot.
	NodeHealthyCondition = "NodeHealthy"
)
