package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestWhatCannotBeReadIsSaidWithItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		want     []string
	}{
		"an unknown field": {
			workersCheck + "---" + strings.Replace(workersCheck, "clusterName: c1", "clusterName: c1\n  maxUnhealty: 40%", 1),
			[]string{"check.yaml, document 2: MachineHealthCheck", `unknown field "spec.maxUnhealty"`},
		},
		"a field of the old version in the new one": {
			strings.Replace(oldVersion, "v1beta1", "v1beta2", 1), []string{"document 1", `unknown field "spec.maxUnhealthy"`},
		},
		"an unknown field of a template that is known": {
			strings.Replace(powerCycle, "retryLimit", "retries", 1),
			[]string{"document 1: HostRemediationTemplate", `unknown field "spec.template.spec.strategy.retries"`},
		},
		"a value of another type": {strings.Replace(workersCheck, "300", "soon", 1), []string{"document 1: MachineHealthCheck", "timeoutSeconds"}},
		"a kind that is no check": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}", []string{"document 1: it is a Pod of v1: expected a MachineHealthCheck"}},
		"a version that is unknown": {
			strings.Replace(workersCheck, "v1beta2", "v1beta9", 1), []string{"document 1: version v1beta9 of MachineHealthCheck is not known here"},
		},
		"no kind":               {"metadata: {name: p}", []string{"document 1: it has no apiVersion or no kind"}},
		"no name":               {strings.Replace(workersCheck, "name: workers", "labels: {}", 1), []string{"document 1: metadata.name is missing"}},
		"no YAML":               {"apiVersion: [", []string{"document 1: it is no YAML"}},
		"nothing but a comment": {"# nothing\n---\n", []string{"check.yaml: there is nothing in it"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(tc.manifest), "check.yaml", "default")
			if err == nil {
				t.Fatal("it was read")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
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
	if err := w.ReadOnly().Get(t.Context(), key, was); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(olderCheck, "timeoutSeconds: 600", "timeoutSeconds: 60", 1)
	m := read(t, changed+"---"+oldVersion+"---"+ladder)
	if _, refused, err := m.apply(t.Context(), w, noon); err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	is, fresh, nodeCheck := &clusterv1.MachineHealthCheck{}, &clusterv1.MachineHealthCheck{}, &nhcv1.NodeHealthCheck{}
	for name, obj := range map[string]client.Object{"everything": is, "workers": fresh} {
		if err := w.ReadOnly().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.ReadOnly().Get(t.Context(), client.ObjectKey{Name: "racks"}, nodeCheck); err != nil {
		t.Fatal(err)
	}
	if is.UID != was.UID || !is.CreationTimestamp.Equal(&was.CreationTimestamp) || is.Labels["team"] != "a" ||
		*is.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds != 60 {
		t.Errorf("the check that was there is not the same one with another spec: %+v", is.ObjectMeta)
	}
	if fresh.UID == "" || !fresh.CreationTimestamp.Time.Equal(noon) || fresh.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim {
		t.Errorf("the new check is not one that was made now and claimed: %+v", fresh.ObjectMeta)
	}
	if c := fresh.Spec.Checks; len(c.UnhealthyNodeConditions) != 1 ||
		*c.UnhealthyNodeConditions[0].TimeoutSeconds != 300 || *c.NodeStartupTimeoutSeconds != 600 {
		t.Errorf("the old version was not converted: %+v", fresh.Spec)
	}
	if len(nodeCheck.Spec.UnhealthyConditions) != 2 || nodeCheck.Spec.UnhealthyConditions[0].Duration.Duration != 5*time.Minute {
		t.Errorf("the defaults were not set: %+v", nodeCheck.Spec.UnhealthyConditions)
	}
}

func TestWhatOthersHavePutOnACheckStaysWhenItIsApplied(t *testing.T) {
	const bare = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: workers%s}
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]}
`
	claimed := map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	for name, tc := range map[string]struct {
		there     map[string]string
		manifest  string // its annotations
		notes     string
		begin     int
		mostAtOne int
	}{
		"a pause":             {map[string]string{clusterv1.PausedAnnotation: "maintenance"}, "", "It is paused by its annotation", 0, 0},
		"a claim":             {claimed, "", "It keeps annotations that the manifest does not mention: cluster.x-k8s.io/paused: kubemend", 3, 3},
		"no claim":            {nil, "", "It is simulated as if it were claimed", 3, 3},
		"a limit":             {map[string]string{mendv1.MaxInFlightAnnotation: "1"}, "", "kubemend.io/max-in-flight: 1", 3, 1},
		"one that is changed": {map[string]string{mendv1.MaxInFlightAnnotation: "1"}, `, annotations: {kubemend.io/max-in-flight: "2"}`, "as if", 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).workers(5).existing(fmt.Sprintf(bare, ""))
			is := s.objs[len(s.objs)-1].(*clusterv1.MachineHealthCheck)
			is.Annotations = tc.there
			a := s.run(fmt.Sprintf(bare, tc.manifest), question(func(q *Question) { q.Fail, q.Horizon = "name in (w1,w2,w3)", 2*time.Hour }))
			if notes := strings.Join(a.Manifest, "\n"); !strings.Contains(notes, tc.notes) || strings.Contains(notes, "as if it were claimed") && tc.there[clusterv1.PausedAnnotation] != "" {
				t.Errorf("of the manifest it is said: %s; want %q", notes, tc.notes)
			}
			if a.Summary.Begun != tc.begin || a.Summary.AtOnce != tc.mostAtOne {
				t.Errorf("%d remediations begin, %d at once; want %d and %d", a.Summary.Begun, a.Summary.AtOnce, tc.begin, tc.mostAtOne)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"a selector of another cluster": {
			strings.Replace(workersCheck, "pool: md-0", "cluster.x-k8s.io/cluster-name: c2", 1), "selects another cluster, c2",
		},
		"a start-up timeout that is too short": {
			strings.Replace(workersCheck, "checks:", "checks:\n    nodeStartupTimeoutSeconds: 10", 1), "neither 0 nor at least 30",
		},
		"a range that is none": {
			strings.Replace(workersCheck, "unhealthyLessThanOrEqualTo: 40%", `unhealthyInRange: "3-5"`, 1), "unhealthyInRange",
		},
		"a limit of the annotation":            {strings.Replace(oneAtATime, `"1"`, "few", 1), "kubemend would begin nothing"},
		"a ladder with two steps of one order": {strings.Replace(ladder, "order: 2", "order: 1", 1), "more than one has the order 1"},
		"a step that is too short":             {strings.Replace(ladder, "timeout: 10m", "timeout: 10s", 1), "10s is less than 1m"},
		"two thresholds":                       {strings.Replace(ladder, "minHealthy: 51%", "minHealthy: 51%\n  maxUnhealthy: 2", 1), "at the same time"},
		"a threshold that is none":             {strings.Replace(ladder, "minHealthy: 51%", "minHealthy: most", 1), "minHealthy"},
		"no template at all":                   {ladder[strings.LastIndex(ladder, "---")+4 : strings.Index(ladder, "  escalating")], "must be set"},
		"a selector that cannot be parsed": {
			strings.Replace(ladder, "matchLabels: {rack: a}", "matchExpressions: [{key: a, operator: Near}]", 1), "Invalid selector",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(t, tc.manifest)
			_, refused, err := m.apply(t.Context(), newFixture(t).workers(1).nodesHere(1).snapshot(), noon)
			if err != nil || !strings.Contains(strings.Join(refused, "\n"), tc.want) {
				t.Errorf("refused because of %q, %v; want %q", refused, err, tc.want)
			}
		})
	}
}

func TestWhatFails(t *testing.T) {
	crowded := newFixture(t).workers(2).nodesHere(1)
	twin := crowded.objs[1].DeepCopyObject().(*clusterv1.Machine) // w1, in a namespace of its own
	twin.Namespace = "other"
	crowded.objs = append(crowded.objs, twin)
	crowded.machine("hidden", "MachineSet", "md-0", func(m *clusterv1.Machine) { m.Spec.ClusterName = "c2" })
	crowded.machine("young", "MachineSet", "md-1", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
	crowded.machine("bereft", "MachineSet", "md-2", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node-that-was" })
	crowded.nodes = append(crowded.nodes, *aNode("n1", nil), *aNode("w2", nil))
	crowded.nodes[len(crowded.nodes)-2].UID = "another n1"
	in := func(namespace, fail string) error {
		w := crowded.snapshot()
		w.SetUnseen(client.ObjectKey{Namespace: "default", Name: "c2"}, "its kubeconfig is missing", noon)
		_, err := Run(t.Context(), w, question(func(q *Question) { q.Fail, q.Namespace = fail, namespace }))
		return err
	}
	for fail, want := range map[string]string{
		"machine/w9":            "--fail machine/w9: there is no machine called w9",
		"machine/w1,node/n9":    "there is no node called n9 where nodes are known: those of cluster default/c2 are not",
		"machine/w2,node/w2":    "", // which are two different things
		"machine/w1,node/w1":    "there is no node called w1",
		"machine/young":         "machine young has no node",
		"machine/bereft":        "the node node-that-was of machine bereft is not there",
		"machine/hidden":        "the nodes of cluster default/c2, which machine hidden is of, are unknown: its kubeconfig is missing",
		"name=hidden":           "it selects no machine whose node is known: the nodes of cluster default/c2",
		"name in (hidden,w1)":   "",
		"node/n1":               "there are several nodes called n1: say which by its machine/NAME, or by a label: of cluster default/c1, of the management cluster",
		"pool=none":             "it selects no machine that has a node, and no node of the management cluster",
		"machine/w1,pool=a":     "it selects no machine",
		"pool in (md-0":         "expected a label selector, or machine/NAME",
		"example.org/pool=x":    "it selects no machine",
		"node/node-w1,node/n-1": "there is no node called n-1",
	} {
		if err := in("default", fail); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--fail %s: %v, want %q", fail, err, want)
		}
	}
	if err := in("", "machine/w1"); err == nil || !strings.Contains(err.Error(), "called w1 in several namespaces: say which with -n: default, other") {
		t.Errorf("of two machines one was chosen: %v", err)
	}
}
