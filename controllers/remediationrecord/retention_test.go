package remediationrecord

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/records"
)

// closedRecord is one that has ended so many hours before noon.
func closedOne(name, cluster, host string, hours int) *mendv1.RemediationRecord {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		r.Name, r.Labels, r.OwnerReferences = name, map[string]string{}, nil
		ended := noon.Add(-time.Duration(hours) * time.Hour)
		r.Annotations = map[string]string{mendv1.RecordEndedAnnotation: ended.Format(time.RFC3339)}
		r.CreationTimestamp = metav1.NewTime(noon) // as after a move
	})
	if cluster != "" {
		is.Labels[clusterv1.ClusterNameLabel] = cluster
		is.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: "c"}}
	}
	if host != "" {
		is.Labels[mendv1.RecordHostLabel] = host
	}
	return is
}

func retention(t *testing.T, o Options, objects ...client.Object) (*Retention, client.WithWatch) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(schemeOfAll(t)).WithObjects(objects...).Build()
	return NewRetention(&Retention{Client: c, Live: c, Clock: clocktesting.NewFakeClock(noon), Options: o, Nodes: true}), c
}

func left(t *testing.T, c client.Client) string {
	t.Helper()
	list := &mendv1.RemediationRecordList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestWhatIsTooOldOrTooMuchIsDeleted(t *testing.T) {
	open := recordOf(func(r *mendv1.RemediationRecord) { r.Name = "open" })
	odd, future, unowned := closedOne("a", "c", "", 25), closedOne("a", "c", "", -100000), closedOne("a", "c", "", 0)
	odd.Labels[mendv1.RecordOpenLabel] = "false"
	future.CreationTimestamp = metav1.NewTime(noon.Add(-9 * time.Hour))
	unowned.OwnerReferences = nil
	east := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "east", Labels: map[string]string{clusterv1.WatchLabel: "east"}}}
	keep := func(hours, perCluster, perHost int) Options {
		return Options{Keep: time.Duration(hours) * time.Hour, PerCluster: perCluster, PerHost: perHost}
	}
	for name, tc := range map[string]struct {
		options Options
		at      *place
		with    []client.Object
		filter  string
		want    string
	}{
		"after the retention": {keep(24, 10, 10), nil, []client.Object{
			closedOne("a", "c", "", 23), closedOne("b", "c", "", 24), closedOne("n", "", "", 30), open,
		}, "", "a open"},
		"also one that is labelled as if it could be open": {keep(24, 10, 10), nil, []client.Object{odd, closedOne("b", "c", "", 1)}, "", "b"},
		"the oldest of a Cluster first": {keep(999, 2, 10), nil, []client.Object{
			closedOne("a", "c", "", 3), closedOne("b", "c", "", 1), closedOne("d", "c", "", 2), closedOne("e", "other", "", 9), open,
		}, "", "b d e open"},
		"the oldest of a host first, and these count no more": {keep(999, 3, 1), nil, []client.Object{
			closedOne("a", "c", "h", 1), closedOne("b", "c", "h", 2), closedOne("d", "c", "", 3), closedOne("e", "c", "", 4),
		}, "", "a d e"},
		"of a namespace, what belongs to no Cluster": {keep(999, 1, 10), nil, []client.Object{
			closedOne("a", "", "", 1), closedOne("b", "", "", 2), closedOne("d", "c", "", 3),
		}, "", "a d"},
		"of one Cluster alone": {keep(1, 10, 10), &place{"metal", "c"}, []client.Object{
			closedOne("a", "c", "", 2), closedOne("b", "other", "", 2), closedOne("d", "", "", 2),
		}, "", "b d"},
		"of what belongs to none": {keep(1, 10, 10), &place{"metal", ""}, []client.Object{closedOne("a", "c", "", 2), closedOne("d", "", "", 2)}, "", "a"},
		"none is the newest one by an end that has not come": {keep(10, 2, 10), nil, []client.Object{
			future, closedOne("b", "c", "", 1), closedOne("d", "c", "", 2),
		}, "", "b d"},
		"none of a Cluster by what belongs to none": {keep(10, 1, 10), nil, []client.Object{unowned, closedOne("b", "c", "", 1)}, "", "a b"},
		"not that of another shard": {keep(1, 10, 10), nil, []client.Object{
			east, closedOne("a", "east", "", 2), closedOne("b", "other", "", 2), closedOne("d", "", "", 2),
		}, "east", "b d"},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := retention(t, tc.options, tc.with...)
			r.WatchFilterValue, r.Nodes = tc.filter, tc.filter == ""
			if err := r.Sweep(t.Context(), tc.at); err != nil {
				t.Fatal(err)
			}
			if got := left(t, c); got != tc.want {
				t.Errorf("left are %q, want %q", got, tc.want)
			}
		})
	}
}

