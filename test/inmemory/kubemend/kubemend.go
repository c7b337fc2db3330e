// Package kubemend runs kubemend's manager, with its flags, on API servers in memory and on virtual time. A test in a bubble of
// testing/synctest has the real controllers, queues, watches and connections to workload clusters, and a day takes seconds.
package kubemend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/setup"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// Host is the address of the management cluster.
const Host = "management"

// Kinds returns Kubernetes' own kinds of a management cluster.
func Kinds() []apiserver.Kind {
	return []apiserver.Kind{
		Global("", "v1", "Namespace"), Global("", "v1", "Node"), Kind("", "v1", "Secret"), Kind("", "v1", "Pod"),
		Kind("events.k8s.io", "v1", "Event"),
		Kind("coordination.k8s.io", "v1", "Lease"), Global("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
		Global("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
	}
}

// Kind returns a namespaced kind.
func Kind(group, version, name string) apiserver.Kind {
	return apiserver.Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: name}}
}

// Global returns a cluster-scoped kind.
func Global(group, version, name string) apiserver.Kind {
	kind := Kind(group, version, name)
	kind.ClusterScoped = true
	return kind
}

// WorkloadCluster returns the API server of a workload cluster.
func WorkloadCluster(host string) *apiserver.Server {
	return apiserver.New(host, Global("", "v1", "Namespace"), Global("", "v1", "Node"), Kind("", "v1", "Pod"),
		Global("storage.k8s.io", "v1", "VolumeAttachment"), Kind("coordination.k8s.io", "v1", "Lease"))
}

// CRD returns the CustomResourceDefinition of a kind, with the fields that the manager reads.
func CRD(kind apiserver.Kind) *unstructured.Unstructured {
	plural := strings.ToLower(kind.Kind) + "s"
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": kind.Group, "names": map[string]any{"kind": kind.Kind, "plural": plural},
		"versions": []any{map[string]any{"name": kind.Version, "served": true, "storage": true}},
	}}}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(plural + "." + kind.Group)
	return crd
}

// registered has the metrics that packages register once per process, not per manager.
var registered = metrics.Registry

func init() {
	// One of the default handlers sleeps until a time after the last error, which may have been in an earlier bubble with a later clock.
	// (apimachinery, rudimentaryErrorBackoff.)
	utilruntime.ErrorHandlers = nil
}

// Test runs a test in a bubble in which HTTP requests go to the API servers of package apiserver.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, Kubeconfig(Host), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	defer apiserver.Install()()
	synctest.Test(t, test)
}

// Kubeconfig returns a kubeconfig for an API server, whose user has these fields.
func Kubeconfig(host string, user ...string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://%s"}}], users: [{name: u, user: {%s}}]}`, host, strings.Join(user, ", "))
}

// KubeconfigOf returns the kubeconfig Secret of a Cluster, for an API server.
func KubeconfigOf(namespace, cluster, host string, user ...string) *corev1.Secret {
	secret := &corev1.Secret{Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": Kubeconfig(host, user...)}}
	secret.Namespace, secret.Name = namespace, cluster+"-kubeconfig"
	secret.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	return secret
}

// Manager is a running manager. Only one may run at a time.
type Manager struct {
	t        *testing.T
	cancel   func()
	ended    chan error
	restore  func()
	registry *prometheus.Registry
}

// Start starts a manager with these flags. It serves no health probes and no diagnostics.
func Start(t *testing.T, flags ...string) *Manager {
	t.Helper()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	options := setup.NewOptions(fs)
	if err := fs.Parse(append([]string{"--diagnostics-address=0", "--health-addr=0"}, flags...)); err != nil {
		t.Fatal(err)
	}
	options.SkipNameValidation = true
	m := &Manager{t: t, ended: make(chan error, 1), restore: apiserver.Install(), registry: prometheus.NewRegistry()}
	metrics.Registry = m.registry // setup registers the metrics of one manager here
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() { m.ended <- setup.Run(ctx, "test", options) }()
	return m
}

// Kill ends the manager, and returns when all its goroutines have ended.
func (m *Manager) Kill() {
	if m.cancel == nil {
		return
	}
	// An end between an event and its handler would leak a goroutine, so watches are silent meanwhile. (controller-runtime v0.24.1,
	// priorityqueue.go: handleReadyItems; apimachinery, watch/filter.go.)
	apiserver.Still(true)
	defer apiserver.Still(false)
	synctest.Wait()
	m.cancel()
	m.cancel = nil
	if err := <-m.ended; err != nil {
		m.t.Errorf("the manager ended: %v", err)
	}
	time.Sleep(time.Minute) // connections to workload clusters end later
	m.restore()
	metrics.Registry = registered
}

// Client returns a client for the test; the manager has its own.
func Client(server *apiserver.Server) client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		bmov1alpha1.AddToScheme, clientgoscheme.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	config := server.Config()
	config.UserAgent = apiserver.Tester
	c, err := client.New(config, client.Options{Scheme: scheme})
	utilruntime.Must(err)
	return c
}

// Series returns the series of a metric of the manager that have all these labels, written like `kind="Owner"`.
func (m *Manager) Series(name string, labels ...string) []*dto.Metric {
	m.t.Helper()
	families, err := prometheus.Gatherers{registered, m.registry}.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	var found []*dto.Metric
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			has := map[string]bool{}
			for _, l := range series.GetLabel() {
				has[l.GetName()+`="`+l.GetValue()+`"`] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				found = append(found, series)
			}
		}
	}
	return found
}
