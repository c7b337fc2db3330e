// Package v1beta1 has the older version of Metal3Remediation and Metal3RemediationTemplate, and its conversion to and from v1beta2. It is
// deprecated and served only for existing manifests and clients; the code of this project uses v1beta2.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
