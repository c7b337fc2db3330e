package bmo

import (
	"encoding/json"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Looks are the moments at which BMO looks at a host: when it hears of a change of what others write, and when it wants to look again. The zero
// value has looked at nothing. With a work queue it is not needed.
type Looks struct {
	heard string
	again time.Time
}

// Due reports whether BMO looks at bmh now, which it has heard of then.
func (l *Looks) Due(bmh *bmov1alpha1.BareMetalHost, now time.Time) bool {
	spec, err := json.Marshal(bmh.Spec) // it has pointers, which differ between copies
	told := fmt.Sprint(bmh.UID, bmh.Annotations, bmh.Finalizers, bmh.DeletionTimestamp, string(spec), err)
	if told == l.heard && (l.again.IsZero() || now.Before(l.again)) {
		return false
	}
	l.heard, l.again = told, time.Time{}
	return true
}

// Note notes when BMO wants to look again after a reconcile.
func (l *Looks) Note(done Pass, now time.Time) {
	switch {
	case done.Again:
		l.again = now
	case done.After > 0:
		l.again = now.Add(done.After)
	}
}

// Next is when it wants to look again; zero if it does not.
func (l *Looks) Next() time.Time { return l.again }

// Now makes it look again now.
func (l *Looks) Now(now time.Time) { l.again = now }

// Restart makes it look at everything anew.
func (l *Looks) Restart() { l.heard = "" }

// Forget makes it want nothing of a host that is gone.
func (l *Looks) Forget() { l.again = time.Time{} }
