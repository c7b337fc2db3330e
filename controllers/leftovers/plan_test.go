package leftovers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func TestWhatBecomesOfARequest(t *testing.T) {
	now, long := &metav1.Time{Time: ago(time.Minute)}, &metav1.Time{Time: ago(patience)}
	for name, tc := range map[string]struct {
		becomes func(bool, *metav1.Time, time.Time) (action, string)
		is      bool // the check of the request is gone, or NodeHealthChecks are ours
		deleted *metav1.Time
		want    action
	}{
		"one whose check exists goes on without its mark":               {ofCheck, false, nil, unmark},
		"also while it is being deleted":                                {ofCheck, false, now, unmark},
		"one whose check is gone would stay for ever":                   {ofCheck, true, nil, erase},
		"its end is waited for":                                         {ofCheck, true, now, wait},
		"but not longer than its remediator may need":                   {ofCheck, true, long, unmark},
		"the controller of NodeHealthChecks deletes its requests":       {ofNodeCheck, true, nil, wait},
		"and waits for their remediators":                               {ofNodeCheck, true, now, wait},
		"one that clings to its request is not waited for without end":  {ofNodeCheck, true, long, unmark},
		"a request is not deleted where NodeHealthChecks are another's": {ofNodeCheck, false, nil, unmark},
	} {
		if got, why := tc.becomes(tc.is, tc.deleted, noon); got != tc.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, tc.want)
		}
	}
}

// heldLease is a lease with a holder.
type heldLease struct {
	resourcelock.Interface
	by string
}

func (l heldLease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.by}, []byte(l.by), nil
}

func TestATeardownTakesTheLeaseFromAManagerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		by    string
		shown string
		quiet time.Time
	}{
		"a replica that acts loses it, and is given the time to stop": {"host_1", "", noon.Add(15 * time.Second)},
		"one that tears down as well keeps it":                        {signed + "host_1", signed + "host_1", time.Time{}},
		"one without a holder is free at once":                        {"", "", time.Time{}},
	} {
		l := &Lock{Interface: heldLease{by: tc.by}, Clock: clocktesting.NewFakePassiveClock(noon), LeaseDuration: 15 * time.Second}
		record, raw, err := l.Get(t.Context())
		holder, quiet := l.State()
		if err != nil || record.HolderIdentity != tc.shown || !quiet.Equal(tc.quiet) || holder != tc.by || string(raw) != tc.by {
			t.Errorf("%s: shown as %q, quiet until %s, %v", name, record.HolderIdentity, quiet, err)
		}
	}
}

func TestWhoHasTakenALeaseWaits(t *testing.T) {
	elected := make(chan struct{})
	clock := clocktesting.NewFakeClock(noon)
	u := &Teardown{Lock: &Lock{Interface: heldLease{by: "host_1"}, Clock: clock, LeaseDuration: 15 * time.Second}, Clock: clock, Elected: elected}
	if _, _, err := u.Lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour)
	if u.leads() {
		t.Error("it acts, and was not elected")
	}
	close(elected)
	if _, _, err := u.Lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u.leads() {
		t.Error("it acts while the one that it took the lease from may do so, too")
	}
	clock.Step(15 * time.Second)
	if !u.leads() {
		t.Error("it never acts")
	}
}
