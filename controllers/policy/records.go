package policy

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

// FollowRecords counts the remediations of the open records in a cache.
func (l *Ledger) FollowRecords(informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { l.Follow(o.(*mendv1.RemediationRecord), true) },
		UpdateFunc: func(_, o any) { l.Follow(o.(*mendv1.RemediationRecord), true) },
		DeleteFunc: func(o any) {
			if late, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = late.Obj
			}
			if record, is := o.(*mendv1.RemediationRecord); is {
				l.Follow(record, false)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch RemediationRecords for RemediationPolicies: %w", err)
	}
	return nil
}

// Follow counts the remediation of a record that has begun, whose target may be gone: for maxPerHour during an hour, for other limits until
// the record has ended or the capacity is back. A record can only raise counts.
func (l *Ledger) Follow(record *mendv1.RemediationRecord, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, e := client.ObjectKeyFromObject(record), recorded(record)
	before := l.records[key]
	if before != nil {
		l.remove(before)
		delete(l.records, key)
	}
	counts := exists && e != nil
	if counts {
		if before != nil { // the target may be gone, and its labels known from before
			e.Target = before.Target
		}
		if l.records == nil {
			l.records = map[types.NamespacedName]*entry{}
		}
		e.Target = l.known(e)
		l.records[key] = e
		l.place(e)
	}
	if before != nil && (!counts || e.stalled.IsZero()) {
		l.offer(Check{})
	}
}

// recorded returns the entry of a record; nil if the record does not count. If no check reports the target any more, it counts from the
// last attempt on, because a manager may have died before it wrote that the remediation has begun.
func recorded(record *mendv1.RemediationRecord) *entry {
	status, of := &record.Status, &record.Spec.Target
	check := cmp.Or(record.Spec.Requester.Check, &mendv1.RecordRef{})
	target := &Target{
		Namespace: record.Namespace, Cluster: of.ClusterName, FailureDomain: of.FailureDomain, Kind: check.Kind, Check: check.Name,
	}
	e := &entry{Target: target, check: Check{check.Kind, types.NamespacedName{Namespace: record.Namespace, Name: check.Name}}}
	if check.Kind == NodeHealthCheck {
		e.check.Namespace = ""
	}
	switch {
	case check.Kind == NodeHealthCheck && of.Node != nil:
		target.UID, target.Name = place.NodeID(of.Node.Name), of.Node.Name
	case of.Machine != nil:
		target.UID, target.Name = types.UID(of.Machine.UID), of.Machine.Name
	}
	begun := cmp.Or(status.Begun, status.Attempted)
	if target.UID == "" || begun == nil || status.Begun == nil && !record.Open() {
		return nil
	}
	e.begun, e.attempted = begun.Time, status.Begun == nil
	if record.Open() && status.CapacityBack == nil {
		stepped := begun.Time
		if n := len(status.Steps); n > 0 && status.Steps[n-1].Time.After(stepped) {
			stepped = status.Steps[n-1].Time.Time
		}
		e.stalled = stepped.Add(stalledAfter)
	}
	return e
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
