package packages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
)

// everyKind are the values that make the chart equal to config/standalone.
const everyKind = "kinds: {metal3Remediation: true, nodeHealthCheck: true}\n"

// with writes values to a file, and returns the argument that passes it to hack/release/render.
func with(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	must.Do(t, os.WriteFile(path, []byte(values), 0o600))
	return "-values=" + path
}

// rendered returns the objects that Helm renders with these values. A duplicate key fails the test, because Argo CD refuses it; all other
// tools accept it. The Namespace is not rendered: Helm or the user creates it.
func rendered(t *testing.T, values string, args ...string) []object {
	t.Helper()
	content := run(t, "render", append(args, with(t, values))...)
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		if err := yaml.UnmarshalStrict(document, &map[string]any{}); err != nil {
			t.Errorf("%v:\n%.200s", err, document)
		}
	}
	return objects(t, content)
}

// Users can switch from kustomize to Helm, or back, without any change in the cluster.
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

// The chart has everything in config/observability except the objects for kube-state-metrics, which is another project.
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

// The overlay sets the namespace with a variable in the flags, which the chart does not need, so this compares only rights.
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

// byID returns objects by id, without the Namespace and without the annotation that only Helm needs.
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

// The first values of a row are compared with the chart's defaults, each of the others with the values before them.
var chartValues = [][]string{
	{"flags: {watch-filter: shard-1, kube-api-burst: 1000000, clustercache-client-qps: 2.5}"},
	{"flags: {diagnostics-address: null, metal3-remediations: off, node-health-checks: on}"},
	{"flags: {diagnostics-address: '127.0.0.1:9999', health-addr: ':9998'}\nwebhooks: {port: 9997}"},
	{"flags: {namespace: metal}", "flags: {namespace: metal, skip-crd-migration-phases: null}\nrights: {nodes: true}"},
	{"flags: {namespace: metal}\nrights: {allNamespaces: true}"},
	{"image: {repository: registry.example.org/kubemend, tag: v1.2.3, pullSecrets: [{name: registry}]}"},
	{"image: {digest: 'sha256:" + strings.Repeat("0", 64) + "'}"},
	{
		"webhooks: {enabled: false}",
		"webhooks: {enabled: false}\nextraVolumes: [{name: ca, emptyDir: {}}]\nextraVolumeMounts: [{name: ca, mountPath: /ca}]",
	},
	{"podDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}\nserviceAccount: {create: false}"},
	{"kinds: {hostRemediation: false}", "kinds: {hostRemediation: false}\nrights: {hosts: true}"},
	{"kinds: {remediationRecord: false}"},
	{
		"rights: {nodes: true}", "rights: {nodes: true}\nflags: {node-lease-namespace: leases}",
		"rights: {nodes: true, createLeaseNamespace: false}\nflags: {node-lease-namespace: leases}",
	},
	{"serviceAccount: {name: kubemend-manager-east, annotations: {a: b}}"},
	{"podLabels: {a: b}\npodAnnotations: {c: d}\nenv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]"},
	{"hostNetwork: true", "hostNetwork: true\ndnsPolicy: Default"},
	{"podSecurityContext: {fsGroup: 1, runAsNonRoot: null, seccompProfile: null}\nsecurityContext: {privileged: null}"},
	{"nodeSelector: {a: b}\ntolerations: []\naffinity: {nodeAffinity: {}}\ntopologySpreadConstraints: []\npriorityClassName: ''"},
	{"replicas: 3\nrevisionHistoryLimit: 0\nstrategy: {type: Recreate}\nresources: {requests: {memory: 512Mi}}"},
	{"networkPolicy: {metricsFrom: [{podSelector: {}}]}"},
	{"extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-x'}}]"},
	{
		"serviceMonitor: {enabled: true}",
		"serviceMonitor: {enabled: true, labels: {a: b}, interval: 1m, prometheus: [{kind: User, name: p}]}",
	},
	{"prometheusRule: {enabled: true}", "prometheusRule: {enabled: true, labels: {a: b}}"},
	{"dashboards: {enabled: true}", "dashboards: {enabled: true, labels: {a: b}, annotations: {grafana_folder: kubemend}}"},
}

func TestWhatTheValuesOfTheChartChange(t *testing.T) {
	var b strings.Builder
	plain := rendered(t, "")
	for _, row := range chartValues {
		before := plain
		for _, values := range row {
			after := rendered(t, values)
			fmt.Fprintf(&b, "%s\n%s\n\n", values, strings.Join(changes(before, after), "\n"))
			before = after
		}
	}
	golden.Compare(t, "testdata/chart.txt", b.String())
}

// changes returns the objects that were added or removed, and the changed fields of all other objects.
func changes(before, after []object) []string {
	was, now := fieldsOf(before), fieldsOf(after)
	var found []string
	for object := range joined(was, now) {
		if was[object] == nil || now[object] == nil {
			was[object], now[object] = map[string]string{"": was[object][""]}, map[string]string{"": now[object][""]}
		}
		for field := range joined(was[object], now[object]) {
			old, is := was[object][field], now[object][field]
			if old != "" && old != is {
				found = append(found, "  "+object+field+" - "+old)
			}
			if is != "" && old != is {
				found = append(found, "  "+object+field+" + "+is)
			}
		}
	}
	slices.Sort(found)
	return found
}

