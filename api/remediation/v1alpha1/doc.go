// Package v1alpha1 has NodeHealthCheck, and the names of the annotations, labels, conditions and leases that checks and remediators share.
//
// The kind is that of medik8s (node-healthcheck-operator v0.12), field by field, so that users can exchange manifests, clients and
// remediators. kubemend adds validation, columns, and the condition RemediationAllowed.
//
// +kubebuilder:object:generate=true
// +groupName=remediation.medik8s.io
package v1alpha1
