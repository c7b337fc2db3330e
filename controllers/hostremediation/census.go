package hostremediation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// census are the remediations that live in a namespace, of all kinds, whoever serves them. What a remediation remembers is an annotation, which
// whoever creates it can write: it is believed only where it agrees with who lives. (docs/security.md)
type census struct {
	all []client.Object
	own map[types.UID]bool
}

// censusOf counts the remediations of a namespace.
func censusOf(ctx context.Context, reader client.Reader, kinds []Kind, namespace string) (census, error) {
	c := census{own: map[types.UID]bool{}}
	for _, kind := range kinds {
		all, err := kind.all(ctx, reader, namespace)
		if err != nil {
			return census{}, err
		}
		c.all = append(c.all, all...)
	}
	for _, rem := range c.all {
		c.own[rem.GetUID()] = true
	}
	return c, nil
}

// former is the UID that rem had before `clusterctl move`; empty if it had none, or if what it remembers cannot be so: a remediation lives that has
// that UID, or the record is not about the machine that owns rem.
func (c census) former(rem client.Object) types.UID {
	rec, owner := remembered(rem), ownerOf(rem)
	if rec.UID == rem.GetUID() || c.own[rec.UID] || owner == nil || rec.Machine != owner.Name {
		return ""
	}
	return rec.UID
}

// lives reports whether a remediation has that UID, or had it before it was moved.
func (c census) lives(uid types.UID) bool {
	if c.own[uid] {
		return true
	}
	for _, rem := range c.all {
		if uid != "" && c.former(rem) == uid {
			return true
		}
	}
	return false
}

// census counts those of the namespace of w.
func (r *Reconciler) census(ctx context.Context, w *observed) (census, error) {
	kinds, err := r.Installed()
	if err != nil {
		return census{}, err
	}
	return censusOf(ctx, r.Client, kinds, w.rem.GetNamespace())
}

// doubt drops what w remembers that cannot be so: a UID that it never had, and moments that have not come.
func (r *Reconciler) doubt(ctx context.Context, w *observed) error {
	w.record.Memory = notAfter(w.record.Memory, w.now)
	if w.record.UID == "" || w.record.UID == w.rem.GetUID() {
		return nil
	}
	c, err := r.census(ctx, w)
	if err != nil {
		return err
	}
	w.record.UID = c.former(w.rem)
	return nil
}

// notAfter is m without moments that come after now: a clock that never runs out would keep those waiting for ever that come next.
func notAfter(m powercycle.Memory, now time.Time) powercycle.Memory {
	for _, at := range []*time.Time{&m.Since, &m.Began, &m.Asked, &m.Unseen, &m.Paused} {
		if at.After(now) {
			*at = now
		}
	}
	return m
}