// Pages are read until the last one, and a record that cannot be deleted keeps no other.
func TestAllPagesAreRead(t *testing.T) {
	r, c := retention(t, Options{Keep: time.Hour, PerCluster: 10, PerHost: 10})
	pages := 0
	r.Live = interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.Limit != pageSize || o.LabelSelector.String() != mendv1.RecordOpenLabel+" notin (true)" || o.Continue != map[int]string{0: "", 1: "next"}[pages] {
				t.Errorf("page %d is asked for with %+v", pages, o)
			}
			page := list.(*metav1.PartialObjectMetadataList)
			is := closedOne(fmt.Sprintf("r%d", pages), "c", "", 2)
			page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: is.ObjectMeta})
			if err := c.Create(ctx, is); err != nil {
				return err
			}
			pages++
			page.Continue = map[int]string{1: "next"}[pages]
			return nil
		},
	})
	refused := errors.New("refused")
	r.Client = interceptor.NewClient(c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "r0" {
				return refused
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	if err := r.Sweep(t.Context(), nil); !errors.Is(err, refused) {
		t.Errorf("it ends with %v", err)
	}
	if got := left(t, c); got != "r0" || pages != 2 {
		t.Errorf("left are %q after %d pages", got, pages)
	}
}

// A Cluster is looked at when a record of it is closed, and everything once an hour.
func TestWhenItIsLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clocktesting.NewFakeClock(noon)
		r, c := retention(t, Options{Keep: 2 * time.Hour, PerCluster: 1, PerHost: 10}, closedOne("a", "c", "", 0))
		r.Clock = clock
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Start(ctx) }()
		synctest.Wait()
		newer := closedOne("b", "c", "", -1)
		if err := c.Create(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
		r.Closed(newer)
		synctest.Wait()
		if got := left(t, c); got != "b" {
			t.Errorf("after an end there are left %q", got)
		}
		clock.Step(4 * time.Hour)
		synctest.Wait()
		if got := left(t, c); got != "" {
			t.Errorf("after four hours there are left %q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, wrong := range []Options{{PerCluster: 1, PerHost: 1}, {Keep: time.Hour, PerHost: 1}, {Keep: time.Hour, PerCluster: 1, PerHost: -1}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v passes", wrong)
		}
	}
}

// The cache has open records alone: closed ones, of which there may be 30,000, are read a page of metadata at a time.
func TestTheCacheHasOpenRecordsAlone(t *testing.T) {
	if got := records.CacheOptions().Label; got.Matches(labels.Set{}) || !got.Matches(labels.Set{mendv1.RecordOpenLabel: "true"}) {
		t.Errorf("the cache has what matches %q", got)
	}
}

func TestTheTimeOfTheAPIServerIsThatOfItsAnswers(t *testing.T) {
	date := noon.Format(http.TimeFormat)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	s := &ServerTime{Clock: clocktesting.NewFakeClock(noon.Add(time.Hour))}
	if _, known := s.Now(); known {
		t.Error("it is known before an answer")
	}
	ask := func() {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: s.Watch(http.DefaultTransport)}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	ask()
	date = "what a proxy says"
	ask()
	if got, known := s.Now(); !known || !got.Equal(noon) {
		t.Errorf("it is %s, %t", got, known)
	}
}

// A manager whose clock is ahead by a whole retention must not delete all records, nor one whose clock is right where that of the API server is ahead.
func TestNoRecordIsTooOldByOneClockAlone(t *testing.T) {
	month := 720 * time.Hour
	for name, tc := range map[string]struct {
		own, server time.Duration // from noon on
		unknown     bool
		want        string
	}{
		"by neither":                         {0, 0, false, "new old"},
		"by both":                            {month, month, false, "new"},
		"by that of the manager":             {month, 0, false, "new old"},
		"by that of the manager, much ahead": {100 * month, 0, false, "new old"},
		"by that of the API server":          {0, month, false, "new old"},
		"while the API server says no time":  {month, 0, true, "new old"},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := retention(t, Options{Keep: month, PerCluster: 10, PerHost: 10}, closedOne("old", "c", "", 2), closedOne("new", "c", "", -1))
			r.Clock = clocktesting.NewFakeClock(noon.Add(tc.own))
			r.Server = func() (time.Time, bool) { return noon.Add(tc.server), !tc.unknown }
			if err := r.Sweep(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if got := left(t, c); got != tc.want {
				t.Errorf("left are %q, want %q", got, tc.want)
			}
		})
	}
}

// What could be found out about no more is an open record that is deleted by its age, too.
func TestNoOpenRecordExpiresByOneClockAlone(t *testing.T) {
	r, _ := retention(t, Options{Keep: time.Hour})
	o := &observed{now: noon.Add(100 * time.Hour)}
	o.facts.Decided = noon
	server := noon
	r.Server = func() (time.Time, bool) { return server, true }
	if r.expired(o) {
		t.Error("it expires by the clock of the manager")
	}
	if server = o.now; !r.expired(o) {
		t.Error("it does not expire by both")
	}
}
