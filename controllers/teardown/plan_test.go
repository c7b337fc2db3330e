package teardown

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func of(w what, changes ...func(*facts)) facts {
	f := facts{what: w}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func served(f *facts)      { f.served = true }
func orphaned(f *facts)    { f.orphaned = true }
func deletedNow(f *facts)  { f.deleted = ago(time.Minute) }
func deletedLong(f *facts) { f.deleted = ago(patience) }
func failedNow(f *facts)   { f.failed = ago(time.Minute) }
func failedLong(f *facts)  { f.failed = ago(patience) }

func TestWhatBecomesOfATrace(t *testing.T) {
	for name, tc := range map[string]struct {
		given facts
		want  action
	}{
		"a check is given back": {of(claim), release},
		"a request goes on without its mark, if its check is there":     {of(checkRequest), unmark},
		"also while it is being deleted":                                {of(checkRequest, deletedNow), unmark},
		"one whose check is gone would stay for ever":                   {of(checkRequest, orphaned), erase},
		"its end is waited for":                                         {of(checkRequest, orphaned, deletedNow), wait},
		"but not longer than its remediator may need":                   {of(checkRequest, orphaned, deletedLong), unmark},
		"the controller of NodeHealthChecks deletes its requests":       {of(nodeCheckRequest, served), wait},
		"and waits for their remediators":                               {of(nodeCheckRequest, served, deletedNow), wait},
		"one that clings to its request is not waited for without end":  {of(nodeCheckRequest, served, deletedLong), unmark},
		"a request is not deleted where NodeHealthChecks are another's": {of(nodeCheckRequest), unmark},
		"a power cycle releases in its own order":                       {of(remediation, served), wait},
		"also one that is being deleted for long":                       {of(remediation, served, deletedLong), wait},
		"where no controller acts on its kind it is forgotten":          {of(remediation), unmark},
		"a hold on a host is never cut":                                 {of(hostPower), wait},
		"a host stays marked as unhealthy, without our memory of it":    {of(hostMark), unmark},
		"what a Machine says is not kept true any more":                 {of(machineCondition), strip},
		"a fence belongs to its remediation":                            {of(nodeFence), wait},
		"one without a remediation is taken away":                       {of(nodeFence, orphaned), unfence},
		"a lease is given back after the requests":                      {of(nodeLease), wait},
		"a cluster that does not answer is asked again":                 {of(unseen, failedNow), wait},
		"and passed over at last, which is said":                        {of(unseen, failedLong), pass},
	} {
		got, why := decide(tc.given, noon)
		if got != tc.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, tc.want)
		}
	}
}

// What would cut a power cycle short, or end what somebody else may be doing, is never done.
func TestNothingIsCutShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.SampledFrom([]time.Time{{}, ago(time.Hour), ago(patience), ago(time.Second)})
		f := facts{
			what: rapid.SampledFrom(whats).Draw(t, "what"), served: rapid.Bool().Draw(t, "served"), orphaned: rapid.Bool().Draw(t, "orphaned"),
			deleted: moment.Draw(t, "deleted"), failed: moment.Draw(t, "failed"),
		}
		do, why := decide(f, noon)
		switch {
		case do == erase && (f.what != checkRequest || !f.orphaned):
			t.Fatalf("%+v: deletes what somebody may still end", f)
		case (f.what == hostPower || f.what == remediation && f.served) && do != wait:
			t.Fatalf("%+v: %s, which only the power cycle may", f, do)
		case do == unfence && !f.orphaned:
			t.Fatalf("%+v: takes a fence away that a remediation looks after", f)
		case do == pass && f.what != unseen:
			t.Fatalf("%+v: leaves something behind that can be seen", f)
		case strings.TrimSpace(why) == "":
			t.Fatalf("%+v: %s without a reason", f, do)
		}
	})
}

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
