package remediationrecord

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// shown are the HostRemediations that a cache shows, which has no managed fields; nil if it does not have the kind.
type shown []*mendv1.HostRemediation

func (s *shown) cached(_ context.Context, kind schema.GroupVersionKind, _ string) (all []client.Object, has bool, err error) {
	if *s == nil || kind != remediation.Own.GroupVersionKind {
		return nil, false, nil
	}
	for _, is := range *s {
		all = append(all, is)
	}
	return all, true, nil
}

// requested makes a record one of the request of w1.
func requested(r *mendv1.RemediationRecord) {
	r.Status.Requests = []mendv1.RecordRef{requestRef(cycled("w1", ""), remediation.Own.GroupVersionKind)}
}

// since are how often the API server was asked since before.
func (m *management) since(before map[string]int) map[string]int {
	asked := map[string]int{}
	for kind, n := range m.asked {
		if n > before[kind] {
			asked[kind] = n - before[kind]
		}
	}
	return asked
}

func TestAPowerCycleIsFollowedWithFewCalls(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	cache := shown{}
	m.Cached = []RequestCache{cache.cached}
	m.reconcile(time.Second)
	if err := m.server.Create(t.Context(), cycled("w1", "PoweringOff"), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	looks := 0
	for i, state := range []string{"PoweringOff", "Fencing", "WaitingForEvacuation", "PoweringOn", "WaitingForNode"} {
		cache = shown{cycled("w1", state)}
		m.reconcile(time.Duration(2+5*i) * time.Second)
		looks++
	}
	if asked := m.since(nil); asked["HostRemediation"] > 0 || asked["HostRemediationList"] != 4 {
		t.Errorf("%d looks have asked for %v; want lists until it has begun", looks, asked)
	}
	if got := m.record(); got.Status.BegunBy != "somebody" {
		t.Errorf("it was begun by %q", got.Status.BegunBy)
	}
	before := maps.Clone(m.asked)
	cache = shown{cycled("w1", "Succeeded")}
	m.remove(cycled("w1", ""))
	m.create(cycled("w1", "Succeeded"))
	m.change("w1", func(w *clusterv1.Machine) {
		says(w, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, 30*time.Second)
	})
	if got := m.reconcile(31 * time.Second); got.Status.Outcome != mendv1.RecordHealed {
		t.Errorf("it has ended as %q by %q", got.Status.Outcome, got.Status.EndedBy)
	}
	if asked := m.since(before); asked["Machine"] != 1 || asked["HostRemediationList"] != 1 {
		t.Errorf("its end was decided by %v", asked)
	}
	if m.writes > 7 {
		t.Errorf("it was written %d times", m.writes)
	}
}

// A cache may be behind: neither is a request gone that it does not show, nor has one ended that it shows so.
func TestACacheThatIsBehindEndsNoRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		shows shown
		is    *mendv1.HostRemediation
		want  mendv1.RecordOutcome
		not   string
	}{
		"a request that it does not show yet": {shows: shown{}, is: cycled("w1", "PoweringOff"), not: "Withdrawn"},
		"a request that it shows still":       {shows: shown{cycled("w1", "Succeeded")}, is: cycled("w1", "PoweringOff")},
		"a request that is gone":              {shows: shown{}, want: mendv1.RecordHealed},
		"a kind that it does not have":        {is: cycled("w1", "PoweringOff"), not: "Withdrawn"},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			if tc.not == "" {
				says(w1, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, time.Minute)
			}
			m := newManagement(t, append(fleet(), w1, recordOf(begun("RequestCreated"), requested))...)
			m.Cached = []RequestCache{tc.shows.cached}
			if tc.is != nil {
				m.create(tc.is)
			}
			got := m.reconcile(2 * time.Minute)
			if got.Status.Outcome != tc.want || slices.Contains(reasons(got), tc.not) {
				t.Errorf("it has ended as %q by %q with %v", got.Status.Outcome, got.Status.EndedBy, reasons(got))
			}
		})
	}
}

// Of a request that is gone the API server is asked once.
func TestARequestThatIsGoneIsAskedForOnce(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(begun("RequestCreated"), requested))...)
	m.Cached = []RequestCache{(&shown{}).cached}
	m.reconcile(time.Minute)
	m.reconcile(2 * time.Minute)
	if got := m.record(); m.asked["HostRemediationList"] != 1 || !slices.Contains(reasons(got), "Withdrawn") {
		t.Errorf("it was asked for %v, and the record says %v", m.asked, reasons(got))
	}
}

// What happens within a moment is one write, but what may not be found out any more later is written at once.
func TestWhatHappensWithinAMomentIsOneWrite(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	cache := shown{cycled("w1", "Pending")}
	m.Cached = []RequestCache{cache.cached}
	m.create(cycled("w1", "Pending"))
	for _, tc := range []struct {
		at     time.Duration
		state  string
		writes int
		steps  int
	}{
		{at: time.Second, state: "Pending", writes: 1, steps: 2},                                       // it begins, and waits
		{at: time.Second + 100*time.Millisecond, state: "Preparing", writes: 1, steps: 2},              // put off
		{at: time.Second + 200*time.Millisecond, state: "PoweringOff", writes: 2, steps: 4},            // acted on: at once, with what was put off
		{at: 2 * time.Second, state: "Fencing", writes: 2, steps: 4},                                   // put off
		{at: 2*time.Second + 500*time.Millisecond, state: "WaitingForEvacuation", writes: 2, steps: 4}, // put off
		{at: 4 * time.Second, state: "WaitingForEvacuation", writes: 3, steps: 5},                      // due
	} {
		cache[0] = cycled("w1", tc.state)
		got := m.reconcile(tc.at)
		if m.writes != tc.writes || len(got.Status.Steps) != tc.steps {
			t.Errorf("after %s, %s, it was written %d times and says %v; want %d and %d steps", tc.at, tc.state, m.writes, reasons(got), tc.writes, tc.steps)
		}
	}
}
