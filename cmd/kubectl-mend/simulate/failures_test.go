package simulate

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
