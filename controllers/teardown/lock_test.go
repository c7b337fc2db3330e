package teardown

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// heldLease is a lease that is held by somebody.
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
		"one that tears down as well keeps it":                        {Identity("host_1"), Identity("host_1"), time.Time{}},
		"one without a holder is free at once":                        {"", "", time.Time{}},
	} {
		l := &Lock{Interface: heldLease{by: tc.by}, Clock: clocktesting.NewFakePassiveClock(noon), LeaseDuration: 15 * time.Second}
		record, raw, err := l.Get(t.Context())
		if err != nil || record.HolderIdentity != tc.shown || !l.Quiet().Equal(tc.quiet) || l.Holder() != tc.by || string(raw) != tc.by {
			t.Errorf("%s: shown as %q, quiet until %s, %v", name, record.HolderIdentity, l.Quiet(), err)
		}
	}
}

func TestWhoHasTakenALeaseWaits(t *testing.T) {
	elected := make(chan struct{})
	clock := clocktesting.NewFakeClock(noon)
	u := &Uninstaller{Lock: &Lock{Interface: heldLease{by: "host_1"}, Clock: clock, LeaseDuration: 15 * time.Second}, Clock: clock, Elected: elected}
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
