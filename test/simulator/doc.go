// Package simulator plays what this machine cannot have: an infrastructure provider with its hosts, and the kubelets
// that run on them.
//
// The players do what the real ones do towards the API servers, and no more. What follows from it is left to the real
// controllers: that a silent node is Unknown is found out by kube-controller-manager, that a Machine runs by Cluster
// API. The knobs are those of the real things: a kubelet can be stopped, slowed, or made to report a condition; a host
// can take its time, or come up without a kubelet.
package simulator
