// Package undone tells when to do once more what another client undoes, and who that may be.
package undone

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Tells is after how many times in a row users are told: a client that undoes something once may have good reason.
const Tells = 3

// Did is an action that was done so many times in a row, the last time at At. What is decided once more although it was done, another
// client has undone.
type Did[T comparable] struct {
	Do    T
	Times int
	At    time.Time
}

// Again is what was done after do was done once more at now.
func (d Did[T]) Again(do T, now time.Time) Did[T] {
	if d.Do != do {
		d.Times = 0
	}
	return Did[T]{Do: do, Times: d.Times + 1, At: now}
}

// Until is when the action may be done again: after a second, then after twice as long each time, up to five minutes. Two clients that undo
// what the other does would else write as fast as they can. A moment that has not come is of a clock that was corrected since.
func (d Did[T]) Until(now time.Time) time.Time {
	if d.At.After(now) {
		return now
	}
	return d.At.Add(min(time.Second<<min(max(d.Times-1, 0), 9), 5*time.Minute))
}

// WritersSince names the clients, but for kubemend, that have written obj, or a subresource of it, since; empty if there are none. The API
// server does not move the stamp of one that has only removed something, so that it need not be one of them. Its stamps are whole seconds.
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

// Text says that another client, likely one of writers, removes what kubemend writes, three times in a row so far.
func Text(what, writers string) string {
	if writers != "" {
		writers = ", likely " + writers + ","
	}
	return "Another client" + writers + " removes the " + what + " that kubemend sets again and again. " +
		"They are set again ever more rarely, up to every five minutes: see metadata.managedFields and the audit log"
}
