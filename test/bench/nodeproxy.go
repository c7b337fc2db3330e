package main

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// nodesPath is the path of lists and watches of nodes. That of a single node is longer, and passed on as it is.
const nodesPath = "/api/v1/nodes"

// nodeProxy is a reverse proxy that shows the nodes of one cluster, from an API server that has those of all. Without
// it, every cluster would cache the nodes of all others.
type nodeProxy struct {
	server    *http.Server
	url       string
	authority []byte // the certificate of its authority
}

// startNodeProxy serves the nodes with that label on a port of 127.0.0.1, over TLS as a real API server does: connections cost memory,
// and HTTP/2 needs fewer of them. The certificate is the one that comes with Go for servers of tests.
func startNodeProxy(target *rest.Config, label string) (*nodeProxy, error) {
	host, err := url.Parse(target.Host)
	if err != nil {
		return nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(target)
	if err != nil {
		return nil, fmt.Errorf("make the transport of a proxy: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // events of a watch are not collected
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(host)
			if r.In.URL.Path == nodesPath {
				query := r.Out.URL.Query()
				query.Set("labelSelector", label)
				r.Out.URL.RawQuery = query.Encode()
			}
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for a proxy: %w", err)
	}
	w := &nodeProxy{
		server: &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second},
		url:    "https://" + listener.Addr().String(),
	}
	example := httptest.NewTLSServer(proxy)
	example.Close()
	w.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: example.Certificate().Raw})
	w.server.TLSConfig = &tls.Config{Certificates: example.TLS.Certificates}
	go func() { _ = w.server.ServeTLS(listener, "", "") }() // it returns when it is closed
	return w, nil
}

func (w *nodeProxy) close() { _ = w.server.Close() } // this cuts off watches, whose clients have ended

// kubeconfig is how to reach the API server through the proxy, which has the credentials itself.
func (w *nodeProxy) kubeconfig() ([]byte, error) {
	const name = "proxy"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: w.url, CertificateAuthorityData: w.authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return content, nil
}
