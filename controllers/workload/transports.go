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

// Transports carry the requests to workload clusters, each by the cluster's own kubeconfig, and cut off answers that are too long.
// ClusterCache reads kubeconfigs from them: those that RESTConfig refuses are errors, so that no client connects by them, and all others
// name Transports in place of the server. They are safe for concurrent use. The zero value knows no cluster.
type Transports struct {
	// Reader reads Secrets.
	client.Reader
	// Self is the pod that this runs in, by its name and UID, and Local the way to the API server of the cluster that it runs in. A
	// workload cluster that has the pod is that cluster, and is asked that way, with its own credentials. No UID means that this runs in no
	// pod.
	Self    types.NamespacedName
	SelfUID types.UID
	Local   func() (*rest.Config, error)

	// limit is how long an answer may be, in bytes, as it is after decompression.
	limit int64
	clock clock.PassiveClock

	mu     sync.RWMutex
	routes map[string]*route // by host
}

// NewTransports returns transports that give no answer of more bytes than limit, as it is after decompression.
func NewTransports(limit int64, now clock.PassiveClock) *Transports {
	return &Transports{limit: limit, clock: now, routes: map[string]*route{}}
}

// MostNodes is how many nodes a cluster may have: so many that a list of the smallest there are is not cut off. 0 is for any number.
func (t *Transports) MostNodes() int64 { return t.limit / bytesPerItem }

// Get reads an object. Of a kubeconfig it is one by which requests come to t, or a RefusedError.
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

// use makes the requests to a cluster go by a kubeconfig, unless it is refused. What is known of the answers stays: the kubeconfig is for
// the tenant to change.
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

// forget drops what is known of a cluster that is gone.
func (t *Transports) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if to := t.routes[hostOf(cluster)]; to != nil {
		to.clock.Forget()
	}
	delete(t.routes, hostOf(cluster))
}

// routeOf returns the way to a cluster; nil if none is known.
func (t *Transports) routeOf(cluster client.ObjectKey) *route { return t.routeTo(hostOf(cluster)) }

func (t *Transports) routeTo(host string) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routes[host]
}

// silent reports whether a cluster leaves requests unanswered at now, and whether so much so that it is not even tried.
func (t *Transports) silent(cluster client.ObjectKey, now time.Time) (silent, rests bool) {
	if to := t.routeOf(cluster); to != nil {
		return to.circuit.state(now)
	}
	return false, false
}

// Refused is why the kubeconfig of a cluster was refused when it was last read; nil if it was not, or was not read.
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
	// A kubeconfig that is forgotten with a deleted Cluster may be that of one that was made again under its name, and was connected to
	// before its deletion was heard of.
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
	defer cancel() // the answer was read to its end by then
	answer, err := t.send(r.WithContext(ctx), to)
	to.circuit.leave(trial, err)
	if err != nil {
		return nil, final(err)
	}
	answer.Header.Del("Retry-After") // client-go would wait that long, with the worker
	return answer, nil
}

// unsent is how a RoundTripper ends a request that it does not send.
func unsent(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // it was not read
	}
	return nil, err
}

// Connections are those of a ClusterCache by Transports: that a cluster is not connected because of its kubeconfig is in the error.
type Connections struct {
	clustercache.ClusterCache
	Transports *Transports
	// Verify is asked before a client is given out, and keeps back that of another workload cluster than the one that is kept. It may be
	// nil.
	Verify func(ctx context.Context, cluster client.ObjectKey) error
}

// GetUncachedClient returns the client of a cluster that reads past all caches.
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

// Shutdown ends the connections to all clusters. Nothing may ask a cluster any more.
func (c Connections) Shutdown() {
	if connections, end := c.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}
