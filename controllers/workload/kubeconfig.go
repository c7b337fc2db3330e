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

// RefusedError says why a kubeconfig is refused.
type RefusedError struct {
	// Entry is the path of an entry in the kubeconfig, such as users[admin].user.tokenFile.
	Entry string
	// Why is what is wrong with the entry.
	Why string
}

// Error names the entry, but not its value, which may be a credential.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the kubeconfig is refused: %s %s", e.Entry, e.Why)
}

// RESTConfig parses a kubeconfig from a Secret. All its errors are RefusedErrors. It refuses a kubeconfig that cannot be used, or that
// names a file, a program, an auth provider, a proxy, or a server that is neither https nor http. A tenant may write the Secret, and
// client-go would send the content of a file of the manager's pod to the server in the kubeconfig. (client-go,
// tools/clientcmd/client_config.go: tokenFile. ClusterCache refuses only exec and auth-provider.)
func RESTConfig(kubeconfig []byte) (*rest.Config, error) {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, &RefusedError{Entry: "it", Why: "cannot be parsed"} // without err, which may quote credentials
	}
	if refused := refusal(parsed); refused != nil {
		return nil, refused
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil { // it may quote credentials too
		return nil, &RefusedError{Entry: "current-context", Why: "does not name a cluster with a server and a user with one way to log in"}
	}
	var current clientcmdapi.Context
	if parsed.Contexts[parsed.CurrentContext] != nil { // otherwise client-go uses the cluster and the user with an empty name
		current = *parsed.Contexts[parsed.CurrentContext]
	}
	// With the scheme of Transports, the kubeconfig would lead to another cluster, with the credentials of that cluster.
	if server, _, err := rest.DefaultServerUrlFor(config); err != nil || server.Scheme != "https" && server.Scheme != "http" {
		entry := entryOf("clusters", current.Cluster, "cluster.server")
		return nil, &RefusedError{Entry: entry, Why: "names neither an https nor an http address"}
	}
	if refused := unusable(config, current); refused != nil {
		return nil, refused
	}
	return config, nil
}

// unusable returns the entry with which no TLS connection can be made; nil if there is none. Without this check, users would only read that
// the cluster cannot be reached.
func unusable(config *rest.Config, current clientcmdapi.Context) *RefusedError {
	_, err := rest.TLSConfigFor(config) // not returned, because it quotes the entry
	switch {
	case err == nil:
		return nil
	case config.Insecure && len(config.CAData) > 0:
		return &RefusedError{
			Entry: entryOf("clusters", current.Cluster, "cluster.insecure-skip-tls-verify"),
			Why:   "cannot be set with certificate-authority-data",
		}
	case len(config.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(config.CAData):
		return &RefusedError{Entry: entryOf("clusters", current.Cluster, "cluster.certificate-authority-data"),
			Why: "has no certificate in PEM"}
	}
	return &RefusedError{
		Entry: entryOf("users", current.AuthInfo, "user.client-certificate-data"),
		Why:   "and client-key-data are no certificate with its key, in PEM",
	}
}

// entryOf returns the path of an entry. It truncates the name, which the author of the kubeconfig chooses, because the path becomes part of
// conditions and events, and the API server rejects texts that are too long.
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
	readsFile   = "names a file, which kubemend would read from its own disk"
	runsProgram = "names a program, which kubemend would run"
	asksProxy   = "names a proxy, which kubemend would connect to"
)

// refusal returns the first entry, sorted by name, that is refused; nil if there is none. It checks all entries, whether or not the current
// context uses them.
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
