package rights

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// worst says for each role what docs/security.md calls what can be written with it: the row of the table, and words in it.
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
		"kubemend.io/remediationrecords":                     "change and delete records of remediations",
		"secrets":                                            "read every Secret",
	}},
	"kubemend-hosts": {"hosts", map[string]string{
		"apiextensions.k8s.io/customresourcedefinitions":                    "CRDs of HostRemediation, Metal3Remediation and their templates",
		"apiextensions.k8s.io/customresourcedefinitions/status":             "CRDs of HostRemediation, Metal3Remediation and their templates",
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

// A right to write that is granted some day is thought of as one that is taken over.
func TestTheSecurityPageNamesTheWorstUseOfEachRight(t *testing.T) {
	content, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
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
