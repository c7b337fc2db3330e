package workload

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scheme is the scheme of the addresses that ClusterCache has for workload clusters: workload://<namespace>.<name>.
const scheme = "workload"

// Register makes http.DefaultTransport pass requests with this scheme to t. A process may call it only once.
//
// ClusterCache makes its clients only from kubeconfigs, and client-go reads each response to its end, however long it is. So ClusterCache
// gets a kubeconfig with this scheme in place of the server. For such a kubeconfig client-go uses http.DefaultTransport, which passes the
// requests to t. (client-go, transport/cache.go; net/http, Transport.RegisterProtocol; docs/decisions.md)
func (t *Transports) Register() error {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return fmt.Errorf("register the transports of workload clusters: http.DefaultTransport is a %T", http.DefaultTransport)
	}
	transport.RegisterProtocol(scheme, t)
	return nil
}

// hostOf returns the host in the address of a cluster. It is unique, because a namespace has no dot.
func hostOf(cluster client.ObjectKey) string { return cluster.Namespace + "." + cluster.Name }

// carriedBy returns a kubeconfig whose requests go to Transports. It has no credentials, because Transports use those of the cluster's own
// kubeconfig.
func carriedBy(host string) ([]byte, error) {
	address := url.URL{Scheme: scheme, Host: host}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: address.String()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
}
