package packages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// deleted is all that may be deleted, with why.
var deleted = map[string]string{
	"coordination.k8s.io/leases":                         "those on nodes: the holder of one remediates the node, and deletes it afterwards",
	"kubemend.io/hostremediations":                       "requests: the check that made one deletes it when the machine is healthy",
	"infrastructure.cluster.x-k8s.io/metal3remediations": "the same",
	"kubemend.io/remediationrecords":                     "old ones: --record-retention says how many are kept",
	"/nodes":                                             "in workload clusters: to fence, where the taint for that is not known or not wanted",
}

// narrowRoles: a wildcard grants more than was intended, and what is deleted is lost.
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

// ownLeases: leases say which nodes are alive, and who leads of every controller in the cluster; a right to make a namespace is one to make any.
func ownLeases(t *testing.T, all []object) []string {
	t.Helper()
	var found []string
	for _, o := range ofKind(all, "ClusterRole") {
		for _, rule := range as[rbacv1.ClusterRole](t, o).Rules {
			named := slices.Equal(rule.Verbs, []string{"list"}) && len(rule.ResourceNames) > 0
			if slices.Contains(rule.Resources, "leases") && !named {
				found = append(found, fmt.Sprintf("%s: all leases of the cluster, by %v", id(o), rule))
			}
			writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			if slices.Contains(rule.Resources, "namespaces") && writes {
				found = append(found, fmt.Sprintf("%s: namespaces, by %v", id(o), rule))
			}
		}
	}
	return found
}

// featureRights: what a manager may do to hosts and nodes it may where there is something for it to do.
func featureRights(t *testing.T, all []object) []string {
	t.Helper()
	kinds, bound := map[string]bool{}, map[string]bool{}
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		kinds[o.GetName()] = true
	}
	for _, o := range slices.Concat(ofKind(all, "ClusterRoleBinding"), ofKind(all, "RoleBinding")) {
		bound[as[rbacv1.RoleBinding](t, o).RoleRef.Name] = true
	}
	hosts := kinds["hostremediations.kubemend.io"] || kinds["metal3remediations.infrastructure.cluster.x-k8s.io"]
	nodes := kinds["nodehealthchecks.remediation.medik8s.io"]
	var found []string
	for role, wanted := range map[string]bool{"kubemend-hosts": hosts, "kubemend-nodes": nodes, "kubemend-node-leases": nodes, "kubemend-api-servers": nodes} {
		if bound[role] != wanted {
			found = append(found, fmt.Sprintf("%s is bound: %t, and its kinds are installed: %t", role, bound[role], wanted))
		}
	}
	if leases := slices.ContainsFunc(ofKind(all, "Namespace"), ofNodeLeases); leases != nodes {
		found = append(found, fmt.Sprintf("the namespace of the leases on nodes is there: %t, and NodeHealthChecks: %t", leases, nodes))
	}
	return found
}

func wild(word string) bool { return strings.Contains(word, "*") }

// deletable are the kinds whose objects a rule makes a user delete.
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

// kubectl apply deletes nothing: what was bound stays bound.
func TestTheUpgradePageNamesBindingsThatANarrowerPackageLeaves(t *testing.T) {
	_, page, _ := strings.Cut(string(read(t, "docs/upgrade.md")), "### Rights that stay")
	page, _, _ = strings.Cut(page, "\n## ")
	for name, row := range map[string]struct{ from, to []object }{
		"without NodeHealthChecks":          {standalone(t), beside(t)},
		"to one namespace":                  {beside(t), oneNamespaceOnly(t)},
		"from a shard by label to a place":  {named(shardByLabel(t), "-canary", "-east"), shard(t)},
		"from all namespaces to one (Helm)": {rendered(t, ""), rendered(t, "flags: {namespace: metal}")},
	} {
		t.Run(name, func(t *testing.T) {
			stays := map[string]bool{}
			for _, o := range slices.Concat(ofKind(row.to, "ClusterRoleBinding"), ofKind(row.to, "RoleBinding")) {
				stays[o.GetNamespace()+" "+id(o)] = true
			}
			left := 0
			for _, o := range slices.Concat(ofKind(row.from, "ClusterRoleBinding"), ofKind(row.from, "RoleBinding")) {
				if stays[o.GetNamespace()+" "+id(o)] {
					continue
				}
				left++
				words := regexp.MustCompile("[`; ]" + regexp.QuoteMeta(o.GetName()) + "[`; ]")
				if !words.MatchString(page) || o.GetNamespace() != "" && !strings.Contains(page, o.GetName()+" -n "+o.GetNamespace()) {
					t.Errorf("%s stays bound in %q, and the page does not say so", id(o), o.GetNamespace())
				}
			}
			if left == 0 {
				t.Error("nothing is left, so that the page says too much")
			}
		})
	}
}

// named gives objects another suffix, and namespaces that end so.
func named(all []object, was, is string) []object {
	for i := range all {
		all[i].SetName(strings.Replace(all[i].GetName(), was, is, 1))
		all[i].SetNamespace(strings.Replace(all[i].GetNamespace(), was, is, 1))
	}
	return all
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

func TestOnlyGrantedDeletionsHaveAReason(t *testing.T) {
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
