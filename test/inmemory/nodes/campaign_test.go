package nodes

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/faults"
)

func newCampaign(t *testing.T) *environment {
	e := newEnvironment(t, mode{}, "remediators", logr.Discard())
	e.program.Restarts = true
	e.safety = &safety{environment: e, seen: map[string]bool{}, stopped: map[string]string{}, steps: map[string]int{}}
	e.program.AfterReconcile = e.safety.check
	return e
}

// outcome is the visible result of a tale.
type outcome struct {
	Made     []string // all requests in the order of their creation
	Left     []string // requests that still exist
	Leases   []string // the nodes with leases
	Statuses map[string]string
}

// run is one run of a tale.
type run struct {
	outcome
	writes     []faults.Write
	struck     bool
	reconciles int
}

// play plays a tale; befall may make something fail.
func play(t *testing.T, of tale, befall func(*environment)) run {
	t.Helper()
	e := newCampaign(t)
	e.workers(3)
	of.setUp(e)
	befall(e)
	e.must(e.program.Start())
	defer func() { _ = e.program.Kill() }()
	e.must(e.program.Settle())
	happens := of.happens
	if happens == nil {
		happens = escalates(len(of.made))
	}
	happens(e)
	return e.result()
}

func (e *environment) result() run {
	r := run{reconciles: e.program.Reconciles}
	r.writes, r.struck = e.program.Writes.Done()
	r.Leases, r.Statuses = slices.Collect(maps.Keys(e.leases())), map[string]string{}
	for _, w := range r.writes {
		if isRequest := slices.ContainsFunc(remediators, func(r remediator) bool { return r.kind.Kind == w.Kind }); isRequest && w.Verb == "create" {
			r.Made = append(r.Made, short(w.Kind)+"/"+w.Name)
		}
	}
	for _, req := range e.requests() {
		r.Left = append(r.Left, named(req))
	}
	for _, name := range []string{"check", "a", "b"} {
		if c := e.getCheck(name); c != nil {
			st := c.Status
			r.Statuses[name] = fmt.Sprintf("%s, %d of %d healthy, %d listed", st.Phase, *st.HealthyNodes, *st.ObservedNodes, len(st.UnhealthyNodes))
		}
	}
	return r
}

// kindsMade returns the kinds of requests.
func kindsMade(made []string) []string {
	var kinds []string
	for _, m := range made {
		kinds = append(kinds, strings.SplitN(m, "/", 2)[0])
	}
	return kinds
}

func undisturbed(*environment) {}

// writesTried is how many writes of all tales there are to fail.
var writesTried atomic.Int64

// everyWrite tries all failing writes and all kills. The end of a remediation is always the same: each step was requested once, nothing is
// orphaned, and the lease is released.
func everyWrite(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(tales)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := tales[name]
			plain := play(t, of, undisturbed)
			if diff := cmp.Diff(kindsMade(of.made), kindsMade(plain.Made)); diff != "" || len(plain.Left) > 0 || len(plain.Leases) > 0 {
				t.Fatalf("undisturbed: %+v (-want +got):\n%s", plain.outcome, diff)
			}
			same := func(t *testing.T, got run) {
				t.Helper()
				if of.either && len(got.Made) == len(plain.Made) {
					got.Made = plain.Made
				}
				if diff := cmp.Diff(plain.outcome, got.outcome); diff != "" {
					t.Errorf("the end is another one (-undisturbed +got):\n%s\nwrites: %v", diff, got.writes)
				}
			}
			for nth := 1; nth <= len(plain.writes); nth++ {
				for _, fate := range faults.Fates {
					if !faults.Tries(name, nth, fate) {
						continue
					}
					t.Run(fmt.Sprintf("%s (write %d) is %s", plain.writes[nth-1], nth, fate), func(t *testing.T) {
						got := play(t, of, func(e *environment) { e.program.Writes.Choose(nth, fate) })
						if !got.struck {
							t.Error("the write did not come")
						}
						same(t, got)
					})
				}
			}
			for nth := 1; nth <= plain.reconciles; nth++ {
				if !faults.Tries(name, "kill", nth) {
					continue
				}
				t.Run(fmt.Sprintf("the manager is killed after reconcile %d", nth), func(t *testing.T) {
					same(t, play(t, of, func(e *environment) { e.killsAfter(nth) }))
				})
			}
			// The number of reconciles is not counted: it depends on whether a cache is in sync before or after a reconcile, which differs
			// between runs.
			writesTried.Add(int64(len(plain.writes)))
		})
	}
}

// killsAfter kills the manager after the nth reconcile, and starts another.
func (e *environment) killsAfter(nth int) {
	check := e.program.AfterReconcile
	e.program.AfterReconcile = func() error {
		if err := check(); err != nil {
			return err
		}
		if e.program.Reconciles == nth {
			return e.program.Restart()
		}
		return nil
	}
}

