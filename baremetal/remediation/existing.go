package remediation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
)

// Existing are the remediations of a namespace, of all kinds, whichever controller acts on them. What a remediation remembers is an
// annotation, which a tenant can write: it is believed only where it agrees with what exists. (docs/security.md)
type Existing struct {
	// All are shared: read only.
	All []OfKind
	own map[types.UID]bool
}

// OfKind is a remediation with its kind.
type OfKind struct {
	client.Object
	Kind Kind
}

// Installed returns the kinds of remediations whose CRDs exist.
type Installed func() ([]Kind, error)

// In lists the remediations of a namespace.
func (installed Installed) In(ctx context.Context, reader client.Reader, namespace string) (Existing, error) {
	kinds, err := installed()
	if err != nil {
		return Existing{}, err
	}
	return List(ctx, reader, kinds, namespace)
}

// List lists the remediations of these kinds in a namespace.
func List(ctx context.Context, reader client.Reader, kinds []Kind, namespace string) (Existing, error) {
	e := Existing{own: map[types.UID]bool{}}
	for _, kind := range kinds {
		list := kind.List()
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return Existing{}, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			rem := OfKind{o.(client.Object), kind}
			e.All, e.own[rem.GetUID()] = append(e.All, rem), true
			return nil
		})
		if err != nil {
			return Existing{}, fmt.Errorf("read the list of %s in %s: %w", kind.Kind, namespace, err)
		}
	}
	return e, nil
}

// Former is the UID that rem had before `clusterctl move`; empty if it had none, or if its record cannot be true: a remediation of that UID
// exists, or the record is not about the machine that owns rem.
func (e Existing) Former(rem client.Object) types.UID {
	rec, owner := Remembered(rem), OwnerOf(rem)
	if rec.UID == rem.GetUID() || e.own[rec.UID] || owner == nil || rec.Machine != owner.Name {
		return ""
	}
	return rec.UID
}

// Has reports whether a remediation has that UID, or had it before it was moved.
func (e Existing) Has(uid types.UID) bool {
	return e.own[uid] || uid != "" && slices.ContainsFunc(e.All, func(rem OfKind) bool { return e.Former(rem) == uid })
}

// Of returns the remediations that m owns, in the order of the kinds.
func (e Existing) Of(m *clusterv1.Machine) []OfKind {
	return slices.DeleteFunc(slices.Clone(e.All), func(rem OfKind) bool { return !OwnedBy(rem, m) })
}

// OnHost returns the remediations that act on the power of h by its annotations, in the order of the kinds, and the UIDs of those of which
// no more is known than the annotation: they do not exist any more, or are of another kind.
func (e Existing) OnHost(h metav1.Object) (known []OfKind, unknown []types.UID) {
	left := map[types.UID]bool{}
	for _, uid := range host.AllMarks(h) {
		left[uid] = true
	}
	acting := maps.Clone(left)
	for _, rem := range e.All {
		uid, former := rem.GetUID(), Remembered(rem).UID
		if acting[uid] || former != "" && acting[former] {
			known = append(known, rem)
			delete(left, uid)
			delete(left, former)
		}
	}
	return known, slices.Sorted(maps.Keys(left))
}

// OwnerOf returns the reference to the machine that owns rem, or nil.
func OwnerOf(rem client.Object) *metav1.OwnerReference {
	for _, owner := range rem.GetOwnerReferences() {
		if owner.Kind == "Machine" && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == clusterv1.GroupVersion.Group {
			return &owner
		}
	}
	return nil
}

// OwnedBy reports whether m owns rem.
func OwnedBy(rem client.Object, m *clusterv1.Machine) bool {
	owner := OwnerOf(rem)
	return owner != nil && owner.UID == m.UID
}
