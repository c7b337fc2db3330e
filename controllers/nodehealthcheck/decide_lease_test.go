package nodehealthcheck

import (
	"testing"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
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
		"a fresh one of ours is kept":                               {leaseFor(us, 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"ours is kept for half its term":                            {leaseFor(us, 11*time.Minute, 5*time.Minute, 299*time.Second), classic, 0, KeepLease},
		"ours is renewed after half its term":                       {leaseFor(us, 11*time.Minute, 6*time.Minute, 5*time.Minute), classic, 0, RenewLease},
		"C53: ours is renewed for the next step's term":             {leaseFor(us, 11*time.Minute, 0, 0), step, 0, RenewLease},
		"C41: somebody else's is theirs":                            {leaseFor("NMO", 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"C42: somebody else's that has expired is taken over":       {leaseFor("NMO", 60*time.Second, 2*time.Minute, 61*time.Second), classic, 0, TakeLease},
		"one renewed in the future counts for nothing":              {leaseFor("NMO", 60*time.Second, 0, -time.Hour), classic, 0, TakeLease},
		"one renewed a little in the future counts: clocks differ":  {leaseFor("NMO", 60*time.Second, 0, -30*time.Second), classic, 0, KeepLease},
		"by more than that it does not":                             {leaseFor("NMO", 60*time.Second, 0, -31*time.Second), classic, 0, TakeLease},
		"one without a holder is taken":                             {leaseFor("", 60*time.Second, 0, 0), classic, 0, TakeLease},
		"W13: without a ladder it is renewed for ever":              {leaseFor(us, 11*time.Minute, 100*time.Hour, 6*time.Minute), classic, 100 * time.Hour, RenewLease},
		"C42: with a ladder that leads nowhere it is given back":    {leaseFor(us, 6*time.Minute, 901*time.Second, 0), step, 901 * time.Second, DropLease},
		"given back, it is not taken again":                         {nil, step, 901 * time.Second, KeepLease},
		"given back and somebody else's, it is theirs":              {leaseFor("NMO", 6*time.Minute, 0, 0), step, 901 * time.Second, KeepLease},
		"at three times its term it is just not overdue":            {leaseFor(us, 6*time.Minute, 15*time.Minute, 5*time.Minute), step, 15 * time.Minute, RenewLease},
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
	lease, step := leaseFor(us, 6*time.Minute, 0, 0), Term{Length: 5 * time.Minute, Overdue: 15 * time.Minute}
	lease.Spec.AcquireTime = nil
	if got, _ := lease.next(step, epoch.Add(-901*time.Second), epoch); got != DropLease {
		t.Errorf("got %v, want it to be given back", got)
	}
}

func TestARenewedLeaseIsRenewedAgainAfterHalfItsTerm(t *testing.T) {
	got, again := leaseFor(us, 11*time.Minute, 6*time.Minute, 6*time.Minute).next(Term{Length: defaultTerm}, epoch, epoch)
	if want := epoch.Add(defaultTerm / 2); got != RenewLease || !again.Equal(want) {
		t.Errorf("got %v and again at %s, want it renewed and again at %s", got, again, want)
	}
}

func TestALeaseOfAnyTimeoutIsOne(t *testing.T) {
	if got := (Term{Length: 999999 * time.Hour}).Seconds(); got <= 0 {
		t.Errorf("a lease of %d s", got)
	}
}

// Leases of nodes, as Decide has them taken, kept and given back.
func TestTheLeaseOfANode(t *testing.T) {
	const minute = time.Minute
	two := steps(reboot(0), reboot(0))
	step, single := Term{Length: 5 * minute}, Term{Length: defaultTerm}
	last := Term{Length: 5 * minute, Overdue: 20 * minute} // three times the last timeout, and the one before it
	ours := func(length, acquired time.Duration) func(*Node) { return leased(leaseFor(us, length, acquired, 0)) }
	longest := func(f *Facts) { f.Templates[1].Step.Timeout.Duration = 20 * minute }
	stopped := func(ago time.Duration) func(*Request) {
		return func(r *Request) {
			says(nhcv1.ProcessingCondition, escalation.No, ago)(r)
			startedBefore(2 * time.Hour)(r)
		}
	}
	hasFailed := func(ago time.Duration) func(*Request) {
		return func(r *Request) {
			says(nhcv1.SucceededCondition, escalation.No, ago)(r)
			startedBefore(2 * time.Hour)(r)
		}
	}
	unsure := succeeded(escalation.Unsure)
	for name, tc := range map[string]struct {
		given Facts
		want  LeaseAction
		term  Term
	}{
		"C40: is taken for the time of the step":                 {of(lost(asked())).with(two), TakeLease, step},
		"W2: for that of the highest one that has a request":     {of(lost(asked(on(1)), asked())).with(two, longest), TakeLease, Term{Length: 20 * minute}},
		"for that of one that cannot be read":                    {of(lost(func(n *Node) { n.Unseen = []Listed{was(1, 0)} })).with(two, longest), TakeLease, Term{Length: 20 * minute}},
		"for ten minutes without a timeout":                      {of(lost(asked())), TakeLease, single},
		"for ten minutes if the template is not named now":       {of(lost(asked(on(-1)), since(minute))).with(two), TakeLease, single},
		"is kept while it is fresh":                              {of(lost(asked(), ours(6*minute, 0))).with(two), KeepLease, step},
		"W14: is kept however long a step goes on":               {of(lost(asked(startedBefore(4*minute)), ours(6*minute, 90*minute))).with(two), KeepLease, step},
		"is kept for a while when no step is left":               {of(lost(asked(on(1), notified), ours(6*minute, 19*minute))).with(two), KeepLease, last},
		"is given back after it":                                 {of(lost(asked(on(1), notified), ours(6*minute, 21*minute))).with(two), DropLease, last},
		"is not given back while a step is left":                 {of(lost(asked(failed), ours(6*minute, 21*minute))).with(two, pausedBy("me")), KeepLease, step},
		"is given back half an hour after a failure":             {of(lost(asked(hasFailed(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"and not before":                                         {of(lost(asked(hasFailed(30*minute-1)), ours(11*minute, 0))), KeepLease, single},
		"given back, it is not taken again":                      {of(lost(asked(hasFailed(30 * minute)))), KeepLease, Term{}},
		"is given back half an hour after a stop":                {of(lost(asked(stopped(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"but not if its end is in doubt":                         {of(lost(asked(stopped(30*minute), unsure), ours(11*minute, 0))), KeepLease, single},
		"nor while the remediator is at work":                    {of(lost(asked(startedBefore(2*time.Hour)), ours(11*minute, 0))), KeepLease, single},
		"nor while that of one of two requests is":               {of(lost(asked(hasFailed(time.Hour)), asked(), ours(11*minute, 0))), KeepLease, single},
		"nor while a request cannot be read":                     {of(lost(asked(hasFailed(time.Hour)), unseen, ours(11*minute, 0))), KeepLease, single},
		"nor while an orphaned one is there":                     {of(lost(asked(hasFailed(time.Hour)), orphaned, ours(11*minute, 0))), KeepLease, single},
		"nor while steps are left":                               {of(lost(asked(hasFailed(time.Hour)), ours(6*minute, 0))).with(two, pausedBy("me")), KeepLease, step},
		"half an hour after the later one of two failures":       {of(lost(asked(hasFailed(time.Hour)), asked(hasFailed(29*minute)), ours(11*minute, 0))), KeepLease, single},
		"counted from the request, if it was made later":         {of(lost(asked(hasFailed(time.Hour), startedBefore(29*minute)), ours(11*minute, 0))), KeepLease, single},
		"and half an hour after a deletion that is not done":     {of(healthy(asked(deleting(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"of a node that a person has deleted is given back":      {of(gone(ours(11*minute, 0))), DropLease, Term{}},
		"that another holder has is not":                         {of(healthy(leased(leaseFor("NMO", time.Hour, 0, 0)))), KeepLease, Term{}},
		"of a node whose request somebody has deleted stays":     {of(lost(deleted(was(0, 10*time.Second)), ours(11*minute, 0))), KeepLease, Term{}},
		"but not if nothing will be made again":                  {of(lost(unselected, deleted(was(0, 10*time.Second)), ours(11*minute, 0))), DropLease, Term{}},
		"of a pending node without a request is given back":      {of(lost(since(minute), ours(11*minute, 0))), DropLease, Term{}},
		"of a healthy node stays while an orphaned one is there": {of(healthy(orphaned, deleted(Listed{}), ours(11*minute, 0))), KeepLease, single},
		"is taken for an orphaned request":                       {of(healthy(orphaned)), TakeLease, single},
		"also if the status remembers another one":               {of(healthy(orphaned, deleted(Listed{}))), TakeLease, single},
		"is taken when the first step starts":                    {of(lost()).with(two), TakeLease, Term{Length: 5 * minute, Overdue: 15 * minute}},
		"is renewed then if it is one of ours from before":       {of(lost(ours(6*minute, time.Hour))).with(two), RenewLease, Term{Length: 5 * minute, Overdue: 15 * minute}},
		"of a check without a template is given back":            {of(lost(ours(11*minute, 0))).with(steps()), DropLease, Term{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := &p.Decisions[0]
			if d.Lease != tc.want || d.Term != tc.term {
				t.Errorf("got %v for %+v, want %v for %+v", d.Lease, d.Term, tc.want, tc.term)
			}
			if n := &tc.given.Nodes[0]; d.Lease == KeepLease && n.Lease.own() && (p.Recheck.IsZero() || p.Recheck.After(n.Lease.expiry())) {
				t.Errorf("the lease expires at %s, and is looked at again at %s", n.Lease.expiry(), p.Recheck)
			}
		})
	}
}
