// Package simulator plays what this machine cannot have: bare-metal hosts and what manages them, an infrastructure
// provider, the kubelets that run on the hosts, and the parts of a workload cluster that a rig has no real ones of.
//
// The players do what the real ones do towards the API servers, and no more. What follows from it is left to the real
// controllers: that a silent node is Unknown and that its pods are moved is found out by kube-controller-manager, that
// a Machine runs by Cluster API. The knobs are those of the real things: a kubelet can be stopped, slowed, or made to
// report a condition; a host can take its time, or come up without a kubelet; a BMC can fail, or die.
package simulator
