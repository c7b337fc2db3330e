// Package manager runs the manager that users run, with its flags, on API servers in memory and on virtual time: a test in a bubble of testing/synctest
// has the real controllers, queues, watches and connections to workload clusters, and a day takes seconds.
package manager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubemend/kubemend/setup"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// Host is where the management cluster is.
const Host = "management"

// Kinds are those of a management cluster that are not kubemend's own.
func Kinds() []apiserver.Kind {
	return []apiserver.Kind{
		clusterScoped("", "v1", "Namespace"), clusterScoped("", "v1", "Node"), kind("", "v1", "Secret"), kind("", "v1", "Pod"), kind("", "v1", "Event"),
		kind("events.k8s.io", "v1", "Event"), kind("coordination.k8s.io", "v1", "Lease"),
		clusterScoped("authorization.k8s.io", "v1", "SelfSubjectAccessReview"), clusterScoped("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
		kind("cluster.x-k8s.io", "v1beta2", "Cluster"), kind("cluster.x-k8s.io", "v1beta2", "Machine"),
		kind("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck"), kind("cluster.x-k8s.io", "v1beta2", "MachineSet"),
		kind("cluster.x-k8s.io", "v1beta2", "MachineDeployment"), kind("controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane"),
	}
}

func kind(group, version, name string) apiserver.Kind {
	return apiserver.Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: name}}
}

func clusterScoped(group, version, name string) apiserver.Kind {
	k := kind(group, version, name)
	k.ClusterScoped = true
	return k
}

// Test runs a test in a bubble in which requests by http reach the API servers of package apiserver, and metrics begin at zero.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	undo := apiserver.Install()
	defer undo()
	registry := metrics.Registry
	metrics.Registry = prometheus.NewRegistry()
	defer func() { metrics.Registry = registry }()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, Kubeconfig(Host), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	synctest.Test(t, test)
}

// Kubeconfig leads to an API server.
func Kubeconfig(host string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://%s"}}], users: [{name: u, user: {}}]}`, host)
}

// Start starts a manager with these flags besides those that keep it from listening, and returns what ends it.
func Start(t *testing.T, flags ...string) (stop func()) {
	t.Helper()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	options := setup.NewOptions(fs)
	if err := fs.Parse(append([]string{"--diagnostics-address=0", "--health-addr=0"}, flags...)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- setup.Run(ctx, "test", options) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
		time.Sleep(time.Minute) // what it has started ends meanwhile
	}
}
