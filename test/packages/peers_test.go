package packages

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Metrics are for Prometheus, which a policy can name; API servers and kubelets it cannot.
func TestOnlyNamedPeersMayReadMetrics(t *testing.T) {
	for name, all := range map[string][]object{"standalone": standalone(t), "default": beside(t), "clusterctl": provider(t), "shard": objects(t, kustomized(t, "shard"))} {
		named := false
		for _, o := range ofKind(all, "NetworkPolicy") {
			for _, from := range as[networkingv1.NetworkPolicy](t, o).Spec.Ingress {
				if !slices.ContainsFunc(from.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.String() == "metrics" }) {
					continue
				}
				if named = len(from.From) > 0; !named {
					t.Errorf("%s: every client may read metrics", name)
				}
			}
		}
		if !named {
			t.Errorf("%s: no client may read metrics", name)
		}
	}
}

// Prometheus sends its token to the server that has the certificate that it verifies.
func TestPrometheusVerifiesTheCertificateOfTheManager(t *testing.T) {
	issued := map[string][]string{}
	for _, o := range ofKind(standalone(t), "Certificate") {
		secret, _, _ := unstructured.NestedString(o.Object, "spec", "secretName")
		issued[secret], _, _ = unstructured.NestedStringSlice(o.Object, "spec", "dnsNames")
	}
	monitors := ofKind(objects(t, kustomized(t, "observability")), "ServiceMonitor")
	if len(monitors) != 1 {
		t.Fatalf("there are %d ServiceMonitors, want one", len(monitors))
	}
	endpoints, _, _ := unstructured.NestedSlice(monitors[0].Object, "spec", "endpoints")
	for _, e := range endpoints {
		endpoint := e.(map[string]any)
		if skips, _, _ := unstructured.NestedBool(endpoint, "tlsConfig", "insecureSkipVerify"); skips {
			t.Error("it verifies nothing")
		}
		secret, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "ca", "secret", "name")
		server, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "serverName")
		if !slices.Contains(issued[secret], server) || !strings.HasPrefix(server, "kubemend-metrics.") {
			t.Errorf("it verifies %q by Secret %q, whose certificate is for %v", server, secret, issued[secret])
		}
	}
}
