package capacity

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

func TestWhichPodsADrainWaitsFor(t *testing.T) {
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: "node-w1"}}
	}
	inWorkload := func(objs ...client.Object) func(*environment) {
		return func(e *environment) { e.workload = workloadWith(t, interceptor.Funcs{}, objs...) }
	}
	for name, tc := range map[string]struct {
		is   *environment
		want string
	}{
		"pods that a rule or their label skips are not waited for": {
			anEnvironment(deleting("DrainingNode"), with(
				drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorSkip, 0, "app", "db"), drainRule("b", clusterv1.MachineDrainRuleDrainBehaviorDrain, 0, "app", "db"),
			), inWorkload(pdb, pod("web", nil), pod("db-0", map[string]string{"app": "db"}), pod("cron", map[string]string{clusterv1.PodDrainLabel: "Skip"}))),
			"Deleting DrainingNode w1 waits=Pod/web pods=1",
		},
		"of two rules the first one counts": {
			anEnvironment(deleting("DrainingNode"), with(
				drainRule("b", clusterv1.MachineDrainRuleDrainBehaviorSkip, 0, "app", "db"), drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorDrain, 0, "app", "db"),
			), inWorkload(pdb, pod("db-0", map[string]string{"app": "db"}))), "Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=1",
		},
		"a rule for other machines does not count": {
			anEnvironment(deleting("DrainingNode"), with(func() client.Object {
				rule := drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorSkip, 0, "app", "db")
				rule.Spec.Machines = []clusterv1.MachineDrainRuleMachineSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}}}
				return rule
			}()), inWorkload(pdb, pod("db-0", map[string]string{"app": "db"}))), "Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=1",
		},
		"nor does one for pods of other namespaces": {
			anEnvironment(deleting("DrainingNode"), with(func() client.Object {
				rule := drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorSkip, 0, "app", "db")
				rule.Spec.Pods[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "search"}}
				return rule
			}()), inWorkload(pdb, pod("db-0", map[string]string{"app": "db"}), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})),
			"Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=1",
		},
		"a budget does not block a pod that has to complete": {
			anEnvironment(deleting("DrainingNode"), with(drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted, 0, "app", "db")),
				inWorkload(pdb, pod("db-0", map[string]string{"app": "db"}))), "Deleting DrainingNode w1 waits=Pod/db-0 pods=1 completes=1",
		},
		"nor one that is evicted after others": {
			anEnvironment(deleting("DrainingNode"), with(drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorDrain, 10, "app", "db")),
				inWorkload(pdb, pod("web", nil), pod("db-0", map[string]string{"app": "db"}))), "Deleting DrainingNode w1 waits=Pod/web pods=2 later=1",
		},
		"one that has to complete comes before the order of others": {
			anEnvironment(deleting("DrainingNode"), with(
				drainRule("a", clusterv1.MachineDrainRuleDrainBehaviorDrain, -1, "app", "web"), drainRule("b", clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted, 0, "app", "db"),
			), inWorkload(pdb, pod("web", map[string]string{"app": "web"}), pod("db-0", map[string]string{"app": "db"}))),
			"Deleting DrainingNode w1 waits=Pod/web pods=2 completes=1 later=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := tc.is.observer(t).Observe(t.Context(), Subject{Namespace: "default", Name: "w1"}, noon)
			if err != nil || len(f.Unread) > 0 {
				t.Fatalf("%v could not be read: %v", f.Unread, err)
			}
			if diff := cmp.Diff(tc.want, told(capacity.Decide(f))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// workloadWith is a workload cluster, whose pods can be listed by their node.
func workloadWith(t *testing.T, funcs interceptor.Funcs, objs ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(schemeOfAll(t)).WithObjects(objs...).WithInterceptorFuncs(funcs).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
}

// drainRule is a rule for pods with a label.
func drainRule(name string, behaviour clusterv1.MachineDrainRuleDrainBehavior, order int32, key, value string) *clusterv1.MachineDrainRule {
	rule := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	rule.Spec.Drain.Behavior = behaviour
	if behaviour == clusterv1.MachineDrainRuleDrainBehaviorDrain {
		rule.Spec.Drain.Order = &order
	}
	rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}}
	return rule
}

// Without budgets, or without rules, the pods are shown all the same.
func TestPodsAreShownWithoutWhatCannotBeRead(t *testing.T) {
	for kinds, unread := range map[string]func(client.ObjectList) bool{
		"PodDisruptionBudgets": func(list client.ObjectList) bool { _, is := list.(*policyv1.PodDisruptionBudgetList); return is },
		"MachineDrainRules":    func(list client.ObjectList) bool { _, is := list.(*clusterv1.MachineDrainRuleList); return is },
	} {
		t.Run(kinds, func(t *testing.T) {
			refused := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if unread(list) {
					return apierrors.NewForbidden(schema.GroupResource{Resource: kinds}, "", errors.New("you may not"))
				}
				return c.List(ctx, list, opts...)
			}}
			e := anEnvironment(deleting("DrainingNode"))
			e.funcs = refused
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node-w1"}}
			e.workload = workloadWith(t, refused, p)
			f, err := e.observer(t).Observe(t.Context(), Subject{Namespace: "default", Name: "w1"}, noon)
			if err != nil || len(f.Old.Deletion.Pods) != 1 || !slices.Equal(f.Unread, []string{kinds}) {
				t.Errorf("pods %v, unread %v, %v", f.Old.Deletion.Pods, f.Unread, err)
			}
		})
	}
}
