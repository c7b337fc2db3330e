package simulate

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestWhatFails(t *testing.T) {
	other := client.ObjectKey{Namespace: "other", Name: "c1"}
	candidates := []candidate{
		{nodeKey{name: "n1"}, "", labels.Set{"rack": "a"}, true},
		{nodeKey{inC1, "n1"}, "w1", labels.Set{"pool": "md-0"}, true},
		{nodeKey{inC1, "n2"}, "w2", labels.Set{"pool": "md-0"}, false},
		{nodeKey{inC1, "n3"}, "w3", labels.Set{"pool": "md-0"}, true},
		{nodeKey{inC1, "n3"}, "w3", labels.Set{"pool": "md-0"}, true}, // two checks select it
		{nodeKey{other, "n4"}, "w3", labels.Set{"pool": "md-1"}, true},
	}
	for fail, want := range map[string]string{
		"2":                   "n1 n1",
		"4":                   "n1 n1 n3 n4",
		"5":                   "the checks select 4 healthy nodes: expected a number from 1 to that",
		"0":                   "expected a number from 1 to that",
		"machine/w1,node/n2":  "n1 n2",
		"node/n2, machine/w2": "n2", // which are one thing
		"machine/w9":          `there is no "machine/w9" that a check selects and whose node is known`,
		"machine/":            `there is no "machine/" that`,
		"node/n1":             `there are several called "node/n1": say which with -n, or by a label`,
		"machine/w3":          `there are several called "machine/w3"`,
		"machine/w1,pool=a":   `there is no "pool=a" that`,
		"pool=md-0":           "n1 n2 n3",
		"rack":                "n1",
		"pool=none":           "it selects no machine or node that a check selects and whose node is known",
		"example.org/pool=x":  "it selects no machine",
		"pool in (md-0":       "expected a number, a label selector, or machine/NAME",
	} {
		nodes, err := chosen(fail, candidates)
		names := make([]string, 0, len(nodes))
		for _, node := range nodes {
			names = append(names, node.name)
		}
		if got := strings.Join(names, " "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--fail %s: %s, %v; want %q", fail, got, err, want)
		}
	}
}

func TestWhyANodeIsNotKnownIsSaid(t *testing.T) {
	w := newFixture(t).workers(2).existing(workersCheck).snapshot()
	w.SetUnseen(inC1, "its kubeconfig is missing", noon)
	_, err := Run(t.Context(), w, question(fails("machine/w3")))
	const want = `--fail "machine/w3": there is no "machine/w3" that a check selects and whose node is known; `
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
		if got != want {
			t.Errorf("--set %s: %s, want %s", text, got, want)
		}
	}
}
