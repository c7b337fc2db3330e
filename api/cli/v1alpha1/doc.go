// Package v1alpha1 has the documents that `kubectl mend` prints with -o json and -o yaml.
//
// No API server knows them. Reasons and numbers have fields of their own. Texts for people, such as message, may change with any release.
// Within a version fields may be added, but none is removed or changes its type. See docs/cli/output.md.
//
// +kubebuilder:object:generate=true
// +groupName=cli.kubemend.io
package v1alpha1
