package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/health"
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
		s = s.after(n, rules)
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

func TestWhoMayBeDisrupted(t *testing.T) {
	bad, fit := ready(corev1.ConditionFalse, 0), ready(corev1.ConditionTrue, 0)
	for name, tc := range map[string]struct {
		members members
		node    *corev1.Node
		allowed bool
	}{
		"one of three that is down":                                   {members{total: 3, healthy: 2}, bad, true},
		"one of three while another one is down too":                  {members{total: 3, healthy: 1}, bad, false},
		"W3: one of five while another one is being remediated":       {members{total: 5, healthy: 3, busy: map[string]string{"other": ""}}, bad, false},
		"one of five while two are down":                              {members{total: 5, healthy: 3}, bad, true},
		"the one that is being remediated already":                    {members{total: 3, healthy: 2, busy: map[string]string{"n": ""}}, bad, true},
		"W3: one that is being remediated already, as another one is": {members{total: 5, healthy: 3, busy: map[string]string{"n": "", "other": ""}}, bad, false},
		"the only one": {members{total: 1}, bad, false},
		"one of two":   {members{total: 2, healthy: 1}, bad, false},
		"one that is ready, and bad in another way, with all up": {members{total: 3, healthy: 3}, fit, true},
		"one that is ready while another one is down":            {members{total: 3, healthy: 2}, fit, false},
		"none while nobody knows":                                {members{total: 3, healthy: 3, unknown: "a time-out"}, bad, false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := tc.members.forbids(tc.node, "n"); (why == "") != tc.allowed {
				t.Errorf("forbids() = %q, want allowed: %v", why, tc.allowed)
			}
		})
	}
}

func TestAMemberThatIsBeingRemediatedIsNotCountedAsHealthy(t *testing.T) {
	var list []corev1.Node
	for _, name := range []string{"m0", "m1", "m2"} {
		list = append(list, *member(name))
	}
	list = append(list, *node("worker", nil))
	if m := membersOf(list, map[string]string{"m1": "Reboot remedies/m1"}); m.total != 3 || m.healthy != 2 {
		t.Errorf("%d of %d members are healthy, want 2 of 3: m1 is ready, and about to be disrupted", m.healthy, m.total)
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
