package crdgate

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/component-base/featuregate"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// known are the kinds that were looked at. It has a lock of its own: who asks is not to wait for a controller that is being started.
type known struct {
	mu    sync.Mutex
	kinds []managerlease.Kind
}

// note reports whether it is new.
func (k *known) note(is managerlease.Kind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.IndexFunc(k.kinds, func(was managerlease.Kind) bool { return was.CRD == is.CRD })
	if at < 0 {
		k.kinds = append(k.kinds, is)
		return true
	}
	changed := k.kinds[at] != is
	k.kinds[at] = is
	return changed
}

// Kinds are all kinds that the manager knows, by the names of their CustomResourceDefinitions: those whose state is fixed, and those that were looked at.
func (r *Reconciler) Kinds() []managerlease.Kind {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	kinds := slices.Clone(r.Fixed)
	for _, k := range r.known.kinds {
		if !slices.ContainsFunc(r.Fixed, func(fixed managerlease.Kind) bool { return fixed.CRD == k.CRD }) {
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b managerlease.Kind) int { return cmp.Compare(a.CRD, b.CRD) })
	return kinds
}

// Gated are the kinds that a closed feature gate keeps from being served, for Reconciler.Fixed.
func Gated(gate featuregate.Feature, crds ...string) []managerlease.Kind {
	kinds := make([]managerlease.Kind, 0, len(crds))
	for _, crd := range crds {
		kinds = append(kinds, managerlease.Kind{CRD: crd, Reason: OffReason, Because: "the feature gate " + string(gate) + " is off"})
	}
	return kinds
}
