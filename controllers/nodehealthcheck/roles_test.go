package nodehealthcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// unpatchable is a remediator's role that does not let the manager patch requests.
func unpatchable(verb string, obj client.Object) error {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; verb == "patch" && kind == "Reboot" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, obj.GetName(), nil)
	}
	return nil
}

// With a ladder a remediator has to be notified to stop before the next one begins.
func TestALadderThatMayNotTellARemediatorToStopSaysSo(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.fails = unpatchable
	badB(k)
	k.after(6 * time.Minute)
	k.reconciles("nhc")
	k.wants("the first one was not told", "Reboot/b")
	told := 0
	for _, e := range k.events() {
		if strings.Contains(e, "RemediationFailed") && strings.Contains(e, "cannot be notified to stop") && strings.Contains(e, "forbidden") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was reported %d times", told)
	}
}

// state is what a check says of its nodes: its phase, how many it observes, how many are healthy, and those that it lists, with the number
// of their requests.
func (k *fixture) state(check string) string {
	k.t.Helper()
	st := k.check(check).Status
	says := []string{string(st.Phase), fmt.Sprintf("%d/%d", *st.HealthyNodes, *st.ObservedNodes)}
	for _, n := range st.UnhealthyNodes {
		says = append(says, fmt.Sprintf("%s:%d", n.Name, len(n.Remediations)))
	}
	return strings.Join(says, " ")
}

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

func TestTheRightsThatAreShipped(t *testing.T) {
	rules := role(t, filepath.Join("nodes", "role.yaml")).Rules
	t.Run("W4: nodes may be patched, to take a confirmation off, and no more", func(t *testing.T) {
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "nodes") && !slices.Equal(rule.Verbs, []string{"get", "list", "patch", "watch"}) {
				t.Errorf("verbs %v", rule.Verbs)
			}
		}
	})
	t.Run("W30: nothing may be done to rights, and nothing be deleted but leases and requests", func(t *testing.T) {
		harmless := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
		for _, rule := range rules {
			if slices.Contains(rule.APIGroups, rbacv1.GroupName) || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) ||
				slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(harmless, verb) }) {
				t.Errorf("it may change what it may do: %v", rule)
			}
			requests := strings.HasPrefix(rule.APIGroups[0], "infrastructure.cluster.x-k8s.io") || rule.APIGroups[0] == "kubemend.io"
			if slices.Contains(rule.Verbs, "delete") && !requests && !slices.Equal(rule.Resources, []string{"leases"}) {
				t.Errorf("it may delete %v of %v", rule.Resources, rule.APIGroups)
			}
		}
	})
}

// Kubernetes adds up the roles with the label; each remediator brings one. (medik8s makes the same role when it starts.)
func TestTheRoleThatRemediatorsAddTo(t *testing.T) {
	t.Run("seed 0.25, seed 2.1, C84: has the rules of all roles with the label of remediators, and none of its own", func(t *testing.T) {
		r, labels := role(t, "ext-remediation.yaml"), map[string]string{"rbac.ext-remediation/aggregate-to-ext-remediation": "true"}
		diff := cmp.Diff([]metav1.LabelSelector{{MatchLabels: labels}}, r.AggregationRule.ClusterRoleSelectors)
		if diff != "" || len(r.Rules) > 0 {
			t.Errorf("rules %v, aggregation (-want +got):\n%s", r.Rules, diff)
		}
	})
}
