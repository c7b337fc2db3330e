package packages

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// example is an overlay of docs/examples. In shard everything of config/shard gets the suffix and the namespace of one of several.
func example(t *testing.T, name string) []object {
	t.Helper()
	return objects(t, kustomized(t, filepath.Join("..", "docs", "examples", name)))
}

func TestAShardSharesNoObjectWithOtherInstallations(t *testing.T) {
	first := byID(standalone(t))
	for _, o := range example(t, "shard") {
		if _, shared := first[id(&o)]; shared {
			t.Errorf("%s is there already", id(&o))
		}
		switch o.GetKind() {
		case "CustomResourceDefinition", "ClusterRole", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Service", "Certificate", "Issuer":
			t.Errorf("%s: there is one for all shards", id(&o))
		}
	}
}

// Otherwise two of them would overwrite each other's objects, or wait for each other's lease, or be taken for a part of
// clusterctl's provider.
func TestShardsDoNotOverlap(t *testing.T) {
	const own = "kubemend-east"
	for _, o := range example(t, "shard") {
		switch {
		case o.GetKind() == "Namespace" && o.GetName() != own, o.GetKind() != "Namespace" && !strings.Contains(o.GetName(), "-shard-east"):
			t.Errorf("%s: another shard has the same", id(&o))
		case o.GetKind() == "RoleBinding" && o.GetNamespace() == "fleet-east": // of its clusters, where its rights are
		case o.GetKind() != "Namespace" && o.GetKind() != "ClusterRoleBinding" && o.GetNamespace() != own:
			t.Errorf("%s is not in the namespace of the shard", id(&o))
		}
		if provider := o.GetLabels()["cluster.x-k8s.io/provider"]; provider != "" {
			t.Errorf("%s: clusterctl takes it for a part of %s", id(&o), provider)
		}
	}
}

// Prometheus finds what is in the namespace of a Service. Of the rest there is one for all shards: rules that are loaded twice alert twice.
func TestTheMonitoringOfAShardFindsItsManager(t *testing.T) {
	all := example(t, "shard-monitoring")
	found := map[string]bool{}
	for _, o := range all {
		found[id(&o)] = true
	}
	if diff := cmp.Diff(map[string]bool{
		"Role kubemend-east/kubemend-metrics-discovery": true, "RoleBinding kubemend-east/kubemend-metrics-discovery": true,
		"Service kubemend-east/kubemend-metrics": true, "ServiceMonitor kubemend-east/kubemend": true,
		"ServiceAccount kubemend-east/kubemend-metrics-reader": true, "Secret kubemend-east/kubemend-metrics-token": true,
		"ClusterRoleBinding kubemend-metrics-reader-kubemend-east": true,
	}, found); diff != "" {
		t.Fatalf("monitoring of a shard (-want +got):\n%s", diff)
	}
	subject := as[rbacv1.ClusterRoleBinding](t, ofKind(all, "ClusterRoleBinding")[0]).Subjects[0]
	if subject.Namespace != "kubemend-east" {
		t.Errorf("the token is that of a ServiceAccount in %s", subject.Namespace)
	}
	d, _ := manager(t, example(t, "shard"))
	service := as[corev1.Service](t, ofKind(all, "Service")[0])
	if service.Namespace != d.Namespace {
		t.Errorf("the Service is in %s, and the manager in %s", service.Namespace, d.Namespace)
	}
	for label, value := range service.Spec.Selector {
		if d.Spec.Template.Labels[label] != value {
			t.Errorf("the Service selects %s=%s, which the manager lacks", label, value)
		}
	}
}

// A manager of a part reads it from a ConfigMap, which the user changes, and leaves what belongs to all to another one.
func TestAManagerOfAPartGetsItsName(t *testing.T) {
	for name, row := range map[string]struct {
		all   []object
		flags map[string]string // besides those of every part
		part  map[string]any
		rules []string
	}{
		"the only manager, of one namespace": {
			example(t, "one-namespace"), map[string]string{"webhook-cert-dir": "/etc/kubemend/webhook"},
			map[string]any{"KUBEMEND_NAMESPACE": "metal"},
			[]string{
				"the manager knows every flag that it is given", "webhooks are answered, and their certificates can be verified",
				"what kubemend remembers is protected",
			},
		},
		"a shard": {
			example(t, "shard"), map[string]string{"watch-filter": "$(KUBEMEND_WATCH_FILTER)"},
			map[string]any{"KUBEMEND_NAMESPACE": "fleet-east", "KUBEMEND_WATCH_FILTER": ""}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, c := manager(t, row.all)
			want := map[string]string{
				"diagnostics-address": ":8443", "leader-elect": "true", "namespace": "$(KUBEMEND_NAMESPACE)", "node-health-checks": "off",
				"skip-crd-migration-phases": "StorageVersionMigration,CleanupManagedFields",
			}
			maps.Copy(want, row.flags)
			if diff := cmp.Diff(want, flags(c)); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
			parts := ofKind(row.all, "ConfigMap")[0]
			if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != parts.GetName() {
				t.Errorf("the container reads %+v, and its part is in %s", c.EnvFrom, parts.GetName())
			}
			if diff := cmp.Diff(row.part, parts.Object["data"]); diff != "" {
				t.Errorf("its part (-want +got):\n%s", diff)
			}
			if _, webhooks := want["webhook-cert-dir"]; !webhooks && len(d.Spec.Template.Spec.Volumes)+len(c.VolumeMounts) > 0 {
				t.Error("it waits for a certificate that is never made")
			}
			known := programFlags(t)
			for flag := range flags(c) {
				if _, is := known[flag]; !is {
					t.Errorf("--%s is no flag of the manager", flag)
				}
			}
			for _, rule := range append(row.rules,
				"the manager has no more power over its node than it needs", "the loss of a replica is harmless", "selectors select the manager") {
				for _, fault := range rules[rule](t, row.all) {
					t.Error(rule + ": " + fault)
				}
			}
		})
	}
}

func TestTheExampleOfAShardNamesARelease(t *testing.T) {
	if _, c := manager(t, example(t, "shard")); c.Image != "ghcr.io/kubemend/kubemend:v0.1.0" {
		t.Errorf("its image is %s, and the example names that of v0.1.0", c.Image)
	}
}

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
