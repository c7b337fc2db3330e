package remediationrecord

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

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

func TestAPowerCycleIsReadOnceForItsAuthor(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	cache := shown{}
	m.Cached = []RequestCache{func(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]client.Object, bool, error) {
		return cache.cached(ctx, kind, namespace)
	}}
	m.reconcile(time.Second)
	must.Do(t, m.server.Create(t.Context(), cycled("w1", "PoweringOff"), client.FieldOwner("somebody")))
	for i, state := range []string{"PoweringOff", "PoweringOn", "Booting"} {
		cache = shown{cycled("w1", state)}
		m.reconcile(time.Duration(2+5*i) * time.Second)
	}
	got := m.record()
	if got.Status.BegunBy != "somebody" || m.asked["HostRemediation"] != 1 || m.asked["HostRemediationList"] > 0 || m.writes > 4 {
		t.Errorf("it was begun by %q, written %d times, and the API server asked for %v", got.Status.BegunBy, m.writes, m.asked)
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
