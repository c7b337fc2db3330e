// Package rig starts real control planes on this machine, and removes them without a trace.
//
// A rig has a management control plane, with the kinds of Cluster API and, if asked for, Cluster API's own core
// controllers and webhooks, and any number of workload control planes with the controllers of nodes.
// etcd, kube-apiserver, kube-controller-manager and core are the real programs; test/rig/build says where they come from.
// Package test/simulator simulates what this machine cannot have, hosts and kubelets.
//
// Everything listens on 127.0.0.1 alone, on ports that the kernel gave. Every program runs under a reaper (see
// test/rig/reaper), so that it and the rig's folder are gone however the process that started them ends.
package rig
