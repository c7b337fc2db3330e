package workload

import (
	"errors"
	"net/url"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// A tenant writes the Secret. Whatever is in it, the manager connects with what stands in it and with nothing of its own, to a server that it names.
func FuzzKubeconfig(f *testing.F) {
	const begin = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	for _, rest := range []string{
		"", "clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {token: t}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1', certificate-authority: /ca}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1', proxy-url: 'http://192.0.2.2'}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {tokenFile: /token}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {exec: {apiVersion: v1, command: id}}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {auth-provider: {name: gcp}}}]\n",
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {client-certificate: /c, client-key: /k}}]\n",
		"clusters: [{name: c, cluster: {}}]\n", "clusters: {}\n", "\x00",
	} {
		f.Add([]byte(begin + rest))
		f.Add([]byte(rest))
	}
	f.Fuzz(func(t *testing.T, kubeconfig []byte) {
		config, err := RESTConfig(kubeconfig)
		var refused *RefusedError
		if errors.As(err, &refused) && (refused.Entry == "" || refused.Why == "") {
			t.Errorf("it is refused without an entry or a reason: %v", refused)
		}
		if err != nil {
			return
		}
		switch {
		case config.BearerTokenFile != "" || config.CertFile != "" || config.KeyFile != "" || config.CAFile != "":
			t.Errorf("it reads a file: %s", config)
		case config.ExecProvider != nil || config.AuthProvider != nil:
			t.Errorf("it runs a program: %s", config)
		case config.Proxy != nil:
			t.Errorf("it asks a proxy: %s", config)
		}
		said, err := clientcmd.Load(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		for _, cluster := range said.Clusters {
			if cluster.Server != "" && config.Host == called(cluster.Server) {
				return
			}
		}
		t.Errorf("it calls %q, which is none of the servers that it names", config.Host)
	})
}

// called is what client-go calls for a server of a kubeconfig: without query and fragment, if it has a path. (tools/clientcmd/client_config.go)
func called(server string) string {
	u, err := url.ParseRequestURI(server)
	if err != nil || u.Opaque != "" || len(u.Path) <= 1 {
		return server
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String()
}
