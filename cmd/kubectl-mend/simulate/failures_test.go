package simulate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestWhatFails(t *testing.T) {
	other := client.ObjectKey{Namespace: "other", Name: "c1"}
	candidates := []candidate{
		{nodeKey{name: "n1"}, []string{"node/n1"}, labels.Set{"rack": "a"}, true},
		{nodeKey{inC1, "n1"}, []string{"node/n1", "machine/w1", "failuredomain/b07"}, labels.Set{"pool": "md-0"}, true},
		{nodeKey{inC1, "n2"}, []string{"node/n2", "machine/w2", "failuredomain/b07"}, labels.Set{"pool": "md-0"}, false},
		{nodeKey{inC1, "n3"}, []string{"node/n3", "machine/w3", "failuredomain/"}, labels.Set{"pool": "md-0"}, true},
		{nodeKey{inC1, "n3"}, []string{"node/n3", "machine/w3", "failuredomain/"}, labels.Set{"pool": "md-0"}, true}, // of a second check
		{nodeKey{other, "n4"}, []string{"node/n4", "machine/w3"}, labels.Set{"pool": "md-1"}, true},
	}
	for fail, want := range map[string]string{
		"2":                   "n1 n1",
		"4":                   "n1 n1 n3 n4",
		"5":                   "expected at least 1 and at most 4, the number of healthy nodes that the checks select",
		"0":                   "expected at least 1 and at most ",
		"machine/w1,node/n2":  "n1 n2",
		"node/n2, machine/w2": "n2", // the same node
		"failuredomain/b07":   "n1 n2",
		"failuredomain/b08":   `nothing that a check selects and whose node is known is called "failuredomain/b08"`,
		"failuredomain/":      `nothing that a check selects and whose node is known is called "failuredomain/"`,
		"machine/w9":          `nothing that a check selects and whose node is known is called "machine/w9"`,
		"machine/":            `nothing that a check selects and whose node is known is called "machine/"`,
		"node/n1":             `there are several called "node/n1": say which with -n, or by a label`,
		"machine/w3":          `there are several called "machine/w3"`,
		"machine/w1,pool=a":   `nothing that a check selects and whose node is known is called "pool=a"`,
		"pool=md-0":           "n1 n2 n3",
		"rack":                "n1",
		"pool=none":           "it selects no machine or node that a check selects and whose node is known",
		"example.org/pool=x":  "it selects no machine",
		"pool in (md-0":       "expected a number, a label selector, or machine/NAME",
	} {
		nodes, err := chosen(fail, candidates, nil)
		names := make([]string, 0, len(nodes))
		for _, node := range nodes {
			names = append(names, node.name)
		}
		if got := strings.Join(names, " "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--fail %s: %s, %v; want %q", fail, got, err, want)
		}
	}
}

func TestWhatFailsAddsUp(t *testing.T) {
	answer := newFixture(t).workers(5).run(workersCheck, question(func(q *Question) {
		q.Fail, q.Set = []string{"machine/w1", "name in (w1,w2)", "1"}, []string{"maxUnhealthy=60%"}
	}))
	must.Is(t, 3, answer.Remediated, "w1, w2, and one more:\n%s", printed(t, answer))
}

// The user may not list Namespaces, so simulate cannot know what the policy selects.
func TestAPolicyWhoseNamespacesAreUnreadIsLeftOut(t *testing.T) {
	policy := strings.Replace(window, "selector: {}", "selector: {namespaces: {matchLabels: {tier: prod}}}", 1)
	w := newFixture(t).workers(5).snapshot()
	w.Forbid(corev1.SchemeGroupVersion.WithKind("Namespace"), "",
		apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no rights")))
	answer := runIn(t, w, policy+"---"+workersCheck, question(fails("1")))
	must.Is(t, 1, len(answer.Starts), "%s", printed(t, answer))
	if says := strings.Join(answer.Assumptions, "\n"); !strings.Contains(says, "which selects by Namespaces, is left out: ") {
		t.Errorf("it is assumed: %s", says)
	}
}

func TestWhyANodeIsNotKnownIsSaid(t *testing.T) {
	w := newFixture(t).workers(2).existing(workersCheck).snapshot()
	w.SetUnseen(inC1, "its kubeconfig is missing", noon)
	_, err := Run(t.Context(), w, question(fails("machine/w3")))
	const want = `--fail "machine/w3": nothing that a check selects and whose node is known is called "machine/w3"; `
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}
}

