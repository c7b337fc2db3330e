package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubemend/kubemend/test/faults"
)

// outcome is what is left in the end, and what was done for it.
type outcome struct {
	Made     []string // requests in the order in which they were made
	Left     []string // requests that are still there
	Leases   map[string]string
	Statuses map[string]string
}

// run is a tale that was played.
type run struct {
	outcome
	writes     []faults.Write
	struck     bool
	reconciles int
}

// tell tells a tale, in which befall may let something fail.
func play(t *testing.T, of tale, befall func(*environment)) run {
	t.Helper()
	e := newEnvironment(t)
	for _, name := range []string{"w1", "w2", "w3"} {
		e.node(name, nil)
	}
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
	r.Leases, r.Statuses = e.leases(), map[string]string{}
	for _, w := range r.writes {
		if isRequest := slices.ContainsFunc(remediations, func(k schema.GroupVersionKind) bool { return k.Kind == w.Kind }); isRequest && w.Verb == "create" {
			r.Made = append(r.Made, w.Kind+"/"+w.Name)
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

// kindsMade are the kinds of requests.
func kindsMade(made []string) []string {
	var kinds []string
	for _, m := range made {
		kinds = append(kinds, strings.SplitN(m, "/", 2)[0])
	}
	return kinds
}

func undisturbed(*environment) {}

// count is what a campaign has tried of a tale.
type count struct{ writes, kills int }

// campaigns are the counts of all tales.
var campaigns struct {
	sync.Mutex
	of map[string]count
}

func counted(tale string, add count) {
	campaigns.Lock()
	defer campaigns.Unlock()
	if campaigns.of == nil {
		campaigns.of = map[string]count{}
	}
	was := campaigns.of[tale]
	campaigns.of[tale] = count{was.writes + add.writes, was.kills + add.kills}
}

// everyWrite tries all writes and kills. Whatever write fails, and wherever the manager is killed, a remediation comes to the same end:
// each step was asked for once, nothing is orphaned, and the lease is released.
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
			// The number of reconciles depends on whether the cache of a kind is filled before or after a reconcile, which no two runs do
			// alike.
			counted(name, count{writes: 2 * len(plain.writes), kills: len(plain.writes)})
		})
	}
}

// killsAfter kills the manager after a reconcile, and starts another one.
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
