package workload

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
