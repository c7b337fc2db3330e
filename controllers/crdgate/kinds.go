package crdgate

import (
	"slices"
	"sync"
)

// Kind is whether a kind is served, and why not.
type Kind struct {
	// CRD is the name of its CustomResourceDefinition.
	CRD string
	// Reason is why it is not served, as in the metric; empty if it is. Because is the same in a sentence.
	Reason, Because string
}

// known are the kinds that were looked at. It has a lock of its own: who asks is not to wait for a controller that is being started.
type known struct {
	mu    sync.Mutex
	kinds []Kind
}

// note reports whether it is new.
func (k *known) note(is Kind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.IndexFunc(k.kinds, func(was Kind) bool { return was.CRD == is.CRD })
	if at < 0 {
		k.kinds = append(k.kinds, is)
		return true
	}
	changed := k.kinds[at] != is
	k.kinds[at] = is
	return changed
}

// Kinds are those that were looked at, in the order in which they were first.
func (r *Reconciler) Kinds() []Kind {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return slices.Clone(r.known.kinds)
}
