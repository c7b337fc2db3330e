package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Transports send the requests to workload clusters, each with the cluster's own kubeconfig, and limit the responses. ClusterCache reads
// kubeconfigs through them: Get returns an error for a kubeconfig that RESTConfig refuses, or else a kubeconfig that names Transports in
// place of the server. Transports are safe for concurrent use. The zero value has no clusters.
type Transports struct {
	// Reader reads Secrets.
	client.Reader
	// Self is the pod of this process.
	Self types.NamespacedName
	// SelfUID is the UID of the pod; empty outside of a cluster.
	SelfUID types.UID
	// Local returns how to reach the manager's own cluster. If a workload cluster has the pod, its address is taken from Local.
	Local func() (*rest.Config, error)

	// limit is the maximum length of a response in bytes, after decompression.
	limit int64
	clock clock.PassiveClock

	mu     sync.RWMutex
	routes map[string]*route // by host
}

// NewTransports returns transports that limit responses to this many bytes after decompression.
func NewTransports(limit int64, now clock.PassiveClock) *Transports {
	return &Transports{limit: limit, clock: now, routes: map[string]*route{}}
}

// MostNodes returns how many of the smallest nodes fit into a response, which is how many nodes a cluster may have; 0 if there is no limit.
func (t *Transports) MostNodes() int64 { return t.limit / bytesPerItem }

// Get reads an object. In place of a kubeconfig it returns one whose requests go to t, or a RefusedError.
func (t *Transports) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := t.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	s, ok := obj.(*corev1.Secret)
	name, kubeconfig := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !ok || !kubeconfig {
		return nil
	}
	cluster, content := client.ObjectKey{Namespace: key.Namespace, Name: name}, s.Data[secret.KubeconfigDataName]
	s.Data = nil
	if err := t.use(cluster, content); err != nil {
		return err
	}
	carried, err := carriedBy(hostOf(cluster))
	s.Data = map[string][]byte{secret.KubeconfigDataName: carried}
	return err
}

// use sets the kubeconfig of a cluster, unless the kubeconfig is refused. The state of the circuit and of the clock stays: a tenant may
// change the kubeconfig, and must not reset them by that.
func (t *Transports) use(cluster client.ObjectKey, kubeconfig []byte) error {
	config, err := RESTConfig(kubeconfig)
	host := hostOf(cluster)
	t.mu.Lock()
	to := t.routes[host]
	if to == nil {
		to = newRoute(cluster, t.clock)
		t.routes[host] = to
	}
	to.refused = nil
	errors.As(err, &to.refused)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	to.dialing.Lock()
	defer to.dialing.Unlock()
	if to.kubeconfig != string(kubeconfig) {
		to.kubeconfig, to.config, to.transport = string(kubeconfig), config, nil
		to.identified.Store(new(time.Time))
	}
	return nil
}

// forget drops the route of a cluster that is gone.
func (t *Transports) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if to := t.routes[hostOf(cluster)]; to != nil {
		to.clock.Forget()
	}
	delete(t.routes, hostOf(cluster))
}

// routeOf returns the route of a cluster; nil if there is none.
func (t *Transports) routeOf(cluster client.ObjectKey) *route { return t.routeTo(hostOf(cluster)) }

func (t *Transports) routeTo(host string) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routes[host]
}

// silent reports whether a cluster leaves requests unanswered at now, and whether not even a trial request may be sent.
func (t *Transports) silent(cluster client.ObjectKey, now time.Time) (silent, rests bool) {
	if to := t.routeOf(cluster); to != nil {
		return to.circuit.state(now)
	}
	return false, false
}

// Refused returns why the kubeconfig of a cluster was refused when it was last read; nil if it was accepted or not read.
func (t *Transports) Refused(cluster client.ObjectKey) *RefusedError {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if to := t.routes[hostOf(cluster)]; to != nil {
		return to.refused
	}
	return nil
}

// RoundTrip sends a request to the cluster that its address names.
func (t *Transports) RoundTrip(r *http.Request) (*http.Response, error) {
	to := t.routeTo(r.URL.Host)
	// If a Cluster is deleted and created again, a late delete event may drop the route of the new Cluster. Then an unauthorized probe
	// makes ClusterCache reconnect and read the kubeconfig again.
	if r.URL.Path == "/" && (to == nil || to.reconnects.Swap(false)) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	if to == nil {
		return unsent(r, fmt.Errorf("no kubeconfig of %s is known", r.URL.Host))
	}
	if !awaited(r) {
		return t.send(r, to)
	}
	trial, err := to.circuit.enter(r.Context())
	if err != nil {
		return unsent(r, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel() // the response is read to its end before
	answer, err := t.send(r.WithContext(ctx), to)
	to.circuit.leave(trial, err)
	if err != nil {
		return nil, final(err)
	}
	answer.Header.Del("Retry-After") // client-go would block the worker for that long
	return answer, nil
}

// unsent returns err for a request that is not sent, and closes its body, as a RoundTripper must.
func unsent(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

// Connections is a ClusterCache whose errors say whether a kubeconfig is refused.
type Connections struct {
	clustercache.ClusterCache
	Transports *Transports
	// Verify is called before a client is returned, and returns an error if another workload cluster answers. It may be nil.
	Verify func(ctx context.Context, cluster client.ObjectKey) error
}

// GetUncachedClient returns a client that reads from the API server of a cluster.
func (c Connections) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if c.Verify != nil {
		if err := c.Verify(ctx, cluster); err != nil {
			return nil, err
		}
	}
	connected, err := c.ClusterCache.GetUncachedClient(ctx, cluster)
	if refused := c.Transports.Refused(cluster); err != nil && refused != nil {
		return nil, fmt.Errorf("%w: %w", err, refused)
	}
	return connected, err
}

// Shutdown ends the connections to all clusters. No cluster may be read afterwards.
func (c Connections) Shutdown() {
	if connections, end := c.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}
