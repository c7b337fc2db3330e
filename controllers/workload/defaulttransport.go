package workload

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scheme is that of the addresses by which ClusterCache knows workload clusters: workload://<namespace>.<name>.
const scheme = "workload"

// Register makes t carry what http.DefaultTransport is asked for. Once in the life of a process there may be one that does.
//
// ClusterCache makes its clients of a kubeconfig alone, and reads each answer to its end, however long that is. So it is given one that
// names no server but Transports, by an address of a scheme of its own. What client-go makes of that it sends by http.DefaultTransport,
// which knows who carries that scheme. (client-go, transport/cache.go; net/http, Transport.RegisterProtocol; docs/decisions.md.)
func (t *Transports) Register() error {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return fmt.Errorf("register the transports of workload clusters: http.DefaultTransport is a %T", http.DefaultTransport)
	}
	transport.RegisterProtocol(scheme, t)
	return nil
}

// hostOf is the host in the address of a cluster. A namespace has no dot.
func hostOf(cluster client.ObjectKey) string { return cluster.Namespace + "." + cluster.Name }

// carriedBy returns a kubeconfig by which requests to a host come to Transports. It has no credentials: these have those of the cluster's
// own.
func carriedBy(host string) ([]byte, error) {
	address := url.URL{Scheme: scheme, Host: host}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: address.String()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
}
