package rights

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
)

const document = "../../docs/rights.md"

// purposes say for each role what each of its kinds, or paths, is needed for.
var purposes = map[string]map[string]string{
	"kubemend-manager-role": {
		"apiextensions.k8s.io/customresourcedefinitions":             "to serve a kind as soon as it is installed, unless another project serves it",
		"authentication.k8s.io/tokenreviews":                         "to know who asks for metrics",
		"authorization.k8s.io/subjectaccessreviews":                  "to know whether they may have them",
		"cluster.x-k8s.io/clusters":                                  "to know what is paused, initialized or rolling out, and what to connect to",
		"cluster.x-k8s.io/machines":                                  "to judge machines",
		"cluster.x-k8s.io/machinedeployments":                        "to know [what capacity waits for](remediation-records.md#what-it-waits-for)",
		"cluster.x-k8s.io/machinesets":                               "as of MachineDeployments",
		"controlplane.cluster.x-k8s.io/kubeadmcontrolplanes":         "as of MachineDeployments",
		"cluster.x-k8s.io/machines/status":                           "to mark machines healthy or unhealthy, and to request owner remediation",
		"cluster.x-k8s.io/machinehealthchecks":                       "to act on them; patched: owner, [claims by a label](claim-by-policy.md), [teardown](uninstall.md)",
		"cluster.x-k8s.io/machinehealthchecks/status":                "to report verdicts and remediations",
		"coordination.k8s.io/leases":                                 "whether CAPM3's controller and medik8s' operator run",
		"events.k8s.io/events":                                       "to report what was done",
		"infrastructure.cluster.x-k8s.io/metal3remediations":         "to make requests, and to adopt and delete those of a check",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates": "to make requests from",
		"kubemend.io/hostremediations":                               "the same for kubemend's own kind",
		"kubemend.io/hostremediationtemplates":                       "the same",
		"kubemend.io/remediationrecords":                             "to write what was decided and done, and to remove old records",
		"namespaces":                                                 "to know whether [their label](claim-by-policy.md) claims checks",
		"secrets":                                                    "the [kubeconfigs](#secrets) of workload clusters",
	},
	"kubemend-hosts": {
		"apiextensions.k8s.io/customresourcedefinitions":                    "to note for which generation of its CRDs objects were stored anew",
		"apiextensions.k8s.io/customresourcedefinitions/status":             "to remove a version from `storedVersions`",
		"cluster.x-k8s.io/clusters":                                         "to know what is paused, and what a remediation belongs to",
		"cluster.x-k8s.io/machinehealthchecks":                              "to know whether the check of a request is still there",
		"cluster.x-k8s.io/machines":                                         "to find that of a request, and the members of a control plane",
		"cluster.x-k8s.io/machines/status":                                  "to request owner remediation",
		"infrastructure.cluster.x-k8s.io/metal3machines":                    "to find the host of a machine, and what its replacement wants",
		"infrastructure.cluster.x-k8s.io/metal3remediations":                "to carry requests out",
		"infrastructure.cluster.x-k8s.io/metal3remediations/status":         "to report progress",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates":        "patched without a change, to be stored in another version",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates/status": "the same",
		"kubemend.io/hostremediations":                                      "to carry requests out",
		"kubemend.io/hostremediations/status":                               "to report progress",
		"kubemend.io/hostremediationtemplates":                              "patched without a change, as above",
		"metal3.io/baremetalhosts":                                          "to see, power off, release and mark hosts, by annotations, and to know the free ones",
		"remediation.medik8s.io/nodehealthchecks":                           "to know whether the check of a request is still there, and what else it asks for",
	},
	"kubemend-nodes": {
		"apiextensions.k8s.io/customresourcedefinitions":             "to note for which generation of the CRD checks were stored anew",
		"apiextensions.k8s.io/customresourcedefinitions/status":      "to remove a version from `storedVersions`",
		"cluster.x-k8s.io/clusters":                                  "to know whether the Cluster of a node is being rolled out",
		"cluster.x-k8s.io/machines":                                  "to find the Machine of a node",
		"config.openshift.io/clusterversions":                        "on OpenShift: to start nothing during an upgrade",
		"config.openshift.io/infrastructures":                        "on OpenShift, at admission: the topology of the control plane",
		"infrastructure.cluster.x-k8s.io/metal3remediations":         "at admission: which remediations are in flight",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates": "at admission: whether a template exists",
		"kubemend.io/hostremediations":                               "the same for kubemend's own kind",
		"kubemend.io/hostremediationtemplates":                       "the same",
		"machine.openshift.io/machinehealthchecks":                   "on OpenShift: to start nothing beside its MachineHealthChecks",
		"machine.openshift.io/machines":                              "on OpenShift: the Machine that owns a request",
		"nodes":                                                      "to judge them; patched to remove a user's confirmation annotation",
		"pods":                                                       "on OpenShift: the guard pods of etcd, in `openshift-etcd`",
		"policy/poddisruptionbudgets":                                "on OpenShift: whether etcd can do without a member",
		"remediation.medik8s.io/nodehealthchecks":                    "to act on them; created for `--default-node-health-check-template`",
		"remediation.medik8s.io/nodehealthchecks/status":             "to report verdicts and remediations",
	},
	"kubemend-api-servers": {
		"coordination.k8s.io/leases": "[which API servers are alive](control-plane-safety.md), before a control-plane node is remediated",
	},
	"kubemend-node-leases": {
		"coordination.k8s.io/leases": "leases on nodes, which NodeHealthChecks and node maintenance respect",
	},
	"kubemend-cluster-wide": {
		"apiextensions.k8s.io/customresourcedefinitions": "to serve a kind as soon as it is installed",
		"authentication.k8s.io/tokenreviews":             "to know who asks for metrics",
		"authorization.k8s.io/subjectaccessreviews":      "to know whether they may have them",
	},
	"kubemend-leader-election": {
		"coordination.k8s.io/leases": "leader election, and [the manager's announcement](high-availability.md#how-it-is-known-that-one-acts)",
		"events":                     "to report the leader",
		"pods":                       "whether another replica can power-cycle the host of this one",
	},
	"kubemend-workload-reader": {
		"/":     "to probe the API server",
		"nodes": "to judge them",
		"pods":  "ClusterCache asks whether kubemend itself runs there",
	},
	"kubemend-workload-fencer": {
		"nodes":                            "to fence and unfence them: by a taint, or by deletion",
		"pods":                             "to see when they have left a fenced node",
		"storage.k8s.io/volumeattachments": "to see when volumes have left it",
		"coordination.k8s.io/leases":       "[which API servers are alive](control-plane-safety.md), before a control-plane host is powered off",
	},
}

