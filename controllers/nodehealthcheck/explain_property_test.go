package nodehealthcheck

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"

	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// What is observed of a random history is looked at before every reconcile: what the look says is what the reconcile does.
func TestALookSaysWhatTheNextPassDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := begin(rt)
		for range rapid.IntRange(5, 10).Draw(rt, "events") {
			h.occurs()
			for _, c := range h.checks {
				h.foresees(c)
			}
		}
	})
}

// foresees looks at a check, and makes a reconcile of it.
func (h *history) foresees(check string) {
	is := h.fixture.look(check)
	h.fixture.read(check)
	facts, err := h.r.Observe(h.fixture.t.Context(), check, h.clock.Now())
	if err != nil {
		h.Fatal(err)
	}
	var begins, starts []string
	plan := nodes.Decide(*facts)
	for _, i := range plan.Order {
		if plan.Decisions[i].Starts() {
			starts = append(starts, facts.Nodes[i].Name)
		}
	}
	for i := range is.Targets {
		t, of := &is.Targets[i], &facts.Nodes[i]
		if t.Name != of.Name {
			h.Fatalf("target %d is %s, want %s", i, t.Name, of.Name)
		}
		if t.StartsNow {
			begins = append(begins, t.Name)
		}
		if t.StartsNow && len(t.Blockers) > 0 {
			h.Fatalf("%s begins although there are holds: %+v", t.Name, t.Blockers)
		}
		if d := &plan.Decisions[i]; d.Starts() != (len(d.Blockers) == 0) {
			h.Fatalf("%s starts: %t, and its blockers are %+v", t.Name, d.Starts(), d.Blockers)
		}
		if of.Selected && t.State == health.Unhealthy && !t.StartsNow && len(t.Requests) == 0 && len(t.Blockers) == 0 {
			h.Fatalf("nothing begins for %s, nothing is under way, and nothing says why: %+v", t.Name, t)
		}
		if !t.Next.At.IsZero() && t.Next.At.Before(h.clock.Now()) {
			h.Fatalf("the next thing that happens to %s is past: %+v", t.Name, t.Next)
		}
	}
	slices.Sort(starts)
	if diff := cmp.Diff(starts, begins, cmpopts.EquateEmpty()); diff != "" {
		h.Fatalf("what begins (-plan +look):\n%s", diff)
	}
	made := len(h.made)
	if _, err := h.r.Reconcile(h.fixture.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: check}}); err != nil {
		h.Fatal(err)
	}
	if n := len(h.made) - made; n > len(begins) { // fewer, when the turn of the control plane was taken a moment ago
		h.Fatalf("the pass has made %v, and the look foresaw %v", h.made[made:], begins)
	}
	after := h.check(check)
	if diff := cmp.Diff(is.Conditions, after.Status.Conditions, cmpopts.EquateEmpty()); diff != "" {
		h.Fatalf("conditions (-look +pass):\n%s", diff)
	}
}
