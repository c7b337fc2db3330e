package workload

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// RefusedError says which entry of a kubeconfig is not obeyed.
type RefusedError struct {
	// Entry is its path in the kubeconfig, such as users[admin].user.tokenFile.
	Entry string
	// Why is what it would do.
	Why string
}

// Error names the entry, and nothing that it says: it may be a credential.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the kubeconfig is refused: %s %s", e.Entry, e.Why)
}

// RESTConfig is what a kubeconfig from a Secret says. One that cannot be parsed or used, or names a file, a program, an auth provider, a
// proxy or a server of another scheme than https and http, is refused: who may write the Secret is not who reads it, and client-go would
// send the content of such a file, of the machine that it runs on, to the server that the kubeconfig names. (client-go,
// tools/clientcmd/client_config.go: tokenFile. ClusterCache refuses exec and auth-provider alone.) Each of its errors is a RefusedError.
func RESTConfig(kubeconfig []byte) (*rest.Config, error) {
	said, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, &RefusedError{Entry: "it", Why: "is no kubeconfig: it cannot be parsed"} // the error may quote it
	}
	if refused := refusal(said); refused != nil {
		return nil, refused
	}
	config, err := clientcmd.NewDefaultClientConfig(*said, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil { // this error quotes it as well
		return nil, &RefusedError{Entry: "current-context", Why: "does not lead to a cluster with a server and to a user with one way to log in"}
	}
	var current clientcmdapi.Context
	if said.Contexts[said.CurrentContext] != nil { // without one, the cluster and the user that have no name are taken
		current = *said.Contexts[said.CurrentContext]
	}
	// Another scheme could be the one that Transports carry, to another cluster and by that one's credentials.
	if server, _, err := rest.DefaultServerUrlFor(config); err != nil || server.Scheme != "https" && server.Scheme != "http" {
		return nil, &RefusedError{Entry: entryOf("clusters", current.Cluster, "cluster.server"), Why: "names neither an https nor an http address"}
	}
	if refused := unusable(config, current); refused != nil {
		return nil, refused
	}
	return config, nil
}

