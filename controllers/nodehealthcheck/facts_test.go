package nodehealthcheck

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func ready(status corev1.ConditionStatus, at time.Duration) *corev1.Node {
	n := node("n", nil)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(at))}}
	return n
}

// dueOf plays the statuses of a node's Ready condition, one after the other, and returns when it is unhealthy after the last one; -1 if
// it is not on its way there.
func dueOf(rules []health.Rule, played ...*corev1.Node) time.Duration {
	var s streaks
	for _, n := range played {
		s = s.after(n, rules, false)
	}
	v := health.Judge(factsOf(played[len(played)-1], s, nil), health.Policy{Rules: rules}, epoch)
	if len(v.Findings) == 0 {
		return -1
	}
	return v.Findings[0].Due.Sub(epoch)
}

func TestStatusesOfAConditionCountTogether(t *testing.T) {
	const bad, unknown, good = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	rule := func(status corev1.ConditionStatus, d time.Duration) health.Rule {
		return health.Rule{Source: health.OnNode, Type: "Ready", Status: string(status), For: d}
	}
	both := []health.Rule{rule(bad, 300*time.Second), rule(unknown, 300*time.Second)}
	uneven := []health.Rule{rule(bad, 900*time.Second), rule(unknown, 300*time.Second)}
	for name, tc := range map[string]struct {
		rules []health.Rule
		nodes []*corev1.Node
		want  time.Duration
	}{
		"one status counts from its transition": {both, []*corev1.Node{ready(bad, 0)}, 300 * time.Second},
		"W26: a turn from one bad status to the other starts nothing anew": {
			both, []*corev1.Node{ready(unknown, 0), ready(bad, 299*time.Second)}, 300 * time.Second,
		},
		"W26: nor do many": {
			both, []*corev1.Node{ready(unknown, 0), ready(bad, 100*time.Second), ready(unknown, 200*time.Second), ready(bad, 290*time.Second)}, 300 * time.Second,
		},
		"a good one in between does": {
			both, []*corev1.Node{ready(unknown, 0), ready(good, 100*time.Second), ready(bad, 200*time.Second)}, 500 * time.Second,
		},
		"what the longer duration tolerates is not cut short by the shorter one": {
			uneven, []*corev1.Node{ready(bad, 0), ready(unknown, 800*time.Second)}, 900 * time.Second,
		},
		"nor longer than the present status alone would take": {
			uneven, []*corev1.Node{ready(bad, 0), ready(unknown, 100*time.Second)}, 400 * time.Second,
		},
		"a clock that was turned back starts anew": {
			both, []*corev1.Node{ready(unknown, 100*time.Second), ready(bad, 0)}, 300 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dueOf(tc.rules, tc.nodes...); got != tc.want {
				t.Errorf("unhealthy after %v, want %v", got, tc.want)
			}
		})
	}
}

func TestANodeThatNeverReported(t *testing.T) {
	rules := []health.Rule{{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 300 * time.Second}}
	silent := node("n", nil)
	silent.CreationTimestamp, silent.Status.Conditions = metav1.NewTime(epoch), nil
	if got := dueOf(rules, silent); got != 300*time.Second {
		t.Errorf("W27: unhealthy after %v, want 300 s after it was created", got)
	}
	silent.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}
	if got := dueOf(rules, silent); got != 300*time.Second {
		t.Errorf("W27: one that says anything but Ready is unhealthy after %v, want 300 s", got)
	}
	other := []health.Rule{{Source: health.OnNode, Type: "DiskBroken", Status: "True", For: time.Second}}
	if got := dueOf(other, silent); got != -1 {
		t.Errorf("a condition that is missing says nothing; unhealthy after %v", got)
	}
}

// The rule itself has its table in package controlplane.
func TestWhoMayBeDisrupted(t *testing.T) {
	const reboot = "Reboot remedies/m1"
	for name, tc := range map[string]struct {
		ready string // of which members the node is ready, in the order of their names: m0, m1, ...
		of    others
		want  string // what forbids that m0 is disrupted
	}{
		"the only one may be": {"n", others{}, ""},
		"so may one of two":   {"ny", others{}, ""},
		"one of two while the other one is being remediated":     {"nn", others{busy: map[string]string{"m1": reboot}}, "m1 is being remediated (" + reboot + ")"},
		"one of three that is down":                              {"nyy", others{}, ""},
		"one of three that is down, as another one is":           {"nny", others{}, ""},
		"one that is ready, and bad in another way, with all up": {"yyy", others{}, ""},
		"one that is ready while another one is down":            {"yny", others{}, "without it 1 of 3 control-plane nodes are healthy, and 2 are needed"},
		"W3: one of five while another one is being remediated":  {"nyyyy", others{busy: map[string]string{"m1": reboot}}, "m1 is being remediated (" + reboot + ")"},
		"the one that is being remediated already":               {"nyy", others{busy: map[string]string{"m0": "Reboot remedies/m0"}}, ""},
		"W3: one that is being remediated already, as another one is": {
			"nnyyy", others{busy: map[string]string{"m0": "Reboot remedies/m0", "m1": reboot}}, "m1 is being remediated (" + reboot + ")",
		},
		"one while a node that is gone is being remediated": {"nyy", others{busy: map[string]string{"m9": "Reboot remedies/m9"}}, "m9 is being remediated (Reboot remedies/m9)"},
		"one while another one's Machine is being replaced": {
			"nyy", others{replaced: map[string]replacement{"m1": {"Machine ns/m1", epoch}}}, "m1 is being remediated (Machine ns/m1)",
		},
		"one while that has taken very long":           {"nyy", others{replaced: map[string]replacement{"m1": {"Machine ns/m1", epoch.Add(-time.Hour)}}}, ""},
		"one that is ready while a fourth joins":       {"yyy", others{joining: []string{"m3"}}, "without it 2 of 4 control-plane nodes are healthy, and 3 are needed"},
		"one that is ready when the fourth has a node": {"yyyy", others{joining: []string{"m3"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []corev1.Node{*node("worker", nil)}
			for i, is := range tc.ready {
				n := member(fmt.Sprintf("m%d", i))
				if is == 'n' {
					n.Status.Conditions = ready(corev1.ConditionFalse, 0).Status.Conditions
				}
				nodes = append(nodes, *n)
			}
			if why := membersOf(nodes, tc.of).forbids("m0", epoch); why != tc.want {
				t.Errorf("got %q, want %q", why, tc.want)
			}
		})
	}
	if why := (members{unknown: "a time-out"}).forbids("m0", epoch); why != "the control plane could not be looked at: a time-out" {
		t.Errorf("while nobody knows it says %q", why)
	}
}

func TestTerminatingNodes(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false, corev1.ConditionUnknown: false} {
		n := node("n", nil)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: status})
		if got := terminating(n); got != want {
			t.Errorf("W25: Terminating=%s: %v, want %v", status, got, want)
		}
	}
}
