package remediationrecord

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// checkIndex finds open records by the MachineHealthCheck that asked for them.
const checkIndex = "kubemend.recordCheck"

// AddIndexes adds the index that MissingOf lists by.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &mendv1.RemediationRecord{}, checkIndex, byCheck); err != nil {
		return fmt.Errorf("index RemediationRecords by check: %w", err)
	}
	return nil
}

// byCheck are the values of the index for a record.
func byCheck(o client.Object) []string {
	if check, is := checkOf(o.(*mendv1.RemediationRecord)); is {
		return []string{check.String()}
	}
	return nil
}

// checkOf is the MachineHealthCheck that asked for the remediation of a record.
func checkOf(is *mendv1.RemediationRecord) (types.NamespacedName, bool) {
	by := is.Spec.Requester.Check
	if by == nil || by.Kind != "MachineHealthCheck" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: by.Namespace, Name: by.Name}, true
}

// Hear makes hear the function that is called with each MachineHealthCheck of which something else is missing than before.
func (r *Records) Hear(hear func(check types.NamespacedName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hear = hear
}

// Followed says that the cache has all open records, and the index of AddIndexes. The checks that asked before are called.
func (r *Records) Followed() {
	r.mu.Lock()
	asked, hear := r.asked, r.hear
	r.asked, r.followed = nil, true
	r.mu.Unlock()
	for check := range asked {
		if hear != nil {
			hear(check)
		}
	}
}

// MissingOf is the capacity that is missing of a MachineHealthCheck; what was due first comes first. It is not known before the cache has all open records,
// nor where these are not installed.
func (r *Records) MissingOf(ctx context.Context, check types.NamespacedName) (all []Missing, known bool, err error) {
	if r == nil || !r.mayBeAsked(check) {
		return nil, false, nil
	}
	list := &mendv1.RemediationRecordList{}
	of := client.MatchingFields{checkIndex: check.String()}
	if err := r.Client.List(ctx, list, client.InNamespace(check.Namespace), of, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("list the open records of MachineHealthCheck %s: %w", check, err)
	}
	counted := map[mendv1.RecordRef]bool{}
	for i := range list.Items {
		if is := MissingBy(&list.Items[i]); is != nil && !counted[is.Target] {
			counted[is.Target] = true
			all = append(all, *is)
		}
	}
	OldestFirst(all)
	return all, true, nil
}

// mayBeAsked reports whether the cache has all open records, and remembers who asks too early.
func (r *Records) mayBeAsked(check types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.followed {
		if r.asked == nil {
			r.asked = map[types.NamespacedName]bool{}
		}
		r.asked[check] = true
	}
	return r.followed
}

// Changes calls the checks of which something else is missing than before. What is waited for in other words is no change.
func (r *Records) Changes() toolscache.ResourceEventHandler {
	changed := func(before, after any) {
		was, _ := before.(*mendv1.RemediationRecord)
		is, _ := after.(*mendv1.RemediationRecord)
		of := is
		if is == nil {
			of = was
		}
		if of == nil || reasonOf(was) == reasonOf(is) {
			return
		}
		r.mu.Lock()
		hear := r.hear
		r.mu.Unlock()
		if check, known := checkOf(of); known && hear != nil {
			hear(check)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: changed,
		DeleteFunc: func(o any) {
			if gone, late := o.(toolscache.DeletedFinalStateUnknown); late {
				o = gone.Obj
			}
			changed(o, nil)
		},
	}
}

// reasonOf is what is waited for by a record; empty if nothing is missing by it.
func reasonOf(is *mendv1.RemediationRecord) string {
	if is == nil {
		return ""
	}
	if m := MissingBy(is); m != nil {
		return m.Reason
	}
	return ""
}
