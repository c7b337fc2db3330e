package capi

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubeconfigIs changes the kubeconfig of the cluster, until the spec ends.
func (env *environment) kubeconfigIs(ctx context.Context, change func(*clientcmdapi.Config)) {
	GinkgoHelper()
	was := env.kubeconfig(ctx)
	config, err := clientcmd.Load(was.Data[kubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	change(config)
	content, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	env.write(ctx, content)
	DeferCleanup(func(ctx SpecContext) { env.write(ctx, was.Data[kubeconfigKey]) })
}

// kubeconfigKey is where Cluster API keeps the kubeconfig in its Secret.
const kubeconfigKey = "value"

func (env *environment) write(ctx context.Context, kubeconfig []byte) {
	GinkgoHelper()
	secret := env.kubeconfig(ctx)
	before := secret.DeepCopy()
	secret.Data[kubeconfigKey] = kubeconfig
	Expect(here.Patch(ctx, secret, client.MergeFrom(before))).To(Succeed())
}

func (env *environment) kubeconfig(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: env.name + "-kubeconfig"}, secret)).To(Succeed())
	return secret
}

// isUnreachable has the kubeconfig name an address that takes connections and answers nothing.
func (env *environment) isUnreachable(ctx context.Context) {
	GinkgoHelper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(silent.Close)
	env.kubeconfigIs(ctx, func(config *clientcmdapi.Config) { theCluster(config).Server = "https://" + silent.Addr().String() })
}

// isSlow has the kubeconfig name a proxy that forwards each request later. It is the client that the API server knows.
func (env *environment) isSlow(ctx context.Context) {
	GinkgoHelper()
	config, err := env.config(ctx)
	Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	silence := log.New(io.Discard, "", 0) // connections end when those do that asked
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ErrorLog: silence,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(slowness)
		r.Header.Del("Authorization")
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2, server.Config.ErrorLog = true, silence
	server.StartTLS()
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	env.kubeconfigIs(ctx, func(config *clientcmdapi.Config) {
		cluster := theCluster(config)
		cluster.Server = server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		for name := range config.AuthInfos {
			config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "any"}
		}
	})
}

// theCluster is the one cluster that a kubeconfig names.
func theCluster(config *clientcmdapi.Config) *clientcmdapi.Cluster {
	GinkgoHelper()
	Expect(config.Clusters).To(HaveLen(1))
	for _, cluster := range config.Clusters {
		return cluster
	}
	return nil
}