// happenings can happen while w1 is remediated. A happening whose object does not exist does nothing.
var happenings = map[string]func(*environment){
	"the remediator succeeds": func(e *environment) { e.allSay(nhcv1.SucceededCondition, metav1.ConditionTrue) },
	"the remediator fails": func(e *environment) {
		e.allSay(nhcv1.ProcessingCondition, metav1.ConditionFalse)
		e.allSay(nhcv1.SucceededCondition, metav1.ConditionFalse)
	},
	"the time of a step passes": func(e *environment) { e.elapse(step) },
	"the node recovers":         func(e *environment) { e.recovers("w1") },
	"the node fails again": func(e *environment) {
		if e.getNode("w1") != nil {
			e.reports("w1", "Ready", "False")
			e.leaps(long)
		}
	},
	"the node is deleted":                  func(e *environment) { e.loses("w1") },
	"a user deletes the requests":          func(e *environment) { e.each(func(r *unstructured.Unstructured) { e.deletes(r) }) },
	"the remediator keeps its request":     func(e *environment) { e.each(func(r *unstructured.Unstructured) { e.holds(r, true) }) },
	"the remediator removes its finalizer": func(e *environment) { e.each(func(r *unstructured.Unstructured) { e.holds(r, false) }) },
	"the check is paused":                  func(e *environment) { e.pauses(true) },
	"the check is unpaused":                func(e *environment) { e.pauses(false) },
	"the check is deleted":                 func(e *environment) { e.deleteCheck("check") },
	"the template is another":              func(e *environment) { e.changesTemplate() },
	"the manager restarts":                 func(e *environment) { e.late = false; e.must(e.program.Restart()) },
	"the cache is late":                    func(e *environment) { e.late = true; e.program.Lag() },
	"the cache catches up":                 func(e *environment) { e.late = false; e.program.CatchUp() },
	"another node fails":                   func(e *environment) { e.fails("w2") },
}

func (e *environment) each(do func(*unstructured.Unstructured)) {
	for _, r := range e.requests() {
		do(r)
	}
}

func (e *environment) allSay(kind string, status metav1.ConditionStatus) {
	e.each(func(r *unstructured.Unstructured) { e.says(r, kind, status) })
}

func (e *environment) pauses(does bool) {
	if e.getCheck("check") == nil {
		return
	}
	if does {
		e.change("check", pausedBy("me"))
	} else {
		e.change("check", pausedBy())
	}
}

// changesTemplate replaces the first template of the check.
func (e *environment) changesTemplate() {
	if e.getCheck("check") == nil {
		return
	}
	e.safety.ladder, e.safety.exchanged = nil, true // a request of the old template is no step of the new one
	e.change("check", func(c *nhcv1.NodeHealthCheck) {
		if c.Spec.RemediationTemplate != nil {
			c.Spec.RemediationTemplate = ptr.To(hard.ref(e))
			return
		}
		c.Spec.EscalatingRemediations[0].RemediationTemplate = rung{by: replace, name: "other"}.ref(e)
	})
}

// orders are sets of happenings; each set is tried in every order.
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
	hard.make(e)
	classic(soft)(e)
}

func twoSteps(e *environment) {
	e.template(replace, "other")
	ladder(soft, hard)(e)
}

func ofTwoMembers(e *environment) {
	for _, name := range []string{"w1", "w2"} {
		e.changeNode(name, labelled("node-role.kubernetes.io/control-plane", ""))
	}
	twoSteps(e)
}

// everyOrder tries all orders. In each of them the safety rules hold after each reconcile, and nothing is orphaned when everything is
// healthy again.
func everyOrder(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(orders)) {
		of := orders[name]
		all := slices.Collect(faults.Orders(of.events))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, happens := range all {
				if !faults.Tries(name, happens) {
					continue
				}
				t.Run(strings.Join(happens, ", "), func(t *testing.T) { inOrder(t, of.setUp, happens) })
			}
			t.Logf("%d orders", len(all))
		})
	}
}

func inOrder(t *testing.T, setUp func(*environment), happens []string) {
	e := newCampaign(t)
	e.workers(5)
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

// calms makes everything healthy, and expects that nothing is left.
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

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // thousands of small environments: collecting less often saves a fifth of the time
	os.Exit(m.Run())
}

// This test runs the campaigns and documents their figures.
func TestFaultsOfNodeHealthChecks(t *testing.T) {
	t.Run("whatever fails, the end is the same", everyWrite)
	t.Run("in every order, the rules hold", everyOrder)
	tried := 0
	for _, of := range orders {
		tried += len(slices.Collect(faults.Orders(of.events)))
	}
	faults.Document(t, "nodes", fmt.Sprintf("%d tales: %d writes that failed, %d kills of the manager; %d sets of events in %d orders.",
		len(tales), 2*writesTried.Load(), writesTried.Load(), len(orders), tried))
}