// unusable is the entry by which no connection could be made, which would be said of the cluster only as that it cannot be reached; nil if
// all are usable.
func unusable(config *rest.Config, current clientcmdapi.Context) *RefusedError {
	_, err := rest.TLSConfigFor(config) // the errors quote what they are about
	switch {
	case err == nil:
		return nil
	case config.Insecure && len(config.CAData) > 0:
		return &RefusedError{
			Entry: entryOf("clusters", current.Cluster, "cluster.insecure-skip-tls-verify"), Why: "cannot be set with certificate-authority-data",
		}
	case len(config.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(config.CAData):
		return &RefusedError{Entry: entryOf("clusters", current.Cluster, "cluster.certificate-authority-data"), Why: "has no certificate in PEM"}
	}
	return &RefusedError{
		Entry: entryOf("users", current.AuthInfo, "user.client-certificate-data"), Why: "and client-key-data are no certificate with its key, in PEM",
	}
}

// entryOf is the path of an entry. Who writes a kubeconfig names its users and clusters, and the path goes into conditions and events: the
// API server refuses those that are too long.
func entryOf(list, name, key string) string {
	const longest = 63
	if runes := []rune(name); len(runes) > longest {
		name = string(runes[:longest]) + "..."
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.ContainsAny(name, "[] ") {
		name = quoted
	}
	return list + "[" + name + "]." + key
}

const (
	readsFile   = "names a file, which would be read where this runs"
	runsProgram = "names a program, which would be run where this runs"
	asksProxy   = "names a proxy, which would be asked from where this runs"
)

// refusal is the first entry, by name, that is not obeyed; nil if all are. It does not matter whether the current context uses it.
func refusal(config *clientcmdapi.Config) *RefusedError {
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		user := config.AuthInfos[name]
		for _, entry := range []struct {
			named    bool
			key, why string
		}{
			{user.Exec != nil, "exec", runsProgram}, {user.AuthProvider != nil, "auth-provider", runsProgram},
			{user.TokenFile != "", "tokenFile", readsFile}, {user.ClientCertificate != "", "client-certificate", readsFile},
			{user.ClientKey != "", "client-key", readsFile},
		} {
			if entry.named {
				return &RefusedError{Entry: entryOf("users", name, "user."+entry.key), Why: entry.why}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		switch cluster := config.Clusters[name]; {
		case cluster.CertificateAuthority != "":
			return &RefusedError{Entry: entryOf("clusters", name, "cluster.certificate-authority"), Why: readsFile}
		case cluster.ProxyURL != "":
			return &RefusedError{Entry: entryOf("clusters", name, "cluster.proxy-url"), Why: asksProxy}
		}
	}
	return nil
}

// Kubeconfigs reads Secrets as ClusterCache does, but for kubeconfigs that RESTConfig refuses: of these it returns the RefusedError, so
// that no client connects by them. It is safe for concurrent use.
type Kubeconfigs struct {
	client.Reader
	// Tell hears that the kubeconfig of a cluster is refused, once for each content. It may be nil.
	Tell func(ctx context.Context, cluster client.ObjectKey, refused *RefusedError)
	// Transports carry what is asked by these kubeconfigs, if they are set: each is then one by which requests come to them.
	Transports *Transports

	mu      sync.Mutex
	refused map[client.ObjectKey]refusedKubeconfig
}

type refusedKubeconfig struct {
	err     *RefusedError
	version string // of the Secret
}

// Get reads an object, and returns a RefusedError of a kubeconfig that is refused.
func (k *Kubeconfigs) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := k.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	s, ok := obj.(*corev1.Secret)
	name, kubeconfig := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !ok || !kubeconfig {
		return nil
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: name}
	content := s.Data[secret.KubeconfigDataName]
	_, err := RESTConfig(content)
	if err == nil && k.Transports != nil {
		content, err = k.Transports.route(cluster, content)
	}
	var refused *RefusedError
	errors.As(err, &refused)
	if k.note(cluster, refused, s.ResourceVersion) && k.Tell != nil {
		k.Tell(ctx, cluster, refused)
	}
	s.Data = nil
	if err != nil {
		return err
	}
	s.Data = map[string][]byte{secret.KubeconfigDataName: content}
	return nil
}

// note remembers what was last read of the kubeconfig of a cluster, and reports whether that it is refused is news.
func (k *Kubeconfigs) note(cluster client.ObjectKey, refused *RefusedError, version string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if refused == nil {
		delete(k.refused, cluster)
		return false
	}
	if k.refused == nil {
		k.refused = map[client.ObjectKey]refusedKubeconfig{}
	}
	before, known := k.refused[cluster]
	k.refused[cluster] = refusedKubeconfig{err: refused, version: version}
	return !known || before.version != version
}

// TellCluster returns what tells a Cluster, by an event, that its kubeconfig is refused.
func TellCluster(clusters client.Reader, recorder events.EventRecorder) func(context.Context, client.ObjectKey, *RefusedError) {
	return func(ctx context.Context, key client.ObjectKey, refused *RefusedError) {
		cluster := &clusterv1.Cluster{}
		if err := clusters.Get(ctx, key, cluster); err != nil {
			log.FromContext(ctx).Error(err, "Cannot tell a Cluster that its kubeconfig is refused", "Cluster", key, "entry", refused.Entry)
			return
		}
		recorder.Eventf(cluster, nil, corev1.EventTypeWarning, mendv1.EventKubeconfigRefused, "Connect",
			"Secret %s-%s: %s: kubemend does not connect to the workload cluster, and nodes cannot be judged", key.Name, secret.Kubeconfig, refused)
	}
}

// Refused is why the kubeconfig of a cluster was refused when it was last read; nil if it was not, or if that is unknown because k is nil.
func (k *Kubeconfigs) Refused(cluster client.ObjectKey) *RefusedError {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused[cluster].err
}

// route is the way to a cluster; nil if none is known, also because k or its Transports are nil.
func (k *Kubeconfigs) route(cluster client.ObjectKey) *route {
	if k == nil || k.Transports == nil {
		return nil
	}
	return k.Transports.routeOf(cluster)
}

// Connections are those of a ClusterCache by these kubeconfigs: that a cluster is not connected because of its kubeconfig is in the error.
type Connections struct {
	clustercache.ClusterCache
	Kubeconfigs *Kubeconfigs
}

// GetUncachedClient returns the client of a cluster that reads past all caches.
func (c Connections) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	connected, err := c.ClusterCache.GetUncachedClient(ctx, cluster)
	return connected, c.because(cluster, err)
}

// GetRESTConfig returns the configuration of the connection to a cluster: the same one for as long as the connection is the same.
func (c Connections) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	config, err := c.ClusterCache.GetRESTConfig(ctx, cluster)
	return config, c.because(cluster, err)
}

// Shutdown ends the connections to all clusters. Nothing may ask a cluster any more.
func (c Connections) Shutdown() {
	if connections, end := c.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}

func (c Connections) because(cluster client.ObjectKey, err error) error {
	if refused := c.Kubeconfigs.Refused(cluster); err != nil && refused != nil {
		return fmt.Errorf("%w: %w", err, refused)
	}
	return err
}

// forget drops what is known of a cluster that is gone.
func (k *Kubeconfigs) forget(cluster client.ObjectKey) {
	if k.Transports != nil {
		k.Transports.forget(cluster)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.refused, cluster)
}
