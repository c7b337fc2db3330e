package packages

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// everyKind makes of the chart what config/standalone is.
const everyKind = "kinds: {metal3Remediation: true, nodeHealthCheck: true}\n"

// rendered is the chart as Helm renders it with these values. Helm makes the namespace itself, or the user does.
func rendered(t *testing.T, values string, args ...string) []object {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return objects(t, run(t, "render", append([]string{"-values", path}, args...)...))
}

// A change from kustomize to Helm, or back, changes nothing in the cluster.
func TestTheChartGivesWhatKustomizeGives(t *testing.T) {
	for name, row := range map[string]struct {
		values string
		want   []object
	}{
		"by itself":      {"", beside(t)},
		"with all kinds": {everyKind, standalone(t)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(byID(row.want), byID(rendered(t, row.values))); diff != "" {
				t.Errorf("objects (-kustomize +chart):\n%s", diff)
			}
		})
	}
}

// The chart has all that config/observability has but what kube-state-metrics needs, which is another project's to install.
func TestTheChartHasTheMonitoringOfConfigObservability(t *testing.T) {
	values := "serviceMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}"
	got := byID(rendered(t, values))
	for id, want := range byID(objects(t, kustomized(t, "observability"))) {
		if strings.HasSuffix(id, "kubemend-kube-state-metrics") {
			continue
		}
		if diff := cmp.Diff(want, got[id]); diff != "" {
			t.Errorf("%s (-kustomize +chart):\n%s", id, diff)
		}
	}
}

// The overlay says the namespace by a variable, which only the flags show.
func TestTheChartForOneNamespaceHasTheRightsOfConfigNamespaced(t *testing.T) {
	rights := func(all []object) map[string]any {
		found := map[string]any{}
		for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"} {
			for _, o := range ofKind(all, kind) {
				found[o.GetNamespace()+" "+id(o)] = o.Object
			}
		}
		return found
	}
	overlay := rights(example(t, "one-namespace"))
	if diff := cmp.Diff(overlay, rights(rendered(t, "flags: {namespace: metal}"))); diff != "" {
		t.Errorf("rights (-kustomize +chart):\n%s", diff)
	}
}

// byID leaves out the namespace, and the one thing that the chart says to Helm.
func byID(all []object) map[string]any {
	found := map[string]any{}
	for i := range all {
		o := all[i].DeepCopy()
		if o.GetKind() == "Namespace" {
			continue
		}
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		if len(o.GetAnnotations()) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
		found[id(o)] = o.Object
	}
	return found
}

func TestTheChartObeysTheRulesInAnotherNamespace(t *testing.T) {
	all := rendered(t, everyKind, "-namespace=elsewhere")
	for i := range all {
		if content, err := json.Marshal(all[i].Object); err != nil || strings.Contains(string(content), namespace) {
			t.Errorf("%s still names %s (%v)", id(&all[i]), namespace, err)
		}
	}
}

