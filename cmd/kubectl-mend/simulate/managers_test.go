package simulate

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// definition adds a CustomResourceDefinition of which no more is known than its labels.
func (s *fixture) definition(name string, labels map[string]string) *fixture {
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	s.objs = append(s.objs, crd)
	return s
}

func TestTheManagersThatRunDecide(t *testing.T) {
	machines, nodes := workers(5), nodesHere(3)
	unclaimed := strings.Replace(workersCheck, "  annotations: {cluster.x-k8s.io/paused: kubemend}\n", "", 1)
	for name, tc := range map[string]struct {
		fixture  func(*fixture) *fixture
		managers map[string]string // by namespace
		manifest string
		fail     string
		says     string // on the page, in one line
		starts   int
	}{
		"no manager": {
			machines, nil, workersCheck, "machine/w1", "No manager of kubemend runs that stays: one with default settings is assumed", 1,
		},
		"one with its settings": {machines, map[string]string{"a": `{}`}, workersCheck, "machine/w1", "", 1},
		"one that says nothing": {
			machines, map[string]string{"a": ``}, workersCheck, "machine/w1", "", 1,
		},
		"one that leaves": {
			machines, map[string]string{"a": `{"teardown":true}`}, workersCheck, "machine/w1", "one with default settings is assumed", 1,
		},
		"one that wants a label": {
			machines, map[string]string{"a": `{"watchFilter":"blue"}`}, workersCheck, "machine/w1", "kubemend does not act on it", 0,
		},
		"one that does not act on NodeHealthChecks": {
			nodes, map[string]string{"a": `{"kinds":[{"crd":"nodehealthchecks.remediation.medik8s.io","reason":"Off","because":"it is switched off by a flag"}]}`},
			ladder, "node/n1", "it is switched off by a flag", 0,
		},
		"two, of which one acts on NodeHealthChecks": {
			nodes, map[string]string{"a": `{"kinds":[{"crd":"nodehealthchecks.remediation.medik8s.io","reason":"Off"}]}`, "b": `{}`},
			ladder, "node/n1", "", 1,
		},
		"no manager, where another operator has brought NodeHealthChecks along": {
			func(s *fixture) *fixture {
				return nodes(s).definition("nodehealthchecks.remediation.medik8s.io", map[string]string{"olm.managed": "true"})
			}, nil, ladder, "node/n1", "its CustomResourceDefinition belongs to", 0,
		},
		"one that acts on what is not claimed": {
			func(s *fixture) *fixture { return machines(s).existing(unclaimed) }, map[string]string{"a": `{"unclaimed":"act"}`},
			"", "machine/w1", "", 1,
		},
		"one that does not": {
			func(s *fixture) *fixture { return machines(s).existing(unclaimed) }, map[string]string{"a": `{}`},
			"", "machine/w1", "kubemend does not act on it", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.fixture(newFixture(t))
			for namespace, says := range tc.managers {
				s.manager(namespace, says)
			}
			answer := s.run(tc.manifest, question(func(q *Question) { q.Fail, q.Takes = tc.fail, 5*time.Minute }))
			if page := strings.Join(strings.Fields(printed(t, answer)), " "); !strings.Contains(page, tc.says) {
				t.Errorf("%q is not on the page:\n%s", tc.says, page)
			}
			if len(answer.Starts) != tc.starts {
				t.Errorf("%d remediations start, want %d: %v", len(answer.Starts), tc.starts, answer.Starts)
			}
		})
	}
}

func TestNodesWhoseMachinesAreNotKnownAreLeftAlone(t *testing.T) {
	s := newFixture(t).nodesHere(3)
	for _, obj := range s.objs {
		if obj.GetName() == "n1" {
			obj.SetAnnotations(map[string]string{clusterv1.ClusterNamespaceAnnotation: "mgmt", clusterv1.MachineAnnotation: "m1"})
		}
	}
	for fail, starts := range map[string]int{"node/n1": 0, "node/n2": 1} {
		w := s.snapshot()
		w.Forbid(clusterv1.GroupVersion.WithKind("Machine"), "machines", true, "mgmt", errors.New("the user may not read it"))
		answer := runIn(t, w, ladder, question(func(q *Question) { q.Fail, q.Takes = fail, 5*time.Minute }))
		blocked := len(answer.NotStarted) == 1 && answer.NotStarted[0].Reason == explain.MissingPermission
		if len(answer.Starts) != starts || blocked != (starts == 0) {
			t.Errorf("--fail %s: %d remediations start, want %d:\n%s", fail, len(answer.Starts), starts, printed(t, answer))
		}
	}
}

// manager adds one that runs in a namespace, is bound, and says that of itself.
func (s *fixture) manager(namespace, says string) *fixture {
	renewed := metav1.NewMicroTime(noon)
	s.objs = append(s.objs, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: says}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &renewed},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager-" + namespace, Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.ServiceAccount}},
	})
	return s
}

func TestTheChecksOfOneClusterAreSimulated(t *testing.T) {
	check := func(cluster string) *clusterv1.MachineHealthCheck {
		return &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-" + cluster}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: cluster},
		}
	}
	for name, tc := range map[string]struct {
		question Question
		want     [2]bool
	}{
		"all, without one":    {Question{Namespace: "ns"}, [2]bool{true, true}},
		"those of one":        {Question{Namespace: "ns", Cluster: "c1"}, [2]bool{true, false}},
		"of all namespaces":   {Question{Cluster: "c2"}, [2]bool{false, true}},
		"none in another one": {Question{Namespace: "other", Cluster: "c1"}, [2]bool{false, false}},
	} {
		if got := [2]bool{tc.question.simulates(check("c1")), tc.question.simulates(check("c2"))}; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	ofNodes := &nhcv1.NodeHealthCheck{}
	if (&Question{Cluster: "c1"}).simulates(ofNodes) || !(&Question{}).simulates(ofNodes) {
		t.Error("a NodeHealthCheck is of a Cluster")
	}
}
