package simulate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"pgregory.net/rapid"
)

// limits are those of the check of a random cluster, as its test counts them.
type limits struct {
	// most is how many of n may be not healthy: a percentage if it ends with a sign. atOnce is how many remediations may be under way; 0 for any.
	most   int
	atOnce int
}

// recount counts in a state that the controllers have reconciled, and reports what is against the limits. It uses no function of theirs.
type recount struct {
	limits

	engine *engine

	asked   map[string]bool
	against []string
}

// count is the watch of a play.
func (r *recount) count(ctx context.Context) {
	list := &clusterv1.MachineList{}
	if err := r.engine.client.List(ctx, list); err != nil {
		r.against = append(r.against, err.Error())
		return
	}
	asked, begun, bad := map[string]bool{}, 0, 0
	for i := range list.Items {
		m := &list.Items[i]
		if r.bad(m) {
			bad++
		}
		if !said(m, clusterv1.MachineOwnerRemediatedCondition) || !said(m, clusterv1.MachineHealthCheckSucceededCondition) {
			continue
		}
		asked[m.Name] = true
		if !r.asked[m.Name] {
			begun++
		}
	}
	after := r.engine.clock.Now().Sub(noon)
	if begun > 0 && bad > r.most {
		r.against = append(r.against, fmt.Sprintf("%s: %d began while %d were not healthy, of which %d are allowed", after, begun, bad, r.most))
	}
	if begun > 0 && r.atOnce > 0 && len(asked) > r.atOnce {
		r.against = append(r.against, fmt.Sprintf("%s: %d are under way, of which %d are allowed", after, len(asked), r.atOnce))
	}
	r.asked = asked
}

// said reports whether a machine says False of itself.
func said(m *clusterv1.Machine, kind string) bool {
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			return c.Status == metav1.ConditionFalse
		}
	}
	return false
}

// bad reports whether a machine is not plainly well: it is being deleted, has no node yet, or one that is not Ready.
func (r *recount) bad(m *clusterv1.Machine) bool {
	node := r.engine.snapshot.Node(inC1, m.Status.NodeRef.Name)
	if node == nil || m.DeletionTimestamp != nil {
		return true
	}
	return node.Status.Conditions[0].Status != "True"
}

func TestNoLimitIsExceededAtAnyMoment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "machines")
		l := limits{most: rapid.IntRange(0, n).Draw(rt, "may be bad"), atOnce: rapid.IntRange(0, 3).Draw(rt, "at once")}
		q := question(func(q *Question) {
			q.Horizon = 2 * time.Hour
			q.FailAt = minutes(rt, "fail at", 30)
			q.For = minutes(rt, "for", 40)
			q.ReplacementTakes = minutes(rt, "replacement", 30)
			q.DeletionTakes = minutes(rt, "deletion", 10)
		})
		var names []string
		for i := 1; i <= n; i++ {
			if rapid.Bool().Draw(rt, fmt.Sprintf("w%d fails", i)) {
				names = append(names, fmt.Sprintf("machine/w%d", i))
			}
		}
		q.Fail = strings.Join(names, ",")
		s := newFixture(t).workers(n)
		for i := 1; i <= n; i++ {
			if rapid.IntRange(0, 4).Draw(rt, fmt.Sprintf("w%d is silent", i)) == 0 {
				s.silent(minutes(rt, "silent for", 10), fmt.Sprintf("w%d", i))
			}
		}
		r := simulateCounted(t, s, limitedCheck(l), q, l)
		if len(r.against) > 0 {
			rt.Fatalf("%s", strings.Join(r.against, "\n"))
		}
	})
}

func minutes(rt *rapid.T, what string, most int) time.Duration {
	return time.Duration(rapid.IntRange(0, most).Draw(rt, what)) * time.Minute
}

// limitedCheck is a check with limits.
func limitedCheck(l limits) string {
	check := strings.Replace(workersCheck, "40%", strconv.Itoa(l.most), 1)
	if l.atOnce > 0 {
		check = strings.Replace(check, "paused: kubemend", fmt.Sprintf("paused: kubemend, kubemend.io/max-in-flight: \"%d\"", l.atOnce), 1)
	}
	return check
}

// simulateCounted is Run, but for the looks and with somebody who counts.
func simulateCounted(t *testing.T, fixture *fixture, manifest string, q Question, l limits) *recount {
	t.Helper()
	ctx, w := t.Context(), fixture.snapshot()
	m, err := Read(strings.NewReader(manifest), "check.yaml", "default")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newEngine(ctx, w, q)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.apply(ctx, w, q.From); err != nil {
		t.Fatal(err)
	}
	p, err := s.simulation()
	if err != nil {
		t.Fatal(err)
	}
	r := &recount{limits: l, engine: s}
	p.watch = r.count
	if err := p.run(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheRecountWouldSeeIt(t *testing.T) {
	l := limits{most: 1, atOnce: 1}
	r := simulateCounted(t, newFixture(t).workers(4), workersCheck, question(fails("machine/w1,machine/w2")), limits{most: 4, atOnce: 0})
	if len(r.against) > 0 {
		t.Fatalf("nothing is limited, and yet: %v", r.against)
	}
	unlimited := strings.Replace(workersCheck, "40%", "100%", 1)
	if r := simulateCounted(t, newFixture(t).workers(4), unlimited, question(fails("machine/w1,machine/w2")), l); len(r.against) != 2 {
		t.Errorf("two begin at once where one may, and one may be bad: %v", r.against)
	}
}