func TestWhatTheValuesOfTheChartChange(t *testing.T) {
	kinds := func(all []object) string {
		var kinds []string
		for i := range all {
			kinds = append(kinds, all[i].GetKind())
		}
		slices.Sort(kinds)
		return strings.Join(slices.Compact(kinds), " ")
	}
	bound := func(all []object) string {
		var names []string
		for _, o := range slices.Concat(ofKind(all, "ClusterRoleBinding"), ofKind(all, "RoleBinding")) {
			names = append(names, o.GetName())
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	// where is in which namespace what the ClusterRoles allow counts; none is all.
	where := func(all []object) string {
		var found []string
		for _, o := range slices.Concat(ofKind(all, "ClusterRoleBinding"), ofKind(all, "RoleBinding")) {
			if as[rbacv1.RoleBinding](t, o).RoleRef.Kind == "ClusterRole" {
				found = append(found, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
			}
		}
		slices.Sort(found)
		return strings.Join(found, " ")
	}
	// spaces are the namespaces that are made, which have to be those of the leases on nodes.
	spaces := func(all []object) string {
		var names []string
		for _, o := range ofKind(all, "Namespace") {
			names = append(names, o.GetName())
		}
		for _, o := range slices.Concat(ofKind(all, "Role"), ofKind(all, "RoleBinding")) {
			if o.GetName() == "kubemend-node-leases" && len(names) > 0 && !slices.Contains(names, o.GetNamespace()) {
				names = append(names, id(o))
			}
		}
		return strings.Join(names, " ")
	}
	args := func(all []object) string {
		_, c := manager(t, all)
		return strings.Join(c.Args, " ")
	}
	image := func(all []object) string {
		_, c := manager(t, all)
		return c.Image
	}
	pod := func(field string) func([]object) string {
		return func(all []object) string {
			part, _, err := unstructured.NestedFieldNoCopy(ofKind(all, "Deployment")[0].Object, podPath(field)...)
			if err != nil {
				return err.Error()
			}
			content, err := json.Marshal(part)
			if err != nil {
				return err.Error()
			}
			return string(content)
		}
	}
	for name, row := range map[string]struct {
		values string
		look   func([]object) string
		want   string
	}{
		"a flag more": {
			"flags: {watch-filter: shard-1, kube-api-burst: 1000000, clustercache-client-qps: 2.5}", args,
			"--clustercache-client-qps=2.5 --diagnostics-address=:8443 --kube-api-burst=1000000 --leader-elect=true --watch-filter=shard-1 --webhook-cert-dir=/etc/kubemend/webhook",
		},
		"a flag less": {
			"flags: {leader-elect: null}", args, "--diagnostics-address=:8443 --webhook-cert-dir=/etc/kubemend/webhook",
		},
		"an image of one's own": {
			"image: {repository: registry.example.org/kubemend, tag: v1.2.3}", image, "registry.example.org/kubemend:v1.2.3",
		},
		"an image by its digest": {
			"image: {digest: \"sha256:" + strings.Repeat("0", 64) + "\"}", image, "ghcr.io/kubemend/kubemend@sha256:" + strings.Repeat("0", 64),
		},
		"no webhooks": {
			"webhooks: {enabled: false}", kinds,
			"ClusterRole ClusterRoleBinding CustomResourceDefinition Deployment NetworkPolicy PodDisruptionBudget Role RoleBinding ServiceAccount " +
				"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
		},
		"no certificate without webhooks": {"webhooks: {enabled: false}", args, "--diagnostics-address=:8443 --leader-elect=true"},
		"no volume without webhooks":      {"webhooks: {enabled: false}", pod("volumes"), "null"},
		"no kinds, budget and policy": {
			"kinds: {hostRemediation: false}\npodDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}", kinds,
			"Certificate ClusterRole ClusterRoleBinding Deployment Issuer Role RoleBinding Service ServiceAccount " +
				"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
		},
		"no rights to hosts without their kinds": {
			"kinds: {hostRemediation: false}", bound, "kubemend-ext-remediation kubemend-leader-election kubemend-manager",
		},
		"rights to hosts whose kinds are there already": {
			"kinds: {hostRemediation: false}\nrights: {hosts: true}", bound, "kubemend-ext-remediation kubemend-hosts kubemend-leader-election kubemend-manager",
		},
		"rights to nodes whose checks are there already": {
			"rights: {nodes: true}", bound,
			"kubemend-api-servers kubemend-ext-remediation kubemend-hosts kubemend-leader-election kubemend-manager kubemend-node-leases kubemend-nodes",
		},
		"rights in one namespace": {
			"flags: {namespace: metal}", where, "kubemend-cluster-wide metal/kubemend-ext-remediation metal/kubemend-hosts metal/kubemend-manager",
		},
		"rights in one namespace, and to nodes, which have none": {
			"flags: {namespace: metal}\nrights: {nodes: true}\nkinds: {hostRemediation: false}", where,
			"kubemend-cluster-wide kubemend-nodes metal/kubemend-ext-remediation metal/kubemend-manager",
		},
		"rights in all namespaces for one": {
			"flags: {namespace: metal}\nrights: {allNamespaces: true}", where, "kubemend-ext-remediation kubemend-hosts kubemend-manager",
		},
		"what a manager of one namespace leaves to others": {
			"flags: {namespace: metal}", args, "--diagnostics-address=:8443 --leader-elect=true --namespace=metal --node-health-checks=off " +
				"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields --webhook-cert-dir=/etc/kubemend/webhook",
		},
		"what it does of that all the same": {
			"flags: {namespace: metal, skip-crd-migration-phases: null}\nrights: {nodes: true}", args,
			"--diagnostics-address=:8443 --leader-elect=true --namespace=metal --webhook-cert-dir=/etc/kubemend/webhook",
		},
		"what a manager of one namespace with all rights does": {
			"flags: {namespace: metal}\nrights: {allNamespaces: true}", args,
			"--diagnostics-address=:8443 --leader-elect=true --namespace=metal --webhook-cert-dir=/etc/kubemend/webhook",
		},
		"leases on nodes in another namespace": {"rights: {nodes: true}\nflags: {node-lease-namespace: leases}", spaces, "leases"},
		"a namespace of leases that is there":  {"rights: {nodes: true, createLeaseNamespace: false}", spaces, ""},
		"labels and annotations of pods": {"podLabels: {a: b}\npodAnnotations: {c: d}\ncommonLabels: {e: f}", func(all []object) string {
			d, _ := manager(t, all)
			return d.Labels["e"] + d.Spec.Template.Labels["a"] + d.Spec.Template.Labels["e"] + d.Spec.Template.Annotations["c"] + ofKind(all, "ServiceAccount")[0].GetLabels()["e"]
		}, "fbfdf"},
		"the network of the nodes":  {"hostNetwork: true", pod("dnsPolicy"), `"ClusterFirstWithHostNet"`},
		"a DNS policy of one's own": {"hostNetwork: true\ndnsPolicy: Default", pod("dnsPolicy"), `"Default"`},
		"webhooks on another port":  {"webhooks: {port: 10250}", args, "--diagnostics-address=:8443 --leader-elect=true --webhook-cert-dir=/etc/kubemend/webhook --webhook-port=10250"},
		"a volume": {
			"webhooks: {enabled: false}\nextraVolumes: [{name: ca, emptyDir: {}}]", pod("volumes"), `[{"emptyDir":{},"name":"ca"}]`,
		},
		"a security context": {
			"podSecurityContext: {fsGroup: 1, runAsNonRoot: null, seccompProfile: null}", pod("securityContext"), `{"fsGroup":1}`,
		},
		"a ServiceAccount that exists": {"serviceAccount: {create: false}\nwebhooks: {enabled: false}\nkinds: {hostRemediation: false}", kinds, "ClusterRole ClusterRoleBinding Deployment NetworkPolicy PodDisruptionBudget Role RoleBinding ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"},
		"an object of one's own":       {"extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: \"{{ .Release.Name }}-x\"}}]", func(all []object) string { return ofKind(all, "ConfigMap")[0].GetName() }, "kubemend-x"},
		"dashboards in a folder": {"dashboards: {enabled: true, annotations: {grafana_folder: kubemend}}", func(all []object) string {
			boards := ofKind(all, "ConfigMap")
			return fmt.Sprint(len(boards), boards[0].GetLabels()["grafana_dashboard"], boards[0].GetAnnotations())
		}, "31map[grafana_folder:kubemend]"},
		"a node selector": {"nodeSelector: {a: b}", pod("nodeSelector"), `{"a":"b"}`},
		"no tolerations":  {"tolerations: []", pod("tolerations"), "null"},
		"pull secrets":    {"image: {pullSecrets: [{name: registry}]}", pod("imagePullSecrets"), `[{"name":"registry"}]`},
		"a proxy": {"env: [{name: HTTPS_PROXY, value: \"http://proxy:3128\"}]", func(all []object) string {
			_, c := manager(t, all)
			return environment(t, c, "HTTPS_PROXY")
		}, "http://proxy:3128"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, row.look(rendered(t, row.values))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheChartRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, row := range map[string]struct{ values, want string }{
		"a value that is none":            {"replica: 3", "replica"},
		"a flag that the manager has not": {"flags: {leader-election: true}", "leader-election"},
		"a number of another kind":        {"replicas: many", "replicas"},
		"kinds without a conversion":      {everyKind + "webhooks: {enabled: false}", "not"},
		"a digest that is none":           {"image: {digest: latest}", "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(path, []byte(row.values), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := command(t, "render", "-values", path).CombinedOutput()
			if err == nil || !strings.Contains(string(out), row.want) {
				t.Errorf("got %v and %s, want a refusal that names %s", err, out, row.want)
			}
		})
	}
}
