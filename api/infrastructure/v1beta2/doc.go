// Package v1beta2 holds Metal3Remediation and Metal3RemediationTemplate as they are stored, and every name that a power
// cycle uses on the objects of others. It has no behaviour but the access to conditions.
//
// The kinds are those of Cluster API Provider Metal3 (CAPM3), field by field, so that manifests, clients and its
// controller can be exchanged. Conditions and message of the status are additions: the CRD of CAPM3 prunes them, so
// nothing may be decided by them.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