// TestRightsAreDocumented holds the tables of the document to the roles: with -update it rewrites them, and a kind without a purpose fails
// either way.
func TestRightsAreDocumented(t *testing.T) {
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	grants := shipped(t)
	for role, kinds := range purposes {
		begin, end := "<!-- "+role+" -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for the rights of %s", document, role)
		}
		text = before + begin + table(t, role, Of(grants, role), kinds) + end + after
	}
	for _, g := range grants {
		if purposes[g.Role] == nil {
			t.Errorf("role %s has no table", g.Role)
		}
	}
	golden.Compare(t, document, text)
}

// table says of each kind of a role what may be done to it, and what for.
func table(t *testing.T, role string, grants []Grant, kinds map[string]string) string {
	t.Helper()
	verbs := map[string][]Right{}
	for _, g := range grants {
		kind := strings.TrimPrefix(g.Group+"/"+g.Resource, "/")
		if g.URL != "" {
			kind = g.URL
		}
		verbs[kind] = append(verbs[kind], g.Right)
	}
	var b strings.Builder
	b.WriteString("| on | may | for |\n|---|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(verbs)) {
		if kinds[kind] == "" {
			t.Errorf("%s: what %s are needed for is not said", role, kind)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", kind, verbsOf(verbs[kind]), kinds[kind])
	}
	for kind := range kinds {
		if verbs[kind] == nil {
			t.Errorf("%s: nothing is granted on %s, and it is said what for", role, kind)
		}
	}
	return b.String()
}

// verbsOf are the verbs among rights on one kind: those for all of its objects, and those for some, with how many names they are granted for.
func verbsOf(rights []Right) string {
	named, all := map[string]int{}, map[string]bool{}
	for _, r := range rights {
		if r.Name == "" {
			all[r.Verb] = true
		} else {
			named[r.Verb]++
		}
	}
	verbs := slices.Collect(maps.Keys(all))
	for verb, names := range named {
		if !all[verb] {
			verbs = append(verbs, fmt.Sprintf("%s (%d by name)", verb, names))
		}
	}
	slices.Sort(verbs)
	return strings.Join(verbs, ", ")
}

func TestAVerbThatIsGrantedByNameIsCountedOnce(t *testing.T) {
	rights := []Right{{Verb: "watch"}, {Verb: "patch", Name: "a"}, {Verb: "patch", Name: "b"}, {Verb: "get", Name: "a"}, {Verb: "get"}}
	if got, want := verbsOf(rights), "get, patch (2 by name), watch"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Records are in a role of their own, which Kubernetes adds to those of users who may view a namespace, and to no role of the manager.
func TestWhoMayViewANamespaceMayReadItsRecordsAndNoMore(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "view-records.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := roles(t, string(content))
	if all[0].GetLabels()["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("ClusterRole %s has the labels %v, and is not added to view", all[0].GetName(), all[0].GetLabels())
	}
	grants, err := Granted(all)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range grants {
		got = append(got, g.Right.String())
	}
	if want := []string{
		"get kubemend.io/remediationrecords", "list kubemend.io/remediationrecords", "watch kubemend.io/remediationrecords",
	}; !slices.Equal(got, want) {
		t.Errorf("ClusterRole %s grants %v, want %v", all[0].GetName(), got, want)
	}
}

// shipped are the rights of all roles that kubemend ships for itself.
func shipped(t *testing.T) []Grant {
	t.Helper()
	var all []unstructured.Unstructured
	for _, file := range []string{"role.yaml", "cluster-wide.yaml", "hosts/role.yaml", "nodes/role.yaml", "workload-cluster.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("---\n")) {
			var o unstructured.Unstructured
			if err := yaml.Unmarshal(document, &o.Object); err != nil {
				t.Fatal(err)
			}
			if len(o.Object) > 0 {
				all = append(all, o)
			}
		}
	}
	grants, err := Granted(all)
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

// A record of a NodeHealthCheck is not closed while its target is unhealthy and the check cannot be read, which says what else it asks for. A cache would need
// list and watch; one is read past them.
func TestWhoActsOnRequestsOfNodeHealthChecksMayReadOne(t *testing.T) {
	wanted := Right{Verb: "get", Group: "remediation.medik8s.io", Resource: "nodehealthchecks"}
	for _, role := range []string{"kubemend-hosts", "kubemend-nodes"} {
		if !slices.ContainsFunc(Of(shipped(t), role), func(g Grant) bool { return g.covers(wanted) }) {
			t.Errorf("%s does not grant: %s", role, wanted)
		}
	}
}