func TestALimitReplacesTheOneThatExcludesIt(t *testing.T) {
	for text, want := range map[string]string{
		"maxUnhealthy=40%":       "40%,,<nil>,40%",
		"unhealthyInRange=[1-3]": "<nil>,[1-3],1,2",
		"minHealthy=5":           "3,[0-1],5,<nil>",
	} {
		machines, nodes := &clusterv1.MachineHealthCheck{}, &nhcv1.NodeHealthCheck{}
		trigger := &machines.Spec.Remediation.TriggerIf
		trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange = ptr.To(intstr.FromInt32(3)), "[0-1]"
		nodes.Spec.MinHealthy, nodes.Spec.MaxUnhealthy = ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(2))
		name, value, _ := strings.Cut(text, "=")
		limit(machines, name, value)
		limit(nodes, name, value)
		got := fmt.Sprintf("%v,%s,%v,%v", trigger.UnhealthyLessThanOrEqualTo, trigger.UnhealthyInRange, nodes.Spec.MinHealthy, nodes.Spec.MaxUnhealthy)
		must.Is(t, want, got, "--set %s:", text)
	}
}

func TestWhatCannotBeReadIsSaidWithItsPlace(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"an unknown field": {
			workersCheck + "---" + strings.Replace(workersCheck, "clusterName: c1", "clusterName: c1\n  maxUnhealty: 40%", 1),
			`check.yaml: MachineHealthCheck workers: unknown field "spec.maxUnhealty"`,
		},
		"an unknown field of a template that is known": {
			strings.Replace(powerCycle, "retryLimit", "retries", 1),
			`HostRemediationTemplate reboot: unknown field "spec.template.spec.strategy.retries"`,
		},
		"a value of another type": {strings.Replace(workersCheck, "300", "soon", 1), "timeoutSeconds"},
		"a kind that is no check": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}", "check.yaml: Pod p: expected a MachineHealthCheck"},
		"a version that is unknown": {
			strings.Replace(workersCheck, "v1beta2", "v1beta1", 1), "MachineHealthCheck workers: version v1beta1 is not known here",
		},
		"no kind":                      {"metadata: {name: p}", "Object 'Kind' is missing"},
		"no name":                      {strings.Replace(workersCheck, "name: workers", "labels: {}", 1), "MachineHealthCheck : metadata.name is missing"},
		"no YAML":                      {"apiVersion: [", "read check.yaml: error parsing"},
		"a window":                     {strings.Replace(window, "0 12 * * *", "noon", 1), `RemediationPolicy kubemend-system/racks: spec.windows[0].schedule: "noon"`},
		"an override that is over":     {strings.Replace(overrides, "12:20", "11:20", 1), "default/swap: it would have no effect (Ended)"},
		"an override that is too long": {strings.Replace(overrides, "01T13", "10T13", 1), "(TooLong): spec.until: must be within seven"},
		"nothing but a comment":        {"# nothing\n---\n", "check.yaml: there is nothing in it"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Read(strings.NewReader(tc.manifest), "check.yaml", "default")
			if err == nil {
				_, err = Run(t.Context(), newFixture(t).snapshot(), question(func(q *Question) { q.Manifest = m }))
			}
			if err == nil {
				t.Fatal("it was read")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q does not say %q", err, tc.want)
			}
		})
	}
}

func TestAManifestIsAppliedAsAnAPIServerWould(t *testing.T) {
	s := newFixture(t).workers(1).existing(olderCheck)
	s.objs[len(s.objs)-1].SetLabels(map[string]string{"team": "a"})
	w := s.snapshot()
	key := client.ObjectKey{Namespace: "default", Name: "everything"}
	was := &clusterv1.MachineHealthCheck{}
	must.Do(t, w.Get(t.Context(), key, was))
	changed := strings.Replace(olderCheck, "timeoutSeconds: 600", "timeoutSeconds: 60", 1)
	runIn(t, w, changed+"---"+workersAs("", "")+"---"+ladder, question(func(q *Question) { q.Horizon = 0 }))
	is, fresh, nodeCheck := &clusterv1.MachineHealthCheck{}, &clusterv1.MachineHealthCheck{}, &nhcv1.NodeHealthCheck{}
	for name, obj := range map[string]client.Object{"everything": is, "workers": fresh} {
		must.Do(t, w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj))
	}
	must.Do(t, w.Get(t.Context(), client.ObjectKey{Name: "racks"}, nodeCheck))
	if is.UID != was.UID || !is.CreationTimestamp.Equal(&was.CreationTimestamp) || is.Labels["team"] != "a" ||
		*is.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds != 60 {
		t.Errorf("the check that was there is not the same one with another spec: %+v", is.ObjectMeta)
	}
	if fresh.UID == "" || !fresh.CreationTimestamp.Time.Equal(noon) || fresh.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim {
		t.Errorf("the new check is not one that was made now and claimed: %+v", fresh.ObjectMeta)
	}
	if len(nodeCheck.Spec.UnhealthyConditions) != 2 || nodeCheck.Spec.UnhealthyConditions[0].Duration.Duration != 5*time.Minute {
		t.Errorf("the defaults were not set: %+v", nodeCheck.Spec.UnhealthyConditions)
	}
}

