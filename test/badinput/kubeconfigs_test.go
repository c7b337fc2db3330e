package badinput

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/controllers/workload"
)

// kubeconfig is one that is refused.
type kubeconfig struct{ what, content, says string }

const refused = "the kubeconfig is refused: "

var kubeconfigs = []kubeconfig{
	{"a text that is no YAML", "{", refused + "it is no kubeconfig: it cannot be parsed"},
	{"another kind of object", "apiVersion: v1\nkind: Pod\n", refused + "it is no kubeconfig: it cannot be parsed"},
	{"a user with a token in a file", with("", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
		refused + "users[u].user.tokenFile names a file, which would be read where this runs"},
	{"a user with a certificate in a file", with("", "client-certificate: /tls.crt"),
		refused + "users[u].user.client-certificate names a file, which would be read where this runs"},
	{"a user with a key in a file", with("", "client-key: /tls.key"), refused + "users[u].user.client-key names a file, which would be read where this runs"},
	{"a user whose token a program gives", with("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}"),
		refused + "users[u].user.exec names a program, which would be run where this runs"},
	{"a user of an auth provider", with("", "auth-provider: {name: gcp}"), refused + "users[u].user.auth-provider names a program, which would be run where this runs"},
	{"a CA in a file", with("certificate-authority: /ca.crt", ""), refused + "clusters[c].cluster.certificate-authority names a file, which would be read where this runs"},
	{"a proxy", with("proxy-url: 'http://192.0.2.2'", ""), refused + "clusters[c].cluster.proxy-url names a proxy, which would be asked from where this runs"},
	{"a server of another scheme", strings.Replace(with("", ""), "https:", "workload:", 1), refused + "clusters[c].cluster.server names neither an https nor an http address"},
	{"a CA that is no certificate", with("certificate-authority-data: bm8=", ""), refused + "clusters[c].cluster.certificate-authority-data has no certificate in PEM"},
	{"a CA, and that it does not matter", with("certificate-authority-data: bm8=\n    insecure-skip-tls-verify: true", ""),
		refused + "clusters[c].cluster.insecure-skip-tls-verify cannot be set with certificate-authority-data"},
	{"a certificate of a user that is none", with("", "client-certificate-data: bm8=\n    client-key-data: bm8="),
		refused + "users[u].user.client-certificate-data and client-key-data are no certificate with its key, in PEM"},
	{"nothing", "", refused + "current-context does not lead to a cluster with a server and to a user with one way to log in"},
	{"a current context that is not there", strings.Replace(with("", ""), "current-context: x", "current-context: other", 1),
		refused + "current-context does not lead to a cluster with a server and to a user with one way to log in"},
}

// with is a kubeconfig with one more entry of its cluster, and one of its user.
func with(cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters:\n- name: c\n  cluster:\n" +
		"    server: https://192.0.2.1\n    " + cluster + "\nusers:\n- name: u\n  user:\n    username: u\n    " + user + "\n"
}

func TestAKubeconfigIsRefusedWithTheNameOfItsEntry(t *testing.T) {
	if _, err := workload.RESTConfig([]byte(with("", ""))); err != nil {
		t.Fatal(err)
	}
	for _, row := range kubeconfigs {
		t.Run(row.what, func(t *testing.T) {
			var why *workload.RefusedError
			if _, err := workload.RESTConfig([]byte(row.content)); !errors.As(err, &why) || why.Error() != row.says {
				t.Errorf("got %v; want %s", err, row.says)
			}
		})
	}
}
