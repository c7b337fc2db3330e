package machines

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/faults"
)

// play plays a tale and returns its environment.
func (t tale) play(on *testing.T, disturb func(*environment)) *environment {
	on.Helper()
	e := newEnvironment(on)
	t.begin(e)
	disturb(e)
	e.start()
	e.settle(wait)
	for _, event := range t.events {
		e.followRecords()
		event(e)
		e.enqueueAll()
		e.settle(wait)
	}
	e.afterOutages()
	e.isRight()
	e.noOrphans()
	return e
}

// noOrphans checks that a check needs every remaining request, and that no machine without a check is marked unhealthy.
func (e *environment) noOrphans() {
	e.t.Helper()
	for _, m := range e.allMachines() {
		check, req := e.checkOf(m), e.requestOf(m.Name)
		maker, _ := remediationrequest.MadeBy(req)
		if req.GetUID() != "" && (check == nil || check.Name != maker.Name || !check.Spec.Remediation.TemplateRef.IsDefined()) {
			e.t.Errorf("the request for machine %s is orphaned: %s", m.Name, e.record.history())
		}
		if check == nil && (statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" ||
			statusOf(m, clusterv1.MachineExternallyRemediatedCondition) != "none") {
			e.t.Errorf("no check judges machine %s, and it is said to be %q: %s", m.Name, said(m.Status.Conditions), e.record.history())
		}
	}
}

func undisturbed(*environment) {}

// chosen is a write: the nth of several equal ones.
type chosen struct {
	faults.Write
	nth int
}

// String returns the write, with its number if it is not the first.
func (c chosen) String() string {
	if c.nth == 1 {
		return c.Write.String()
	}
	return fmt.Sprintf("%s (%d)", c.Write, c.nth)
}

// writesOf returns all writes, sorted, because concurrent writes have no fixed order.
func writesOf(e *environment) []chosen {
	done, _ := e.writes.Done()
	slices.SortFunc(done, func(a, b faults.Write) int { return cmp.Compare(a.String(), b.String()) })
	all, before := make([]chosen, 0, len(done)), map[faults.Write]int{}
	for _, w := range done {
		before[w]++
		all = append(all, chosen{w, before[w]})
	}
	return all
}

func TestEveryTaleEndsTheSameWhicheverWriteFails(t *testing.T) {
	t.Parallel()
	for _, tale := range tales {
		t.Run(tale.name, func(t *testing.T) {
			t.Parallel()
			before := tale.play(t, undisturbed)
			want := before.outcome()
			all := writesOf(before)
			tried := 0
			for _, w := range all {
				for _, fate := range faults.Fates {
					if !faults.Tries(tale.name, w, fate) {
						continue
					}
					t.Run(fmt.Sprintf("%s is %s", w, fate), func(t *testing.T) {
						e := tale.play(t, func(e *environment) { e.writes.ChooseOf(w.Write, w.nth, fate) })
						if _, struck := e.writes.Done(); !struck {
							t.Fatal("the write was not made")
						}
						tried++
						e.endsLike(want, fate)
					})
				}
			}
			t.Logf("%d of %d failures of writes", tried, len(all)*len(faults.Fates))
		})
	}
}

func TestEveryTaleEndsTheSameAfterAKillBetweenTwoReconciles(t *testing.T) {
	t.Parallel()
	for _, tale := range tales {
		t.Run(tale.name, func(t *testing.T) {
			t.Parallel()
			before := tale.play(t, undisturbed)
			want, kills := before.outcome(), 0
			for n := 1; n <= before.reconciles; n++ {
				if !faults.Tries(tale.name, "kill", n) {
					continue
				}
				t.Run(fmt.Sprintf("before reconcile %d", n), func(t *testing.T) {
					e := tale.play(t, func(e *environment) { e.killBefore = n })
					if !e.killed {
						t.Fatal("it was not killed")
					}
					kills++
					e.endsLike(want, faults.Crash)
				})
			}
			t.Logf("%d kills of %d", kills, before.reconciles)
		})
	}
}

