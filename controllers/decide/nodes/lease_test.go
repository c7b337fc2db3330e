package nodes

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestLeaseStep(t *testing.T) {
	classic, step := Term{Length: defaultTerm}, Term{Length: 5 * time.Minute, Overdue: 15 * time.Minute}
	for name, tc := range map[string]struct {
		lease *Lease
		term  Term
		since time.Duration // ago
		want  LeaseAction
	}{
		"none is taken":                                             {nil, classic, time.Minute, TakeLease},
		"a fresh one of ours is kept":                               {leaseOf(us, 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"ours is kept for half its term":                            {leaseOf(us, 11*time.Minute, 5*time.Minute, 299*time.Second), classic, 0, KeepLease},
		"ours is renewed after half its term":                       {leaseOf(us, 11*time.Minute, 6*time.Minute, 5*time.Minute), classic, 0, RenewLease},
		"C53: ours is renewed for the next step's term":             {leaseOf(us, 11*time.Minute, 0, 0), step, 0, RenewLease},
		"somebody else's is theirs":                                 {leaseOf("NMO", 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"C42: somebody else's that has expired is taken over":       {leaseOf("NMO", 60*time.Second, 2*time.Minute, 61*time.Second), classic, 0, TakeLease},
		"one renewed in the future counts for nothing":              {leaseOf("NMO", 60*time.Second, 0, -time.Hour), classic, 0, TakeLease},
		"one without a holder is taken":                             {leaseOf("", 60*time.Second, 0, 0), classic, 0, TakeLease},
		"W13: without a ladder it is renewed for ever":              {leaseOf(us, 11*time.Minute, 100*time.Hour, 6*time.Minute), classic, 100 * time.Hour, RenewLease},
		"C42: with a ladder that leads nowhere it is given back":    {leaseOf(us, 6*time.Minute, 901*time.Second, 0), step, 901 * time.Second, DropLease},
		"given back, it is not taken again":                         {nil, step, 901 * time.Second, KeepLease},
		"given back and somebody else's, it is theirs":              {leaseOf("NMO", 6*time.Minute, 0, 0), step, 901 * time.Second, KeepLease},
		"at three times its term it is just not overdue":            {leaseOf(us, 6*time.Minute, 15*time.Minute, 5*time.Minute), step, 15 * time.Minute, RenewLease},
		"lost in the middle of a remediation it is taken once more": {nil, step, 10 * time.Minute, TakeLease},
	} {
		t.Run(name, func(t *testing.T) {
			got, again := tc.lease.next(tc.term, epoch.Add(-tc.since), epoch)
			if got != tc.want {
				t.Errorf("next() = %v, want %v", got, tc.want)
			}
			if !again.IsZero() && !again.After(epoch) {
				t.Errorf("to be looked at again at %v, which is over", again)
			}
		})
	}
}

func TestTheTermOfALeaseIsThatOfItsStep(t *testing.T) {
	steps := []escalation.Step{{Timeout: 3 * time.Minute}, {Timeout: 20 * time.Minute}, {Timeout: time.Minute}}
	for step, want := range map[int]Term{
		-1: {Length: defaultTerm},
		0:  {Length: 3 * time.Minute, Overdue: 9 * time.Minute},
		1:  {Length: 20 * time.Minute, Overdue: 63 * time.Minute}, // W2: of two templates of a kind, each has its own
		2:  {Length: time.Minute, Overdue: 26 * time.Minute},
		3:  {Length: defaultTerm},
	} {
		if got := termOf(steps, step); got != want {
			t.Errorf("termOf(%d) = %v, want %v", step, got, want)
		}
	}
}

func TestALeaseOfOursWithoutATimeCountsFromTheRemediation(t *testing.T) {
	lease, step := leaseOf(us, 6*time.Minute, 0, 0), Term{Length: 5 * time.Minute, Overdue: 15 * time.Minute}
	lease.Acquired = time.Time{}
	if got, _ := lease.next(step, epoch.Add(-901*time.Second), epoch); got != DropLease {
		t.Errorf("got %v, want it to be given back", got)
	}
}

func TestARenewedLeaseIsRenewedAgainAfterHalfItsTerm(t *testing.T) {
	got, again := leaseOf(us, 11*time.Minute, 6*time.Minute, 6*time.Minute).next(Term{Length: defaultTerm}, epoch, epoch)
	if want := epoch.Add(defaultTerm / 2); got != RenewLease || !again.Equal(want) {
		t.Errorf("got %v and again at %s, want it renewed and again at %s", got, again, want)
	}
}

func TestALeaseOfAnyTimeoutIsOne(t *testing.T) {
	if got := (Term{Length: 999999 * time.Hour}).Seconds(); got <= 0 {
		t.Errorf("a lease of %d s", got)
	}
}
