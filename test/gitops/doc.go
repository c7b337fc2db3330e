// Package gitops tests claims against the tools that apply MachineHealthChecks from elsewhere: Flux, Argo CD, Helm, kubectl and Cluster API's topology
// controller, each with the code or the requests of the original, on a real API server, beside the built plugin.
//
// It is a module of its own, because what these tools are built from is no business of the manager's.
package gitops
