// Package v1alpha1 holds NodeHealthCheck, and every name that its checks and their remediators use on the objects of each other.
// It has no behaviour but the access to conditions.
//
// The kind is that of medik8s (node-healthcheck-operator v0.12), field by field, so that manifests, clients and remediators can be
// exchanged. What is added is validation, columns, and the condition RemediationAllowed.
//
// +kubebuilder:object:generate=true
// +groupName=remediation.medik8s.io
package v1alpha1
