package nodehealthcheck

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// apis are what the API server of a fixture serves.
type apis struct {
	discovery.ServerResourcesInterface
	err error
}

// ServerPreferredResources are the kinds of requests.
func (a *apis) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: remediatorGroup + "/v1"}
	for _, kind := range kindsOfRequests {
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: kind, Kind: kind, Namespaced: true}, metav1.APIResource{Name: kind + "templates", Kind: kind + remediationrequest.TemplateSuffix, Namespaced: true})
	}
	return []*metav1.APIResourceList{list}, a.err
}

// search searches for orphaned requests, as at the start of the manager.
func (k *fixture) search() {
	k.t.Helper()
	if err := k.r.searchOnce(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// restart forgets all that the controller remembers.
func (k *fixture) restart() {
	kinds := k.kinds()
	k.r.memory, k.r.Kinds, k.r.Watches = memory{}, kinds, kinds
	k.r.search.Store(int32(searching))
	k.search()
}

// away lets a check be deleted while the manager is away.
func (k *fixture) away(name string) {
	k.t.Helper()
	k.ofMachine()
	k.atWork()
	k.goes(name)
	k.restart()
}

// reconcileEnqueued makes a reconcile of each check that the start of the manager enqueues.
func (k *fixture) reconcileEnqueued() {
	k.t.Helper()
	for _, req := range k.r.everybody(k.t.Context(), &nhcv1.NodeHealthCheck{}) {
		k.settle(req.Name)
	}
}

func TestAMemberThatADeletedCheckHasRemediatedIsBusyAfterARestart(t *testing.T) {
	other := replacing("other", "other")
	other.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	k := newFixture(t, five(other, check("nhc"))...)
	k.bad("m0")
	k.settle("other")
	k.away("other")
	k.bad("m1")
	k.settle("nhc")
	k.wants("m0 is being remediated", "Replace/m0")
	k.reconcileEnqueued()
	if k.objects()[0].GetDeletionTimestamp() == nil {
		t.Error("the orphaned request is not ended")
	}
	k.after(time.Minute)
	k.settle("nhc")
	k.wants("it is not gone yet", "Replace/m0")
	k.over()
	k.reconcileEnqueued()
	k.after(time.Minute)
	k.settle("nhc")
	if got := k.requests(); len(got) != 1 || !strings.HasPrefix(got[0], "Reboot/") {
		t.Errorf("requests %v, want that of the next one", got)
	}
}

func TestTheOrphanedLeaseOfADeletedCheckIsReleasedAfterARestart(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.goes("nhc")
	k.restart()
	k.wants("the garbage collector has deleted what had no other owner")
	k.reconcileEnqueued()
	if leases := k.leases(); len(leases) > 0 {
		t.Errorf("leases %v", leases)
	}
}

func TestUntilOrphansWereSearchedForNoMemberIsRemediated(t *testing.T) {
	const why = "orphaned requests could not be searched for"
	for name, tc := range map[string]struct {
		err   error
		tried bool
		want  []string
		told  bool
	}{
		"not before the search, which is not reported":  {},
		"not after it has failed, and users hear of it": {err: errors.New("out of order"), tried: true, told: true},
		"then it begins": {tried: true, want: []string{"Reboot/m0"}},
		"the API servers of others, which do not answer, hold up no check": {
			err:   &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io"}: errors.New("its node is bad")}},
			tried: true, want: []string{"Reboot/m0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, five(check("nhc"))...)
			k.r.search.Store(int32(searching))
			k.apis.err = tc.err
			if tc.tried {
				if err := k.r.searchOnce(t.Context()); !errors.Is(err, tc.err) {
					t.Fatal(err)
				}
			}
			k.bad("m0")
			k.settle("nhc")
			k.wants(name, tc.want...)
			if told := strings.Contains(strings.Join(k.events(), "\n"), why); told != tc.told {
				t.Errorf("users hear of it: %v, want %v", told, tc.told)
			}
			k.apis.err = nil
			k.search()
			k.settle("nhc")
			k.wants("in the end", "Reboot/m0")
		})
	}
}

func TestOthersThanMembersDoNotWaitForTheSearch(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.search.Store(int32(searchFailed))
	badB(k)
	k.wants("a worker is remediated", "Reboot/b")
}
