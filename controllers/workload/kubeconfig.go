package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// RESTConfig is what a kubeconfig from a Secret says. One that cannot be parsed, or names a file, a program, an auth provider or a proxy, is refused:
// who may write the Secret is not who reads it, and client-go would send the content of such a file, of the machine that it runs on, to the server
// that the kubeconfig names. (client-go, tools/clientcmd/client_config.go: tokenFile. ClusterCache refuses exec and auth-provider alone.)
func RESTConfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, &RefusedError{Entry: "it", Why: "is no kubeconfig: it cannot be parsed"} // the error may quote it
	}
	if refused := refusal(config); refused != nil {
		return nil, refused
	}
	return clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
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
				return &RefusedError{Entry: "users[" + name + "].user." + entry.key, Why: entry.why}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		switch cluster := config.Clusters[name]; {
		case cluster.CertificateAuthority != "":
			return &RefusedError{Entry: "clusters[" + name + "].cluster.certificate-authority", Why: readsFile}
		case cluster.ProxyURL != "":
			return &RefusedError{Entry: "clusters[" + name + "].cluster.proxy-url", Why: asksProxy}
		}
	}
	return nil
}

// Kubeconfigs reads Secrets as ClusterCache does, but for kubeconfigs that RESTConfig refuses: of these it returns the RefusedError, so that nobody
// connects by them. It is safe for concurrent use.
type Kubeconfigs struct {
	client.Reader
	// Tell hears that the kubeconfig of a cluster is refused, once for each content. It may be nil.
	Tell func(ctx context.Context, cluster client.ObjectKey, refused *RefusedError)

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
	s, is := obj.(*corev1.Secret)
	name, kubeconfig := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !is || !kubeconfig {
		return nil
	}
	_, err := RESTConfig(s.Data[secret.KubeconfigDataName])
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = nil // what else is wrong its reader says as well
	}
	if k.note(client.ObjectKey{Namespace: key.Namespace, Name: name}, refused, s.ResourceVersion) && k.Tell != nil {
		k.Tell(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, refused)
	}
	if refused != nil {
		s.Data = nil
		return refused
	}
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
	was, known := k.refused[cluster]
	k.refused[cluster] = refusedKubeconfig{err: refused, version: version}
	return !known || was.version != version
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
			"Secret %s-%s: %s: nobody connects to the workload cluster, and nodes are unjudged", key.Name, secret.Kubeconfig, refused)
	}
}

// Refused is why the kubeconfig of a cluster was refused when it was last read; nil if it was not.
func (k *Kubeconfigs) Refused(cluster client.ObjectKey) *RefusedError {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused[cluster].err
}

// forget drops what is known of a cluster that is gone.
func (k *Kubeconfigs) forget(cluster client.ObjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.refused, cluster)
}