// endsLike checks that the outcome is that of the undisturbed tale, and that nothing was done or reported twice.
func (e *environment) endsLike(want outcome, fate faults.Fate) {
	e.t.Helper()
	is := e.outcome()
	for what, n := range is.Events {
		more := 0
		switch _, reason, _ := strings.Cut(what, " "); reason {
		case mendv1.EventRemediationFailed:
			if fate == faults.Refused { // the request
				more = 1
			}
		case mendv1.EventRemediationStarted, mendv1.EventRemediationEnded: // a delayed machine has its own event
			more = 1
		}
		if n > want.Events[what]+more {
			e.t.Errorf("event %q came %d times instead of %d", what, n, want.Events[what])
		}
	}
	for what, n := range want.Events {
		if fate == faults.Refused && is.Events[what] < n {
			e.t.Errorf("event %q came %d times instead of %d", what, is.Events[what], n)
		}
	}
	if fate == faults.Crash { // a crash loses what was not counted yet, but nothing is counted twice
		for what, n := range is.Counters {
			if n > want.Counters[what] {
				e.t.Errorf("counter %q is %v instead of %v", what, n, want.Counters[what])
			}
		}
		is.Counters, want.Counters = nil, nil
	}
	is.Events, want.Events = nil, nil
	want.Records = maps.Clone(want.Records)
	// After a refused write another machine is remediated first, and the record is cancelled.
	if fate == faults.Refused && is.Unbegun == want.Unbegun+1 {
		is.Unbegun--
	}
	for id := range e.unrecorded { // only a refused write leaves a remediation without a record
		if name := e.record.machines[id]; fate == faults.Refused && is.Records[name] < want.Records[name] {
			is.Records[name]++
		}
	}
	if diff := gocmp.Diff(want, is); diff != "" {
		e.t.Errorf("it ends otherwise than undisturbed (-undisturbed +disturbed): %s\nafter %s", diff, e.record.history())
	}
}

// A whole campaign tries everything that these figures count, and fails if it leaves out a write, a kill or an order.
func TestTheFiguresOfMachineHealthChecks(t *testing.T) {
	t.Parallel()
	if !faults.Whole() {
		t.Skip("figures are those of whole campaigns: make campaigns")
	}
	writes, kills, tried := 0, 0, 0
	for _, tale := range tales {
		e := tale.play(t, undisturbed)
		writes, kills = writes+len(writesOf(e)), kills+e.reconciles
	}
	for _, set := range orders {
		tried += len(slices.Collect(faults.Orders(set.events)))
	}
	const line = "%d tales: %d writes fail in %d ways each, %d kills between reconciles; %d sets of events in %d orders."
	faults.Document(t, "machine health checks", fmt.Sprintf(line, len(tales), writes, len(faults.Fates), kills, len(orders), tried))
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	debug.SetGCPercent(800) // the test creates thousands of small, short-lived environments
	os.Exit(m.Run())
}

// A former leader does not learn at once that it lost the lease. Even if the next leader acts before any of its writes, a remediation has
// one record.
func TestTwoLeadersWriteOneRecord(t *testing.T) {
	for how, change := range map[string]func(*clusterv1.MachineHealthCheck){"by the owner": byOwner, "by a request": byTemplate} {
		for nth := range 5 {
			t.Run(fmt.Sprintf("%s, before write %d of the former", how, nth), func(t *testing.T) {
				e := newEnvironment(t)
				e.machines("m1", "m2")
				e.check("check", change)
				e.start()
				e.settle(wait)
				e.fail("m1")
				former := e.checks
				e.start()
				next := e.checks
				writes := &faults.Writes{Before: func(n int) {
					if n == nth {
						e.reconcileBy(next.Reconcile)
					}
				}}
				former.Client = client.WithFieldOwner(writes.Client(e.recorded()), mendv1.FieldOwner)
				former.Records.Client, former.Requests.Client = former.Client, former.Client
				e.reconcileBy(former.Reconcile)
				e.reconcileBy(former.Reconcile)
				e.reconcileBy(next.Reconcile)
				begun, others := e.recordsByMachine()
				if begun["m1"] != 1 || others > 0 {
					t.Errorf("%d records of the remediation, and %d of others: %s", begun["m1"], others, e.record.history())
				}
			})
		}
	}
}

func (e *environment) reconcileBy(reconcile func(context.Context, ctrl.Request) (ctrl.Result, error)) {
	_, _ = reconcile(e.ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: e.namespace, Name: "check"}})
}
