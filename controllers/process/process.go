// Package process has what concerns the manager's process: its pod and node, its memory, and its HTTP servers.
package process

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// bootID is the file with the boot ID of the host, also in a container. The kubelet reports the same value in the status of the Node.
const bootID = "/proc/sys/kernel/random/boot_id"

// Replica describes one process of the manager. The zero value is a process outside of a cluster.
type Replica struct {
	Namespace, Name string    // of its pod
	UID             types.UID // of its pod
	// Node is the name of its node; empty if there is no BootID.
	Node string
	// BootID identifies the boot of the host; empty if the system is not Linux.
	BootID string
}

// FromEnvironment reads the environment variables that the manifests of the manager set.
func FromEnvironment() Replica {
	r := Replica{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: types.UID(os.Getenv("POD_UID"))}
	if boot, err := os.ReadFile(bootID); err == nil {
		r.Node, r.BootID = os.Getenv("NODE_NAME"), strings.TrimSpace(string(boot))
	}
	return r
}

// HideUID removes POD_UID from the environment until the caller calls show.
func (r Replica) HideUID() (show func()) {
	if r.UID == "" {
		return func() {}
	}
	_ = os.Unsetenv("POD_UID") // never fails on Linux
	return func() { _ = os.Setenv("POD_UID", string(r.UID)) }
}

// InCluster reports whether the process runs in a pod, even if the pod's name is not known: the kubelet sets KUBERNETES_SERVICE_HOST in
// every container.
func (r Replica) InCluster() bool {
	return r.Namespace != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// Identity returns the name of the pod. Without a pod it returns a unique name, because several managers may run on one host.
func (r Replica) Identity() (string, error) {
	if r.Name != "" {
		return r.Name, nil
	}
	return Unique()
}

// Unique returns an identity that no other process has.
func Unique() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of the host: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Owner returns an owner reference to the pod, for objects in its namespace; nil in other namespaces and outside of a cluster.
func (r Replica) Owner(namespace string) *metav1.OwnerReference {
	if r.Name == "" || r.UID == "" || namespace != r.Namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: r.Name, UID: r.UID}
}

// RBAC to find another replica.
// +kubebuilder:rbac:groups=core,resources=pods,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=list

// ReadyElsewhere reports whether another replica is ready on another node.
func (r Replica) ReadyElsewhere(ctx context.Context, live client.Reader) (bool, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.InNamespace(r.Namespace)); err != nil {
		return false, fmt.Errorf("list the pods in %s: %w", r.Namespace, err)
	}
	own := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == r.Name })
	return own >= 0 && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"} {
			if p.Labels[key] != pods.Items[own].Labels[key] {
				return false
			}
		}
		return p.DeletionTimestamp.IsZero() && p.Spec.NodeName != "" && p.Spec.NodeName != pods.Items[own].Spec.NodeName &&
			slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	}), nil
}

const (
	// longestReview is the maximum size of a request to a webhook. The API server sends one object of at most 3 MiB at a time.
	longestReview = 16 << 20
	// ordinaryReview is how many bytes of each request do not count for reviewsAtOnce. Nearly all objects are smaller.
	ordinaryReview = 64 << 10
	// reviewsAtOnce is the maximum size of all concurrent requests together. Decoded requests need many times as much memory.
	reviewsAtOnce = 2 * longestReview
	// askedWithin is the timeout for reading a request. The API server sends it at once, and waits for the response for at most 30 s.
	askedWithin = 10 * time.Second
)

// Webhooks returns a webhook server that limits the size of requests.
func Webhooks(server webhook.Server) webhook.Server {
	return bounded{Server: server, reading: &atomic.Int64{}}
}

// bounded rejects requests that are longer than longestReview, and further requests while there are reviewsAtOnce bytes of concurrent
// requests. Any pod can call a webhook without a credential, and controller-runtime limits only admission requests (v0.24,
// pkg/webhook/conversion).
type bounded struct {
	webhook.Server
	reading *atomic.Int64 // size of the concurrent requests, without ordinaryReview for each of them
}

// Register implements webhook.Server.
func (s bounded) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// It fails only in tests whose requests do not come from a connection.
		_ = http.NewResponseController(w).SetReadDeadline(clock.RealClock{}.Now().Add(askedWithin))
		length := r.ContentLength
		if length < 0 { // no Content-Length, which the API server always sends
			length = longestReview
		}
		length = max(0, length-ordinaryReview)
		defer s.reading.Add(-length)
		if s.reading.Add(length) > reviewsAtOnce {
			http.Error(w, "the webhooks are being asked about too much at once", http.StatusTooManyRequests)
			return
		}
		asked := *r
		asked.Body = http.MaxBytesReader(w, r.Body, longestReview)
		hook.ServeHTTP(w, &asked)
	}))
}

// Filled returns a readiness check that succeeds once c has synced these kinds. Do not pass kinds with a conversion webhook: to list
// Metal3Remediations of an old version, the API server needs a ready replica to convert them, so a single replica would never become ready.
func Filled(c cache.Cache, kinds ...client.Object) healthz.Checker {
	return func(req *http.Request) error {
		for _, kind := range kinds {
			informer, err := c.GetInformer(req.Context(), kind, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("read a cache: %w", err)
			}
			if !informer.HasSynced() {
				return fmt.Errorf("the cache of %T is not filled yet", kind)
			}
		}
		return nil
	}
}

// garbage is the value of GOGC: by how many percent the heap may grow before Go collects garbage. The manager has long-lived caches and
// makes little garbage. With 40 instead of Go's default of 100 it needs a fifth less memory, and no measurable CPU time.
// (docs/performance.md)
const garbage = 40

// LimitMemory makes Go collect garbage early, unless GOGC is set, and limits its memory to 90 % of the container's limit, MEMORY_LIMIT in
// bytes, unless GOMEMLIMIT is set.
func LimitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	limit := os.Getenv("MEMORY_LIMIT")
	if limit == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	bytes, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || bytes <= 0 {
		return fmt.Errorf("MEMORY_LIMIT is %q, and no number of bytes", limit)
	}
	debug.SetMemoryLimit(bytes / 10 * 9)
	return nil
}
