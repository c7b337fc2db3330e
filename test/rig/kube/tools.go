//go:build tools

// Package kube pins the versions of the programs of a control plane. `make rig` builds them from this module, so that Kubernetes' own
// requirements stay out of the project's go.mod.
package kube

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