func TestWhatOthersHavePutOnACheckStaysWhenItIsApplied(t *testing.T) {
	isClaimed := map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	for name, tc := range map[string]struct {
		there    map[string]string
		manifest string // the annotations in the manifest
		claimed  bool   // the answer assumes a claim
		starts   int
	}{
		"a pause":             {map[string]string{clusterv1.PausedAnnotation: "maintenance"}, "", false, 0},
		"a claim":             {isClaimed, "", false, 3},
		"no claim":            {nil, "", true, 3},
		"one that is changed": {map[string]string{clusterv1.PausedAnnotation: "maintenance"}, claimed, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).workers(5).existing(workersAs("", ""))
			is := s.objs[len(s.objs)-1].(*clusterv1.MachineHealthCheck)
			is.Annotations = tc.there
			answer := s.run(workersAs(tc.manifest, ""), question(fails("name in (w1,w2,w3)")))
			if says := strings.Join(answer.Assumptions, "\n"); strings.Contains(says, "workers is claimed: ") != tc.claimed {
				t.Errorf("it is assumed: %s", says)
			}
			if len(answer.Starts) != tc.starts {
				t.Errorf("%d remediations start, want %d", len(answer.Starts), tc.starts)
			}
		})
	}
}

// definition adds a CustomResourceDefinition with labels.
func (s *fixture) definition(name string, labelled map[string]string) *fixture {
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	s.objs = append(s.objs, crd)
	return s
}

func TestTheManagersThatRunDecide(t *testing.T) {
	machines, nodes := workers(5), nodesHere(3)
	unclaimed := strings.Replace(workersCheck, "  annotations: {cluster.x-k8s.io/paused: kubemend}\n", "", 1)
	for name, tc := range map[string]struct {
		fixture  func(*fixture) *fixture
		managers map[string]string // announcements by namespace
		manifest string
		fail     string
		says     string // a part of the page, without line breaks
		starts   int
	}{
		"no manager": {
			machines, nil, workersCheck, "machine/w1", "No manager of kubemend runs, or only one in teardown: one with default settings is assumed", 1,
		},
		"one that says nothing": {
			machines, map[string]string{"a": ``}, workersCheck, "machine/w1", "", 1,
		},
		"one that leaves": {
			machines, map[string]string{"a": `{"teardown":true}`}, workersCheck, "machine/w1", "one with default settings is assumed", 1,
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
			answer := s.run(tc.manifest, question(func(q *Question) { q.Fail, q.Takes = []string{tc.fail}, 5*time.Minute }))
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
		w.Forbid(clusterv1.GroupVersion.WithKind("Machine"), "mgmt", errors.New("the user may not read it"))
		answer := runIn(t, w, ladder, question(func(q *Question) { q.Fail, q.Takes = []string{fail}, 5*time.Minute }))
		blocked := len(answer.NotStarted) == 1 && answer.NotStarted[0].Reason == explain.MissingPermission
		if len(answer.Starts) != starts || blocked != (starts == 0) {
			t.Errorf("--fail %s: %d remediations start, want %d:\n%s", fail, len(answer.Starts), starts, printed(t, answer))
		}
	}
}

// manager adds a running manager with its binding and this announcement.
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
		must.Is(t, tc.want, [2]bool{tc.question.simulates(check("c1")), tc.question.simulates(check("c2"))}, "%s:", name)
	}
	ofNodes := &nhcv1.NodeHealthCheck{}
	if (&Question{Cluster: "c1"}).simulates(ofNodes) || !(&Question{}).simulates(ofNodes) {
		t.Error("a NodeHealthCheck is of a Cluster")
	}
}
