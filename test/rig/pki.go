package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificateLife is longer than any rig runs, even a demo that a user leaves running over the weekend.
const certificateLife = 7 * 24 * time.Hour

// authority is the certificate authority of one control plane. Its key stays in this process.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// identity is a certificate with its key, both in PEM.
type identity struct {
	certificate, key []byte
}

func newAuthority(name string) (*authority, error) {
	template := certificateTemplate(pkix.Name{CommonName: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of certificate authority %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back certificate authority %s: %w", name, err)
	}
	return &authority{certificate: certificate, key: key, pem: pemOf("CERTIFICATE", der)}, nil
}

// server returns a serving certificate for all servers on loopback.
func (a *authority) server() (identity, error) {
	template := certificateTemplate(pkix.Name{CommonName: "127.0.0.1"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return a.sign(template)
}

// client returns a client certificate for a user with groups.
func (a *authority) client(user string, groups []string) (identity, error) {
	template := certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func certificateTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(certificateLife),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func (a *authority) sign(template *x509.Certificate) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make the key of %s: %w", template.Subject, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return identity{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return identity{}, fmt.Errorf("encode the key of %s: %w", template.Subject, err)
	}
	return identity{certificate: pemOf("CERTIFICATE", der), key: pemOf("EC PRIVATE KEY", private)}, nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (id identity) authInfo() *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificateData: id.certificate, ClientKeyData: id.key}
}

// restConfig returns a configuration without client-side rate limit: a test must not measure its own throttling.
func restConfig(address string, ca *authority, id identity) *rest.Config {
	return &rest.Config{
		Host: "https://" + address,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: ca.pem, CertData: id.certificate, KeyData: id.key,
		},
		QPS: -1,
	}
}

// kubeconfig returns a kubeconfig with one context and embedded certificates, so that it works in a file and in a Secret.
func kubeconfig(name, address string, ca *authority, user *clientcmdapi.AuthInfo) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: "https://" + address, CertificateAuthorityData: ca.pem},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig of %s: %w", name, err)
	}
	return content, nil
}
