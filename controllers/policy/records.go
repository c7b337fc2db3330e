package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Record counts the remediation of a record, whose target may be gone. It can only make numbers larger. target is nil for a record that is
// gone, or not begun. One that is attempted has not begun, as far as it says; stepped is zero for one that counts for maxPerHour alone.
func (l *Ledger) Record(record types.NamespacedName, target *Target, attempted bool, begun, stepped time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.records[record]
	if before != nil {
		l.remove(before)
		delete(l.records, record)
	}
	if target == nil {
		if before != nil {
			l.offer(Check{})
		}
		return
	}
	if l.records == nil {
		l.records = map[types.NamespacedName]*entry{}
	}
	check := Check{target.Kind, types.NamespacedName{Namespace: target.Namespace, Name: target.Check}}
	if check.Kind == NodeHealthCheck {
		check.Namespace = ""
	}
	if before != nil { // it may know the labels of a target that is gone
		target = before.Target
	}
	e := &entry{Target: target, check: check, attempted: attempted, begun: begun}
	if !stepped.IsZero() {
		e.stalled = stepped.Add(stalledAfter)
	}
	e.Target = l.known(e)
	l.records[record] = e
	l.place(e)
	if before != nil && stepped.IsZero() {
		l.offer(Check{})
	}
}

// known is the target of a record with what its check has reported, of it or of others: a record tells no labels.
func (l *Ledger) known(e *entry) *Target {
	if same := l.checks[e.check][e.UID]; same != nil {
		return same.Target
	}
	if e.ClusterLabels != nil {
		return e.Target
	}
	for _, other := range l.checks[e.check] {
		target := *e.Target
		target.ClusterLabels, target.CheckLabels = other.ClusterLabels, other.CheckLabels
		return &target
	}
	return e.Target
}

// asksItself reports whether e is a remediation that has not begun, by its record, and whose target is reported: that asks for its place.
func (l *Ledger) asksItself(e *entry) bool {
	if !e.attempted {
		return false
	}
	for _, entries := range l.checks {
		if entries[e.UID] != nil {
			return true
		}
	}
	return false
}

func (l *Ledger) knowRecordsOf(check Check) {
	for _, e := range l.records {
		if e.check == check {
			l.remove(e)
			e.Target = l.known(e)
			l.place(e)
		}
	}
}
