package rights

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/manifests"
)

const (
	document  = "../../docs/reference/rights.md"
	hostKinds = "CRDs of HostRemediation, Metal3Remediation and their templates"
)

// documented are the roles with a table in the document, each between comments with its name.
var documented = []string{
	"kubemend-manager-role", "kubemend-hosts", "kubemend-nodes", "kubemend-api-servers", "kubemend-node-leases", "kubemend-cluster-wide",
	"kubemend-leader-election", "kubemend-workload-reader", "kubemend-workload-fencer",
}

// TestRightsAreDocumented compares the tables of the document with the roles; with -update it rewrites the kinds and verbs. The purpose of
// a right is written by hand in the document, and a kind without a purpose fails the test.
func TestRightsAreDocumented(t *testing.T) {
	content, err := os.ReadFile(document)
	must.Do(t, err)
	text := string(content)
	grants := shipped(t)
	for _, role := range documented {
		begin, end := "<!-- "+role+" -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(text, begin)
		is, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for the rights of %s", document, role)
		}
		text = before + begin + table(t, role, Of(grants, role), is) + end + after
	}
	for _, g := range grants {
		if !slices.Contains(documented, g.Role) {
			t.Errorf("role %s has no table", g.Role)
		}
	}
	golden.Compare(t, document, text)
}

// table returns the table of a role. It takes the purposes from the present table.
func table(t *testing.T, role string, grants []Grant, is string) string {
	t.Helper()
	purposes := map[string]string{}
	for line := range strings.Lines(is) {
		if cells := strings.SplitN(strings.Trim(line, "|\n "), " | ", 3); len(cells) == 3 {
			purposes[strings.Trim(cells[0], "`")] = cells[2]
		}
	}
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
		if purposes[kind] == "" {
			t.Errorf("%s: what %s are needed for is not said in %s", role, kind, document)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", kind, verbsOf(verbs[kind]), purposes[kind])
	}
	return b.String()
}

// verbsOf lists the verbs of rights on one kind. For a verb that is granted only for named objects, it adds the number of names.
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

// Records have a role of their own, which Kubernetes aggregates to the role view. The manager gets no rights from it.
func TestWhoMayViewANamespaceMayReadItsRecordsAndNoMore(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "view-records.yaml"))
	must.Do(t, err)
	role := unstructured.Unstructured{}
	must.Do(t, yaml.Unmarshal(content, &role.Object))
	if role.GetLabels()["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("ClusterRole %s has the labels %v, and is not added to view", role.GetName(), role.GetLabels())
	}
	grants, err := Granted([]unstructured.Unstructured{role})
	must.Do(t, err)
	var got []string
	for _, g := range grants {
		got = append(got, g.Right.String())
	}
	if want := []string{
		"get kubemend.io/remediationrecords", "list kubemend.io/remediationrecords", "watch kubemend.io/remediationrecords",
	}; !slices.Equal(got, want) {
		t.Errorf("ClusterRole %s grants %v, want %v", role.GetName(), got, want)
	}
}

// shipped returns the rights of all roles that kubemend ships for itself.
func shipped(t *testing.T) []Grant {
	t.Helper()
	var all []unstructured.Unstructured
	for _, file := range []string{"role.yaml", "cluster-wide.yaml", "hosts/role.yaml", "nodes/role.yaml", "workload-cluster.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
		must.Do(t, err)
		decoded, err := manifests.Decode(content)
		must.Do(t, err)
		all = append(all, decoded...)
	}
	grants, err := Granted(all)
	must.Do(t, err)
	return grants
}

// worst has, for each role, its row in the table of docs/security.md, and by kind the words there for what somebody with the right to write
// could do.
var worst = map[string]struct {
	row   string
	words map[string]string
}{
	"kubemend-manager-role": {"every manager", map[string]string{
		"authentication.k8s.io/tokenreviews":                 "whether a token is good",
		"authorization.k8s.io/subjectaccessreviews":          "what each user may do",
		"cluster.x-k8s.io/clusters":                          "rewrite every Cluster",
		"cluster.x-k8s.io/machinehealthchecks":               "rewrite every Cluster and MachineHealthCheck",
		"cluster.x-k8s.io/machinehealthchecks/status":        "rewrite every Cluster and MachineHealthCheck",
		"cluster.x-k8s.io/machines/status":                   "mark every Machine",
		"events.k8s.io/events":                               "write events",
		"infrastructure.cluster.x-k8s.io/metal3remediations": "make, change and delete remediation requests",
		"kubemend.io/hostremediations":                       "make, change and delete remediation requests",
		"kubemend.io/remediationoverrides":                   "end holds",
		"kubemend.io/remediationoverrides/status":            "misstate what policies count",
		"kubemend.io/remediationpolicies/status":             "misstate what policies count",
		"kubemend.io/remediationrecords":                     "change and delete records of remediations",
		"secrets":                                            "read every Secret",
	}},
	"kubemend-hosts": {"hosts", map[string]string{
		"apiextensions.k8s.io/customresourcedefinitions":                    hostKinds,
		"apiextensions.k8s.io/customresourcedefinitions/status":             hostKinds,
		"cluster.x-k8s.io/machines/status":                                  "mark Machines",
		"infrastructure.cluster.x-k8s.io/metal3remediations":                "requests and templates",
		"infrastructure.cluster.x-k8s.io/metal3remediations/status":         "requests and templates",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates":        "requests and templates",
		"infrastructure.cluster.x-k8s.io/metal3remediationtemplates/status": "requests and templates",
		"kubemend.io/hostremediations":                                      "requests and templates",
		"kubemend.io/hostremediations/status":                               "requests and templates",
		"kubemend.io/hostremediationtemplates":                              "requests and templates",
		"metal3.io/baremetalhosts":                                          "change every BareMetalHost",
	}},
	"kubemend-nodes": {"NodeHealthChecks", map[string]string{
		"apiextensions.k8s.io/customresourcedefinitions":        "CRD of NodeHealthCheck",
		"apiextensions.k8s.io/customresourcedefinitions/status": "CRD of NodeHealthCheck",
		"nodes": "change every Node",
		"remediation.medik8s.io/nodehealthchecks":        "make and change NodeHealthChecks",
		"remediation.medik8s.io/nodehealthchecks/status": "make and change NodeHealthChecks",
	}},
	"kubemend-node-leases": {"NodeHealthChecks", map[string]string{"coordination.k8s.io/leases": "leases of node maintenance"}},
}

// Whoever adds a right to write has to document what an attacker could do with it.
func TestTheSecurityPageNamesTheWorstUseOfEachRight(t *testing.T) {
	content, err := os.ReadFile("../../docs/security.md")
	must.Do(t, err)
	_, page, _ := strings.Cut(string(content), "| with the rights of | it can |")
	for role, is := range worst {
		_, row, found := strings.Cut(page, "\n| "+is.row+" | ")
		if row, _, _ = strings.Cut(row, "\n"); !found {
			t.Errorf("there is no row of %s", is.row)
		}
		for _, grant := range Of(shipped(t), role) {
			kind := strings.TrimPrefix(grant.Group+"/"+grant.Resource, "/")
			words, known := is.words[kind]
			switch {
			case kind != "secrets" && slices.Contains([]string{"get", "list", "watch"}, grant.Verb):
			case !known:
				t.Errorf("%s: what is the worst of it?", grant)
			case !strings.Contains(row, words):
				t.Errorf("the row of %s does not say %q, for %s", is.row, words, grant)
			}
		}
	}
}
