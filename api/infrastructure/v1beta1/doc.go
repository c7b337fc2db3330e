// Package v1beta1 holds Metal3Remediation and Metal3RemediationTemplate in the version that came first, and its
// conversion to v1beta2 and back. It is served for manifests and clients that are not changed yet, and deprecated: all
// code of this project uses v1beta2.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
