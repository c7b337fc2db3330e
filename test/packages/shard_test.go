package packages

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// example returns the objects of an overlay in docs/examples. The overlay "shard" adds its own suffix and namespace to config/shard.
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
		case "CustomResourceDefinition", "ClusterRole", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Service",
			"Certificate", "Issuer":
			t.Errorf("%s: there is one for all shards", id(&o))
		}
	}
}

// Otherwise two shards would overwrite each other's objects or wait for each other's lease, or clusterctl would count them as its provider.
func TestShardsDoNotOverlap(t *testing.T) {
	const own = "kubemend-east"
	for _, o := range example(t, "shard") {
		switch {
		case o.GetKind() == "Namespace" && o.GetName() != own, o.GetKind() != "Namespace" && !strings.Contains(o.GetName(), "-shard-east"):
			t.Errorf("%s: another shard has the same", id(&o))
		case o.GetKind() == "RoleBinding" && o.GetNamespace() == "fleet-east": // where the shard has its rights on its clusters
		case o.GetKind() != "Namespace" && o.GetKind() != "ClusterRoleBinding" && o.GetNamespace() != own:
			t.Errorf("%s is not in the namespace of the shard", id(&o))
		}
		must.Is(t, "", o.GetLabels()["cluster.x-k8s.io/provider"], "%s: clusterctl takes it for a part of", id(&o))
	}
}

// Each shard has its own Service, which Prometheus finds in its namespace. The rules exist only once, or each alert would fire twice.
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

// The manager of a part reads the name of the part from a ConfigMap, which the user edits. It leaves cluster-wide tasks to another manager.
func TestAManagerOfAPartGetsItsName(t *testing.T) {
	for name, row := range map[string]struct {
		all   []object
		flags map[string]string // besides the flags of every part
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
			must.Equal(t, want, flags(c), "flags")
			parts := ofKind(row.all, "ConfigMap")[0]
			if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != parts.GetName() {
				t.Errorf("the container reads %+v, and its part is in %s", c.EnvFrom, parts.GetName())
			}
			must.Equal(t, row.part, parts.Object["data"], "its part")
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
				"the manager has no more power over its node than it needs", "the loss of a replica is harmless",
				"selectors select the manager") {
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

// A NetworkPolicy can name Prometheus as a peer, but not API servers or kubelets, so only the port of metrics is restricted.
func TestOnlyNamedPeersMayReadMetrics(t *testing.T) {
	for name, all := range map[string][]object{"standalone": standalone(t), "default": beside(t), "clusterctl": provider(t),
		"shard": objects(t, kustomized(t, "shard"))} {
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

// Prometheus must find the managers, verify their certificate, and send a token that may read nothing but metrics.
func TestPrometheusReadsTheMetricsOfTheManager(t *testing.T) {
	all := byID(objects(t, kustomized(t, "observability")))
	field := func(object string, way ...string) any {
		value, _, _ := unstructured.NestedFieldNoCopy(all[object].(map[string]any), way...)
		return value
	}
	const monitor, server = "ServiceMonitor kubemend-system/kubemend", "kubemend-metrics.kubemend-system.svc"
	if diff := cmp.Diff([]any{map[string]any{
		"port": "https", "path": "/metrics", "scheme": "https", "interval": "30s", "honorLabels": true,
		"authorization": map[string]any{"credentials": map[string]any{"name": "kubemend-metrics-token", "key": "token"}},
		"tlsConfig": map[string]any{"serverName": server, "ca": map[string]any{
			"secret": map[string]any{"name": "kubemend-webhook", "key": "ca.crt"},
		}},
	}}, field(monitor, "spec", "endpoints")); diff != "" {
		t.Errorf("it asks (-want +got):\n%s", diff)
	}
	selected := field(monitor, "spec", "selector", "matchLabels")
	if diff := cmp.Diff(selected, field("Service kubemend-system/kubemend-metrics", "metadata", "labels")); diff != "" {
		t.Errorf("labels (-the selector's +the Service's):\n%s", diff)
	}
	rules := field("ClusterRole kubemend-metrics-reader", "rules")
	must.Equal(t, []any{map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": []any{"get"}}}, rules, "its token may")
	certificate := ofKind(standalone(t), "Certificate")[0]
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	secret, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if !slices.Contains(names, server) || secret != "kubemend-webhook" {
		t.Errorf("the certificate in the Secret %s is for %v", secret, names)
	}
	for _, board := range []string{"fleet", "check", "host"} {
		if label := field("ConfigMap kubemend-system/kubemend-dashboard-"+board, "metadata", "labels", "grafana_dashboard"); label != "1" {
			t.Errorf("Grafana's sidecar does not find the dashboard %s, whose label is %v", board, label)
		}
	}
	if field("ConfigMap kubemend-system/kubemend-kube-state-metrics", "metadata", "labels",
		"kube-state-metrics/custom-resource") != "true" {
		t.Error("kube-state-metrics does not find its configuration")
	}
}
