package packages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// deleted is all that may be deleted, with why.
var deleted = map[string]string{
	"coordination.k8s.io/leases":                         "those on nodes: whoever holds one remediates, and gives it back",
	"kubemend.io/hostremediations":                       "requests: the check that made one ends it when the machine is well",
	"infrastructure.cluster.x-k8s.io/metal3remediations": "the same",
	"/nodes": "in workload clusters: to fence, where the taint for that is not known or not wanted",
}

// narrowRoles: a wildcard grants what nobody has thought of, and what is deleted is lost.
func narrowRoles(t *testing.T, all []object) []string {
	var found []string
	for _, o := range slices.Concat(ofKind(all, "ClusterRole"), ofKind(all, "Role")) {
		for _, rule := range as[rbacv1.ClusterRole](t, o).Rules { // a Role has the same
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
				if slices.ContainsFunc(list, wild) {
					found = append(found, fmt.Sprintf("%s: a wildcard in %v", id(o), rule))
				}
			}
			for _, resource := range deletable(rule) {
				if deleted[resource] == "" {
					found = append(found, fmt.Sprintf("%s: %s may be deleted, and no reason is given", id(o), resource))
				}
			}
		}
	}
	return found
}

func wild(word string) bool { return strings.Contains(word, "*") }

// deletable are the kinds whose objects a rule lets somebody delete.
func deletable(rule rbacv1.PolicyRule) []string {
	if !slices.Contains(rule.Verbs, "delete") && !slices.Contains(rule.Verbs, "deletecollection") {
		return nil
	}
	var kinds []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			kinds = append(kinds, group+"/"+resource)
		}
	}
	return kinds
}

// Roles for workload clusters are of no package: their users apply them there.
func TestTheRolesForWorkloadClustersAreNarrow(t *testing.T) {
	roles := objects(t, read(t, "config/rbac/workload-cluster.yaml"))
	if len(roles) != 2 {
		t.Errorf("there are %d roles, want one to judge and one to fence", len(roles))
	}
	for _, fault := range narrowRoles(t, roles) {
		t.Error(fault)
	}
}

func TestWhatMayBeDeletedIsGranted(t *testing.T) {
	granted := map[string]bool{}
	for _, o := range append(standalone(t), objects(t, read(t, "config/rbac/workload-cluster.yaml"))...) {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		for _, rule := range as[rbacv1.ClusterRole](t, &o).Rules {
			for _, resource := range deletable(rule) {
				granted[resource] = true
			}
		}
	}
	for resource := range deleted {
		if !granted[resource] {
			t.Errorf("%s may not be deleted, so no reason need be given", resource)
		}
	}
}
