// Package health tests what Argo CD and Flux say of kubemend's kinds: the scripts of config/argocd and the expressions of docs/examples/flux, run as these
// tools run them, over the states that objects can be in.
package health
