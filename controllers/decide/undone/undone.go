// Package undone says when kubemend repeats an action that another client undoes, and which client that may be.
package undone

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Tells is after how many repetitions a message reports this: a client that undoes an action once may have a good reason.
const Tells = 3

// Did is an action that was done Times times in a row, the last time at At. If an action is decided again although it was done, another
// client has undone it.
type Did[T comparable] struct {
	Do    T
	Times int
	At    time.Time
}

// Again returns d after do was done at now.
func (d Did[T]) Again(do T, now time.Time) Did[T] {
	if d.Do != do {
		d.Times = 0
	}
	return Did[T]{Do: do, Times: d.Times + 1, At: now}
}

// Until returns when the action may be repeated: after a second, then after twice as long each time, up to five minutes. Without this wait
// two clients would undo each other's writes as fast as they can. If At is in the future, the clock was corrected, and there is no wait.
func (d Did[T]) Until(now time.Time) time.Time {
	if d.At.After(now) {
		return now
	}
	return d.At.Add(min(time.Second<<min(max(d.Times-1, 0), 9), 5*time.Minute))
}

// WritersSince names the clients, except kubemend, that have written obj, or the subresource, since a time in whole seconds; empty if there
// are none. A client that only removed something may be missing: for a removal the API server does not update the time in managedFields.
func WritersSince(obj metav1.Object, subresource string, since time.Time) string {
	var names []string
	for _, entry := range obj.GetManagedFields() {
		newer := entry.Time != nil && !entry.Time.Time.Before(since.Truncate(time.Second))
		if newer && entry.Subresource == subresource && entry.Manager != mendv1.FieldOwner && entry.Manager != mendv1.ClaimFieldOwner {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// Text is the message that another client, likely one of writers, has removed three times in a row what kubemend writes.
func Text(what, writers string) string {
	if writers != "" {
		writers = ", likely " + writers + ","
	}
	return "Another client" + writers + " removes the " + what + " that kubemend sets again and again. " +
		"They are set again ever more rarely, up to every five minutes: see metadata.managedFields and the audit log"
}