func joined[V any](a, b map[string]V) map[string]V {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// fieldsOf returns the scalar fields of objects, by object and path. The empty path stands for the object itself.
func fieldsOf(all []object) map[string]map[string]string {
	found := map[string]map[string]string{}
	for i := range all {
		fields := map[string]string{"": "the object"}
		flatten(fields, "", all[i].Object)
		found[id(&all[i])] = fields
	}
	return found
}

func flatten(fields map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			fields[path] = "{}"
		}
		for name, field := range value {
			flatten(fields, path+" "+name, field)
		}
	case []any:
		for i, item := range value {
			if _, is := item.(map[string]any); !is { // such as flags, in one line
				fields[path] = fmt.Sprint(value)
				return
			}
			flatten(fields, fmt.Sprintf("%s %d", path, i), item)
		}
	default:
		fields[path] = fmt.Sprint(value)
	}
}

// A user's labels must not replace the chart's own: selectors, clusterctl and the aggregation of roles rely on these.
func TestLabelsOfUsersReplaceNoLabelOfTheChart(t *testing.T) {
	const all = everyKind + "dashboards: {enabled: true}\nserviceMonitor: {enabled: true}\nprometheusRule: {enabled: true}\n"
	want, keys := rendered(t, all), map[string]string{}
	deployment, _ := manager(t, want)
	labels := []map[string]string{deployment.Spec.Template.Labels, deployment.Spec.Template.Annotations}
	for i := range want {
		labels = append(labels, want[i].GetLabels())
	}
	for _, own := range labels {
		for key := range own {
			keys[key] = "mine"
		}
	}
	mine, err := json.Marshal(keys)
	must.Do(t, err)
	got := rendered(t, all+fmt.Sprintf("commonLabels: %[1]s\npodLabels: %[1]s\npodAnnotations: %[1]s\n", mine))
	for i := range want {
		for key, value := range want[i].GetLabels() {
			must.Is(t, value, got[i].GetLabels()[key], "the label %s of %s became", key, id(&want[i]))
		}
	}
}

func TestTheChartRefusesWhatWouldNotWork(t *testing.T) {
	const monitor = "serviceMonitor: {enabled: true}\n"
	for values, want := range map[string]string{
		"replica: 3":                                      "'replica' not allowed",
		"replicas: many":                                  "at '/replicas'",
		"image: {digest: latest}":                         "at '/image/digest'",
		"flags: {leader-election: true}":                  "'leader-election' not allowed",
		"flags: {unclaimed-machine-health-checks: aktiv}": "must be one of 'observe', 'act', 'ignore'",
		"flags: {teardown: maybe}":                        "at '/flags/teardown': value must be one of true, false",
		"flags: {leader-elect: false}":                    "flags.leader-elect must be true",
		"flags: {leader-elect: null}":                     "flags.leader-elect must be true",
		"flags: {webhook-cert-dir: null}":                 "which flags.webhook-cert-dir must name",
		"flags: {webhook-port: 10250}":                    "flags.webhook-port is set by webhooks.port",
		"flags: {health-addr: 0}":                         "flags.health-addr needs a port",
		"serviceAccount: {name: kubemend}":                "serviceAccount.name must be kubemend-manager, or begin with kubemend-manager-",
		everyKind + "webhooks: {enabled: false}":          "kinds.metal3Remediation needs webhooks.enabled",
		monitor + "webhooks: {enabled: false}":            "serviceMonitor.enabled needs webhooks.enabled",
		monitor + "flags: {insecure-diagnostics: true}":   "it excludes flags.insecure-diagnostics",
		monitor + "flags: {diagnostics-address: '0'}":     "serviceMonitor.enabled needs a port in flags.diagnostics-address",
	} {
		t.Run(values, func(t *testing.T) {
			out, err := command(t, "render", with(t, values)).CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("got %v and %s, want a refusal that says %q", err, out, want)
			}
		})
	}
}

// The first thing the notes say is how the manager will act on checks that already exist.
func TestTheNotesSayWhichChecksTheManagerActsOnAtOnce(t *testing.T) {
	const claimed, removes = "only when you have claimed it", "only removes"
	const checks, nodes = "acts on MachineHealthChecks at once", "acts on NodeHealthChecks at once"
	for values, want := range map[string]string{
		"": claimed,
		"flags: {unclaimed-machine-health-checks: act}":                      checks,
		"kinds: {nodeHealthCheck: true}":                                     claimed + nodes,
		"rights: {nodes: true}":                                              claimed + nodes,
		"rights: {nodes: true}\nflags: {node-health-checks: off}":            claimed,
		"rights: {nodes: true}\nflags: {teardown: true}":                     removes,
		"flags: {namespace: metal, unclaimed-machine-health-checks: ignore}": claimed,
	} {
		t.Run(values, func(t *testing.T) {
			notes, _, _ := strings.Cut(string(run(t, "render", with(t, values))), "\n---\n")
			var got []string
			for _, sentence := range []string{claimed, checks, nodes, removes} {
				if strings.Contains(notes, sentence) {
					got = append(got, sentence)
				}
			}
			if strings.Join(got, "") != want {
				t.Errorf("the notes say %q, want %q:\n%s", got, want, notes)
			}
		})
	}
}
