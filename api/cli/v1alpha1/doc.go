// Package v1alpha1 has the documents that `kubectl mend` prints with -o json and -o yaml.
//
// No API server knows them. A program that reads one finds reasons and numbers in fields of their own; fields called message are for people
// and may change with any release. Within a version of this group fields are added, and none is removed or given another type;
// docs/cli/output.md has them all.
//
// +kubebuilder:object:generate=true
// +groupName=cli.kubemend.io
package v1alpha1
