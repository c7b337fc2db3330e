package nodes

import (
	"math"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// A lease on a node is how checks, and the node maintenance of medik8s, keep out of each other's way: who holds it remediates.
const (
	// defaultTerm is for how long a node is leased where no step has a timeout.
	defaultTerm = 10 * time.Minute
	// leaseBuffer is by how much a lease outlasts what it is for.
	leaseBuffer = time.Minute
	// leaseTaken is how soon a node is looked at again whose lease somebody else holds.
	leaseTaken = time.Minute
	// idleLease is how long a node stays leased after its only remediator stopped. (medik8s times a single remediation out after as long.)
	idleLease = 30 * time.Minute
	// skew is by how much the clock of another holder may be ahead of ours.
	skew = 30 * time.Second
)

// Lease is the lease on a node.
type Lease struct {
	Holder            string // empty if it has none
	Own               bool   // the check has it
	Acquired, Renewed time.Time
	Duration          time.Duration
}

// Term is for how long a node is leased, and after how long an escalation that leads nowhere gives the lease up.
type Term struct {
	Length  time.Duration
	Overdue time.Duration // zero: never
}

// Seconds is how long a lease for the term lasts.
func (t Term) Seconds() int32 {
	return int32(min((t.Length+leaseBuffer)/time.Second, math.MaxInt32))
}

// termOf is the term while a step is in use. (medik8s looks a step up by the kind of its template, and so takes that of another one.)
func termOf(steps []escalation.Step, step int) Term {
	if step < 0 || step >= len(steps) || steps[step].Timeout == 0 {
		return Term{Length: defaultTerm}
	}
	length := steps[step].Timeout
	t := Term{Length: length, Overdue: 3 * length}
	for _, before := range steps[:step] {
		t.Overdue += before.Timeout
	}
	return t
}

// Held reports whether another holder has the lease now. One renewed in the future counts for nothing (medik8s), but for a skew of clocks.
func (l *Lease) Held(now time.Time) bool {
	if l == nil || l.Holder == "" || l.Own || l.Renewed.IsZero() {
		return false
	}
	return now.Before(l.expiry()) && !l.Renewed.After(now.Add(skew))
}

func (l *Lease) own() bool { return l != nil && l.Own }

func (l *Lease) expiry() time.Time {
	if l.Renewed.IsZero() {
		return time.Time{}
	}
	return l.Renewed.Add(l.Duration)
}

// next says what to do about the lease of a node that is being remediated since the given moment, and when to look again.
func (l *Lease) next(t Term, since, now time.Time) (LeaseAction, time.Time) {
	acquired := since
	if l.own() && !l.Acquired.IsZero() {
		acquired = l.Acquired
	}
	if overdue := acquired.Add(t.Overdue); t.Overdue > 0 && now.After(overdue) {
		if l.own() {
			return DropLease, time.Time{}
		}
		return KeepLease, time.Time{}
	}
	switch {
	case l.Held(now):
		return KeepLease, l.expiry()
	case !l.own():
		return TakeLease, now.Add(t.Length)
	}
	// Renewed so early that a manager that is away for half the term loses nothing, and when the term is another step's.
	if renew := l.expiry().Add(-leaseBuffer - t.Length/2); now.Before(renew) && l.Duration == time.Duration(t.Seconds())*time.Second {
		return KeepLease, renew
	}
	return RenewLease, now.Add(t.Length / 2)
}
