package remediationrecord

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// closedOne returns a record that ended so many hours before noon.
func closedOne(name, cluster string, hours int) *mendv1.RemediationRecord {
	return recordOf(func(r *mendv1.RemediationRecord) {
		r.Name, r.Labels, r.OwnerReferences = name, map[string]string{}, nil
		ended := noon.Add(-time.Duration(hours) * time.Hour)
		r.Annotations = map[string]string{mendv1.RecordEndedAnnotation: ended.Format(time.RFC3339)}
		r.CreationTimestamp = metav1.NewTime(noon) // clusterctl move has created it anew
		if r.Spec.Target.ClusterName = cluster; cluster != "" {
			r.Labels[clusterv1.ClusterNameLabel] = cluster
		}
	})
}

// left returns the names of the records that exist.
func (m *management) left() string {
	m.t.Helper()
	list := &mendv1.RemediationRecordList{}
	must.Do(m.t, m.server.List(m.t.Context(), list))
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestWhatIsTooOldOrTooMuchIsDeletedWhenARecordIsClosed(t *testing.T) {
	open := recordOf(func(r *mendv1.RemediationRecord) {
		r.Name, r.Labels[clusterv1.ClusterNameLabel] = "open", "c"
	})
	odd, future := closedOne("a", "c", 25), closedOne("a", "c", -100000)
	recent := closedOne("a", "c", 1)
	odd.Labels[mendv1.RecordOpenLabel], recent.Labels[mendv1.RecordOpenLabel] = "false", "false"
	future.CreationTimestamp = metav1.NewTime(noon.Add(-9 * time.Hour))
	keep := func(hours, perCluster int) Options {
		return Options{Keep: time.Duration(hours) * time.Hour, PerCluster: perCluster}
	}
	for name, tc := range map[string]struct {
		options Options
		closed  *mendv1.RemediationRecord // just now
		with    []client.Object
		ahead   time.Duration // how far the manager's clock is ahead
		want    string
	}{
		"after the retention": {keep(24, 10), closedOne("now", "c", 0), []client.Object{
			closedOne("a", "c", 23), closedOne("b", "c", 24), open,
		}, 0, "a now open"},
		"not by the clock of the manager alone": {keep(24, 10), closedOne("now", "c", 0), []client.Object{
			closedOne("a", "c", 23), closedOne("b", "c", 24),
		}, 1000 * time.Hour, "a now"},
		"none that tells of a loop": {keep(999, 1), closedOne("now", "c", 0), []client.Object{
			recent, closedOne("b", "c", 2),
		}, 0, "a now"},
		"also one that is labelled as if it could be open": {keep(24, 10), closedOne("now", "c", 0), []client.Object{odd}, 0, "now"},
		"the oldest of a Cluster first": {keep(999, 2), closedOne("now", "c", 0), []client.Object{
			closedOne("a", "c", 3), closedOne("b", "c", 1), closedOne("d", "c", 2), closedOne("e", "other", 9), open,
		}, 0, "b e now open"},
		"of a namespace, what belongs to no Cluster": {keep(999, 1), closedOne("now", "", 0), []client.Object{
			closedOne("a", "", 1), closedOne("d", "c", 3),
		}, 0, "d now"},
		"none is the newest one by an end that has not come": {keep(99, 2), closedOne("now", "c", 0), []client.Object{
			future, closedOne("b", "c", 1),
		}, 0, "b now"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t, append(tc.with, tc.closed)...)
			m.Retention = tc.options
			m.clock.SetTime(noon.Add(tc.ahead))
			must.Do(t, m.retire(t.Context(), tc.closed))
			must.Is(t, tc.want, m.left(), "left are")
		})
	}
}

// If the API server refuses to delete a record, others are still deleted, and a record that was closed stays closed.
func TestWhatCannotBeDeletedHoldsUpNothing(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf(), closedOne("a", "c", 2), closedOne("b", "c", 3))...)
	m.Retention = Options{Keep: time.Hour, PerCluster: 1}
	m.Client = interceptor.NewClient(m.server, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "b" {
				return errors.New("refused")
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	if is := m.replaced(); is.Open() || m.left() != "b w1-record" {
		t.Errorf("it is open: %t, and left are %q", is.Open(), m.left())
	}
}

// If a hundred records of a Cluster are closed at once, its closed records are not listed a hundred times.
func TestAClusterIsLookedAtOnceAMinute(t *testing.T) {
	m := newManagement(t)
	m.Retention = Options{Keep: time.Hour, PerCluster: 1}
	for second := range 120 {
		m.clock.SetTime(noon.Add(time.Duration(second) * time.Second))
		for _, cluster := range []string{"a", "b"} {
			must.Do(t, m.retire(t.Context(), closedOne("now", cluster, 0)))
		}
	}
	if m.asked["RemediationRecordList"] != 4 {
		t.Errorf("it is listed %d times", m.asked["RemediationRecordList"])
	}
}

func TestOptions(t *testing.T) {
	for _, wrong := range []Options{{PerCluster: 1}, {Keep: time.Hour}, {Keep: time.Hour, PerCluster: -1}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v passes", wrong)
		}
	}
}

// The cache has only open records. Closed records, of which there may be 30,000, are listed by their metadata.
func TestTheCacheHasOpenRecordsAlone(t *testing.T) {
	if got := CacheOptions().Label; got.Matches(labels.Set{}) || !got.Matches(labels.Set{mendv1.RecordOpenLabel: "true"}) {
		t.Errorf("the cache has what matches %q", got)
	}
}
