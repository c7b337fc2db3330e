//go:build tools

// Package kube pins the versions of the programs that make up a control plane. `make rig` builds them from here, so
// that the requirements of Kubernetes itself stay out of the project's own go.mod.
package kube

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
