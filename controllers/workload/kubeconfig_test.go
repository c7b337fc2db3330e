package workload

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// kubeconfigOf returns a kubeconfig for server, with these entries added to its user and its cluster.
func kubeconfigOf(server *httptest.Server, user, cluster string) []byte {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s%s}}], users: [{name: u, user: {%s}}]}`, server.URL, ca, cluster, user)
}

func secretOf(content []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "c1-kubeconfig", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}},
		Data:       map[string][]byte{"value": content},
	}
}

var c1 = client.ObjectKey{Namespace: "tenant", Name: "c1"}

// A test in test/inmemory checks that the server gets no request.
func TestOfARefusedKubeconfigClusterCacheGetsNothingUntilItIsPutRight(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := fake.NewClientBuilder().WithObjects(secretOf(nil)).Build()
	k := NewTransports(1<<20, clock.RealClock{})
	k.Reader = c
	for _, step := range []struct{ user, refused string }{
		{"tokenFile: /token", "users[u].user.tokenFile"}, {"client-key: /key", "users[u].user.client-key"}, {"token: t", ""},
	} {
		s := &corev1.Secret{}
		must.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(secretOf(nil)), s))
		s.Data = map[string][]byte{"value": kubeconfigOf(server, step.user, "")}
		must.Do(t, c.Update(t.Context(), s))
		got, refused := "", (&RefusedError{})
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(s), s); errors.As(err, &refused) {
			got = refused.Entry
		}
		if reported := k.Refused(c1); got != step.refused || (reported != nil) != (got != "") || (len(s.Data) == 0) != (got != "") {
			t.Errorf("%s: refused is %q, reported as %v, and of the Secret there is %v", step.user, got, reported, s.Data)
		}
	}
}

func TestWhatCannotBeParsedIsNotQuoted(t *testing.T) {
	_, err := RESTConfig([]byte("users: [{name: u, user: {token: [secret-token]}}]"))
	var refused *RefusedError
	if !errors.As(err, &refused) || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("the error is %v", err)
	}
}

// The syntax of the file does not matter, because the parsed kubeconfig is checked. test/badinput has all entries that are refused.
func TestNoShapeOfAKubeconfigHidesAnEntry(t *testing.T) {
	const (
		begin = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
		there = "clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n"
		user  = "users: [{name: u, user: {token: t}}]\n"
		file  = "users: [{name: u, user: {tokenFile: /token}}]\n"
	)
	for name, tc := range map[string]struct{ content, refused string }{
		"JSON": {`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"c","user":"u"}}],` +
			`"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1"}}],"users":[{"name":"u","user":{"tokenFile":"/token"}}]}`, "users[u].user.tokenFile"},
		"a user of no context":    {begin + there + "users: [{name: u, user: {token: t}}, {name: v, user: {tokenFile: /token}}]\n", "users[v].user.tokenFile"},
		"a cluster of no context": {begin + user + "clusters: [{name: c, cluster: {server: s}}, {name: d, cluster: {proxy-url: p}}]\n", "clusters[d].cluster.proxy-url"},
		"also beside a token": {begin + there + "users: [{name: u, user: {token: t, tokenFile: /token}}]\n",
			"users[u].user.tokenFile"},
		"a second document is none":          {begin + there + user + "---\n" + begin + there + file, ""},
		"nor hides it the first":             {begin + there + file + "---\n" + begin + there + user, "users[u].user.tokenFile"},
		"a key that stands twice, the last":  {begin + there + "users: [{name: u, user: {tokenFile: '', tokenFile: /token}}]\n", "users[u].user.tokenFile"},
		"a list that stands twice":           {begin + there + user + file, "users[u].user.tokenFile"},
		"two users of one name":              {begin + there + "users: [{name: u, user: {token: t}}, {name: u, user: {tokenFile: /token}}]\n", "it"},
		"an anchor":                          {begin + there + "x: &f {tokenFile: /token}\nusers: [{name: u, user: *f}]\n", "users[u].user.tokenFile"},
		"a merged anchor":                    {begin + there + "x: &f {tokenFile: /token}\nusers: [{name: u, user: {<<: *f, token: t}}]\n", "users[u].user.tokenFile"},
		"unknown fields and extensions":      {begin + there + "users: [{name: u, user: {token: t, token-file: /token, extensions: [{name: x, extension: {tokenFile: /token}}]}}]\n", ""},
		"another spelling is an unknown one": {begin + there + "users: [{name: u, user: {token: t, TOKENFILE: /token}}]\n", ""},
		"an empty program":                   {begin + there + "users: [{name: u, user: {token: t, exec: {}}}]\n", "users[u].user.exec"},
		"an empty auth provider":             {begin + there + "users: [{name: u, user: {token: t, auth-provider: {}}}]\n", "users[u].user.auth-provider"},
		"no context":                         {"apiVersion: v1\nkind: Config\n" + there + user, "current-context"},
		"no server":                          {begin + "clusters: [{name: c, cluster: {}}]\n" + user, "current-context"},
		"two ways to log in":                 {begin + there + "users: [{name: u, user: {token: t, username: me, password: pw}}]\n", "current-context"},
		"a server that is a file":            {begin + "clusters: [{name: c, cluster: {server: 'file://host/token'}}]\n" + user, "clusters[c].cluster.server"},
		"no context, and a strange server":   {"clusters: [{cluster: {server: 0 0}}]", "clusters[].cluster.server"}, // found by fuzzing, as a panic
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			config, err := RESTConfig([]byte(tc.content))
			if refused := (&RefusedError{}); errors.As(err, &refused) {
				got = refused.Entry
			} else if err != nil {
				t.Errorf("%v is no RefusedError", err)
			}
			must.Is(t, tc.refused, got, "refused is")
			if tc.refused == "" && (config == nil || config.BearerToken != "t" || config.BearerTokenFile != "") {
				t.Errorf("it is used as %s", config)
			}
		})
	}
}

// The API server rejects a message of a condition that is longer than 32 KiB, and a note of an event that is longer than 1 KiB.
func TestARefusalIsShortEnoughToBeSaid(t *testing.T) {
	for named, want := range map[string]string{
		strings.Repeat("long", 1<<14): "users[" + strings.Repeat("long", 16)[:63] + "...].user.tokenFile",
		"u].user.token is fine [u":    `users["u].user.token is fine [u"].user.tokenFile`,
		"\x1b[2J\nu":                  `users["\x1b[2J\nu"].user.tokenFile`,
		"kubernetes-admin@c1":         "users[kubernetes-admin@c1].user.tokenFile",
	} {
		_, err := RESTConfig(fmt.Appendf(nil, "users: [{name: %q, user: {tokenFile: /token}}]", named))
		if refused := (&RefusedError{}); !errors.As(err, &refused) || refused.Entry != want {
			t.Errorf("refused is %.200v, want %q", err, want)
		}
	}
}

// unconnected is a ClusterCache without a connection.
type unconnected struct{ clustercache.ClusterCache }

func (unconnected) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, fmt.Errorf("get the client: %w", clustercache.ErrClusterNotConnected)
}

// A remediation reads the cluster without the View of a check, so the error must name the reason.
func TestARefusedKubeconfigIsReported(t *testing.T) {
	content := kubeconfigOf(serve(t, func(http.ResponseWriter, *http.Request) {}), "tokenFile: /token", "")
	k := NewTransports(1<<20, clock.RealClock{})
	k.Reader = fake.NewClientBuilder().WithObjects(secretOf(content)).Build()
	connections := Connections{ClusterCache: unconnected{}, Transports: k}
	refused := &RefusedError{}
	if _, err := connections.GetUncachedClient(t.Context(), c1); !errors.Is(err, clustercache.ErrClusterNotConnected) || errors.As(err, &refused) {
		t.Errorf("before it was read the error is %v", err)
	}
	_ = k.Get(t.Context(), client.ObjectKeyFromObject(secretOf(nil)), &corev1.Secret{})
	_, err := connections.GetUncachedClient(t.Context(), c1)
	if !errors.Is(err, clustercache.ErrClusterNotConnected) || !errors.As(err, &refused) || refused.Entry != "users[u].user.tokenFile" {
		t.Errorf("the error is %v", err)
	}
}

// A tenant writes the Secret. Whatever the kubeconfig contains, the manager connects only to a server in it, and uses nothing of its own
// host.
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
		must.Do(t, err)
		for _, cluster := range said.Clusters {
			if cluster.Server != "" && config.Host == called(cluster.Server) {
				return
			}
		}
		t.Errorf("it calls %q, which is none of the servers that it names", config.Host)
	})
}

// called returns the URL that client-go uses for a server in a kubeconfig: if it has a path, without query and fragment.
// (tools/clientcmd/client_config.go)
func called(server string) string {
	u, err := url.ParseRequestURI(server)
	if err != nil || u.Opaque != "" || len(u.Path) <= 1 {
		return server
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String()
}
