package nodehealthcheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// role reads a role that is shipped.
func role(t *testing.T, file string) *rbacv1.ClusterRole {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
	if err != nil {
		t.Fatal(err)
	}
	r := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(content, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// verbs are what a role lets somebody do to a resource.
func verbs(r *rbacv1.ClusterRole, group, resource string) []string {
	var all []string
	for _, rule := range r.Rules {
		if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) {
			all = append(all, rule.Verbs...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestTheRightsThatAreShipped(t *testing.T) {
	r := role(t, filepath.Join("nodes", "role.yaml"))
	t.Run("W4: nodes may be patched, to take a confirmation off, and no more", func(t *testing.T) {
		if diff := cmp.Diff([]string{"get", "list", "patch", "watch"}, verbs(r, "", "nodes")); diff != "" {
			t.Errorf("verbs (-want +got):\n%s", diff)
		}
	})
	t.Run("W30: nothing may be done to rights, and nowhere everything", func(t *testing.T) {
		for _, rule := range r.Rules {
			if slices.Contains(rule.APIGroups, rbacv1.GroupName) || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) {
				t.Errorf("it may change what it may do: %v", rule)
			}
			for _, verb := range []string{rbacv1.VerbAll, "escalate", "bind", "impersonate", "deletecollection"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("it may %q: %v", verb, rule)
				}
			}
		}
	})
	t.Run("W30: nothing is deleted but leases and requests", func(t *testing.T) {
		for _, rule := range r.Rules {
			if !slices.Contains(rule.Verbs, "delete") {
				continue
			}
			requests := strings.HasPrefix(rule.APIGroups[0], "infrastructure.cluster.x-k8s.io") || rule.APIGroups[0] == "kubemend.io"
			if leases := slices.Equal(rule.Resources, []string{"leases"}); !leases && !requests {
				t.Errorf("it may delete %v of %v", rule.Resources, rule.APIGroups)
			}
		}
	})
}

// Kubernetes adds up the roles with the label; each remediator brings one. (C84 is how medik8s makes the same role when it starts.)
func TestTheRoleThatRemediatorsAddTo(t *testing.T) {
	t.Run("seed 0.25, seed 2.1, C84: has the rules of all roles with the label of remediators", func(t *testing.T) {
		r := role(t, "ext-remediation.yaml")
		want := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{"rbac.ext-remediation/aggregate-to-ext-remediation": "true"}},
		}}
		if diff := cmp.Diff(want, r.AggregationRule); diff != "" {
			t.Errorf("aggregation (-want +got):\n%s", diff)
		}
		if len(r.Rules) > 0 {
			t.Errorf("it has rules of its own, which Kubernetes would take away: %v", r.Rules)
		}
	})
}
