// Package v1beta2 has the stored version of Metal3Remediation and Metal3RemediationTemplate, and the names of all annotations, taints and
// conditions that a power cycle uses. Its only methods give access to conditions.
//
// The kinds are those of Cluster API Provider Metal3 (CAPM3), field by field, so that users can exchange manifests, clients and the
// controller. kubemend adds status.conditions and status.message. CAPM3's CRD drops them, so no decision may depend on them.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
