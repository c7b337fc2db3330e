package explain

import (
	"errors"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestWhyAManagerDoesNotActIsOneClause(t *testing.T) {
	m := managerlease.Manager{
		Namespace: "ns", Gone: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Within: []string{"fleet"}, Unverified: "no", Trouble: "broken",
		Announcement: &managerlease.Announcement{Namespace: "other", WatchFilter: "blue"},
	}
	const another = "start a manager for namespace metal"
	for reason, want := range map[managerlease.OffReason][2]string{
		"": {},
		managerlease.Unbound: {"the lease in ns is not believed, since no binding with the label app.kubernetes.io/name=kubemend binds a ServiceAccount " +
			"kubemend-manager of that namespace to the ClusterRole kubemend-manager-role", "start the manager of kubemend"},
		managerlease.NotRunning:     {"the one in ns is gone since 2026-01-01T12:00:00Z"},
		managerlease.Unverified:     {"whether the lease in ns is a manager's cannot be seen (no)"},
		managerlease.OtherRights:    {"the one in ns has rights in namespace fleet alone", another},
		managerlease.NotUnderstood:  {"what the one in ns says cannot be understood (broken)"},
		managerlease.NotAnnounced:   {"the one in ns is of a release that does not say what it watches"},
		managerlease.OtherNamespace: {"the one in ns watches namespace other alone", another},
		managerlease.OtherLabel: {
			"the one in ns watches only objects with the label cluster.x-k8s.io/watch-filter: blue",
			"give it, or its Cluster, the label cluster.x-k8s.io/watch-filter: blue",
		},
		managerlease.InTeardown: {"the one in ns is in teardown, and starts nothing"},
	} {
		because, fix := managerOff(managerlease.Off{Reason: reason, Manager: m, Namespace: "metal", OrCluster: true})
		if because != want[0] || fix != want[1] {
			t.Errorf("%s: got %q and %q, want %q", reason, because, fix, want)
		}
	}
}

func TestWhyItIsNotKnownWhetherCoreRuns(t *testing.T) {
	in := func(reason managerlease.OffReason) managerlease.Off {
		return managerlease.Off{Reason: reason, Manager: managerlease.Manager{Namespace: "elsewhere", Unverified: "no"}}
	}
	for want, c := range map[string]CoreLease{
		"list the leases controller-leader-election-capi: forbidden":                                                  {Err: errors.New("forbidden")},
		"there is no lease controller-leader-election-capi in any namespace, so it does not run, or elects no leader": {NoLease: true},
		"the lease in elsewhere is not believed, since no binding with the label cluster.x-k8s.io/provider=cluster-api binds a ServiceAccount capi-manager " +
			"of that namespace to the ClusterRole capi-manager-role; whether the lease in elsewhere is core's cannot be seen (no)": {
			Leases: []managerlease.Off{in(managerlease.Unbound), in(managerlease.Unverified)},
		},
	} {
		if got := c.text(); got != want || !c.Unseen() {
			t.Errorf("unseen: %t; got %q, want %q", c.Unseen(), got, want)
		}
	}
}

func TestWhatIsNotKnownOfOtherManagers(t *testing.T) {
	c := Claim{Reason: UnseenManagers, ClaimedCheck: ClaimedCheck{Check: &clusterv1.MachineHealthCheck{}}, Unlisted: Unlisted{Err: errors.New("forbidden"), Usual: true}}
	const want = "it cannot be seen whether a manager of kubemend is there to take it: of other namespaces than kubemend-system: forbidden"
	if got := c.Text(); got != want || !c.Refused() {
		t.Errorf("refused: %t; got %q, want %q", c.Refused(), got, want)
	}
}

func TestAManagerOfWhichNoTimeIsKnownDoesNotRun(t *testing.T) {
	never := managerlease.Manager{Namespace: "never"}
	gone := managerlease.Manager{Namespace: "gone", Gone: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	for name, tc := range map[string]struct {
		managers []managerlease.Manager
		want     string
	}{
		"alone":          {[]managerlease.Manager{never}, "The manager of kubemend in namespace never does not run"},
		"before another": {[]managerlease.Manager{never, gone}, "The manager of kubemend in namespace gone has not run since 2026-01-01T12:00:00Z"},
		"after another":  {[]managerlease.Manager{gone, never}, "The manager of kubemend in namespace gone has not run since 2026-01-01T12:00:00Z"},
	} {
		if because, _ := NoManagerActs(tc.managers, nil); because != tc.want {
			t.Errorf("%s: %q, want %q", name, because, tc.want)
		}
	}
}
