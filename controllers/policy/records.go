package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Record counts the remediation of a record, whose target may be gone. A record can only raise counts. target is nil if the record does not
// count any more. attempted says that the record has not begun yet. stepped is its last step; zero if it counts for maxPerHour only.
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
	if before != nil { // the target may be gone, and its labels known from before
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

// known returns the target of a record, which has no labels, with the labels that its check has reported for it or for another target.
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

// asksItself reports whether e is a record that has not begun whose target a check reports. That target then asks for its own place.
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
