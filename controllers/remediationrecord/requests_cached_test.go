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
	if asked := m.since(nil); asked["HostRemediation"] != 1 || asked["HostRemediationList"] > 0 {
		t.Errorf("%d looks have asked for %v; want the request once, for its author", looks, asked)
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
