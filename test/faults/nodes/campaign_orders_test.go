package nodes

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/faults"
)

// happenings are what can happen while w1 is remediated. One for which there is nothing to happen to does nothing.
var happenings = map[string]func(*environment){
	"the remediator succeeds": func(e *environment) { e.allSay(nhcv1.SucceededCondition, metav1.ConditionTrue) },
	"the remediator fails": func(e *environment) {
		e.allSay(nhcv1.ProcessingCondition, metav1.ConditionFalse)
		e.allSay(nhcv1.SucceededCondition, metav1.ConditionFalse)
	},
	"the time of a step passes": func(e *environment) { e.elapse(timeout) },
	"the node recovers":         func(e *environment) { e.recovers("w1") },
	"the node fails again":      func(e *environment) { e.turns("w1", "False", 10*time.Minute) },
	"the node is deleted":       func(e *environment) { e.loses("w1") },
	"a user deletes the requests": func(e *environment) {
		for _, r := range e.requests() {
			e.deletes(r)
		}
	},
	"the remediator keeps its request": func(e *environment) {
		for _, r := range e.requests() {
			e.holds(r, true)
		}
	},
	"the remediator removes its finalizer": func(e *environment) {
		for _, r := range e.requests() {
			e.holds(r, false)
		}
	},
	"the check is paused":     func(e *environment) { e.pauses(true) },
	"the check is unpaused":   func(e *environment) { e.pauses(false) },
	"the check is deleted":    func(e *environment) { e.deleteCheck("check") },
	"the template is another": func(e *environment) { e.changesTemplate() },
	"the manager restarts":    func(e *environment) { e.late = false; e.must(e.program.Restart()) },
	"the cache is late":       func(e *environment) { e.late = true; e.program.Lag() },
	"the cache catches up":    func(e *environment) { e.late = false; e.program.CatchUp() },
	"another node fails":      func(e *environment) { e.fails("w2") },
}

func (e *environment) allSay(kind string, status metav1.ConditionStatus) {
	for _, r := range e.requests() {
		e.says(r, kind, status)
	}
}

func (e *environment) pauses(does bool) {
	if e.getCheck("check") == nil {
		return
	}
	e.changes("check", func(c *nhcv1.NodeHealthCheck) {
		c.Spec.PauseRequests = nil
		if does {
			c.Spec.PauseRequests = []string{"me"}
		}
	})
}

// changesTemplate makes the check use another template in the place of its first one.
func (e *environment) changesTemplate() {
	if e.getCheck("check") == nil {
		return
	}
	e.safety.ladder, e.safety.exchanged = nil, true // what has started by the old one is no step of the new one
	e.changes("check", func(c *nhcv1.NodeHealthCheck) {
		if c.Spec.RemediationTemplate != nil {
			c.Spec.RemediationTemplate.Kind, c.Spec.RemediationTemplate.Name = templateOf(hard.kind).Kind, hard.name
			return
		}
		c.Spec.EscalatingRemediations[0].RemediationTemplate = refOf(step{kind: replace, name: "other"})
	})
}

// orders are sets of events, all orders of which are tried.
var orders = map[string]struct {
	setUp  func(*environment)
	events []string
}{
	"one template: success, a relapse, a restart and a late cache": {classicAnd, []string{
		"the remediator succeeds", "the node recovers", "the node fails again", "the manager restarts", "the cache is late"}},
	"one template: requests are deleted, and their remediator holds on to them": {classicAnd, []string{
		"a user deletes the requests", "the remediator keeps its request", "the node recovers", "the manager restarts", "the node fails again"}},
	"one template: the check is paused, and its template exchanged": {classicAnd, []string{
		"the check is paused", "the check is unpaused", "the template is another", "the node recovers", "the node fails again"}},
	"two steps: timeouts, failure, success and recovery": {twoSteps, []string{
		"the time of a step passes", "the remediator fails", "the remediator succeeds", "the node recovers", "the manager restarts"}},
	"two steps: timeouts while the cache is late": {twoSteps, []string{
		"the time of a step passes", "the cache is late", "the cache catches up", "the remediator fails", "the node recovers"}},
	"two steps: a node that flaps while requests are deleted": {twoSteps, []string{
		"the node recovers", "the node fails again", "the time of a step passes", "a user deletes the requests", "the manager restarts"}},
	"two steps: a pause and an exchanged template": {twoSteps, []string{
		"the check is paused", "the check is unpaused", "the time of a step passes", "the template is another", "the node recovers"}},
	"two steps: the node and the check are deleted": {twoSteps, []string{
		"the node is deleted", "the check is deleted", "the manager restarts", "the remediator keeps its request", "the time of a step passes"}},
	"two steps: two nodes of the control plane at once": {ofTwoMembers, []string{
		"another node fails", "the node recovers", "the remediator fails", "the cache is late", "the manager restarts"}},
}

func classicAnd(e *environment) {
	e.template(hard.kind, hard.name, false)
	classic(soft)(e)
}

func twoSteps(e *environment) {
	e.template(replace, "other", false)
	ladder(soft, hard)(e)
}

func ofTwoMembers(e *environment) {
	for _, name := range []string{"w1", "w2"} {
		n := e.getNode(name)
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		e.must(e.server.Update(context.Background(), n))
	}
	twoSteps(e)
}

// orderCounts is how many orders were tried of each set.
var orderCounts = map[string]int{}

// everyOrder tries all orders. In whatever order things happen, the rules of safety hold after each reconcile, and when all is healthy
// again nothing is orphaned.
func everyOrder(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(orders)) {
		of := orders[name]
		n := 0
		for range permutations(len(of.events)) {
			n++
		}
		orderCounts[name] = n
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for order := range permutations(len(of.events)) {
				var happens []string
				for _, i := range order {
					happens = append(happens, of.events[i])
				}
				if !faults.Tries(name, happens) {
					continue
				}
				t.Run(strings.Join(happens, ", "), func(t *testing.T) { inOrder(t, of.setUp, happens) })
			}
			t.Logf("%d orders of %d", n, n)
		})
	}
}

func inOrder(t *testing.T, setUp func(*environment), happens []string) {
	e := newEnvironment(t)
	for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
		e.node(name, nil)
	}
	setUp(e)
	e.must(e.program.Start())
	defer func() { _ = e.program.Kill() }()
	e.fails("w1")
	e.awaits("the request", func() bool { return len(e.requests()) == 1 })
	for _, what := range happens {
		happenings[what](e)
		if err := e.program.Walk(10 * time.Second); err != nil {
			t.Fatalf("after %q: %v", what, err)
		}
	}
	e.calms()
}

// calms makes all healthy, and expects that nothing is left.
func (e *environment) calms() {
	e.Helper()
	if e.late {
		happenings["the cache catches up"](e)
	}
	e.pauses(false)
	e.recovers("w1")
	e.recovers("w2")
	e.awaits("that nothing is left", func() bool {
		for _, r := range e.requests() {
			if r.GetDeletionTimestamp() == nil {
				return false
			}
			e.holds(r, false)
		}
		return len(e.requests()) == 0 && len(e.leases()) == 0 && e.atRest()
	})
}

// permutations are all orders of n things.
func permutations(n int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var extend func(head []int) bool
		extend = func(head []int) bool {
			if len(head) == n {
				return yield(slices.Clone(head))
			}
			for i := range n {
				if !slices.Contains(head, i) && !extend(append(slices.Clone(head), i)) {
					return false
				}
			}
			return true
		}
		extend(nil)
	}
}
