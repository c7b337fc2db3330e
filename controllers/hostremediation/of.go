package hostremediation

import (
	"context"
	"maps"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
)

// Named is a remediation by its kind and its name.
type Named struct {
	Kind Kind
	Key  client.ObjectKey
}

// Of returns the remediations of these kinds that m owns, in the order of the kinds.
func Of(ctx context.Context, reader client.Reader, kinds []Kind, m *clusterv1.Machine) ([]Named, error) {
	return those(ctx, reader, kinds, m.Namespace, func(rem client.Object) bool { return ownedBy(rem, m) })
}

// Holding returns the remediations of these kinds that act on the power of h by its annotations, in the order of the kinds, and the UIDs of
// those of which no more is known than the annotation: they do not exist any more, or are of another kind.
func Holding(ctx context.Context, reader client.Reader, kinds []Kind, h *bmov1alpha1.BareMetalHost) ([]Named, []types.UID, error) {
	marks := host.AllMarks(h)
	known := map[types.UID]bool{}
	found, err := those(ctx, reader, kinds, h.Namespace, func(rem client.Object) bool {
		holds := false
		for _, uid := range marks {
			if uid != "" && (uid == rem.GetUID() || uid == remembered(rem).UID) {
				holds, known[uid] = true, true
			}
		}
		return holds
	})
	if err != nil {
		return nil, nil, err
	}
	return found, unknown(marks, known), nil
}

func unknown(marks map[string]types.UID, known map[types.UID]bool) []types.UID {
	left := map[types.UID]bool{}
	for _, uid := range orphans(marks, known) {
		left[uid] = true
	}
	return slices.Sorted(maps.Keys(left))
}

// those returns the remediations of a namespace that are wanted.
func those(ctx context.Context, reader client.Reader, kinds []Kind, namespace string, wanted func(client.Object) bool) ([]Named, error) {
	var found []Named
	for _, kind := range kinds {
		all, err := kind.all(ctx, reader, namespace)
		if err != nil {
			return nil, err
		}
		for _, rem := range all {
			if wanted(rem) {
				found = append(found, Named{kind, client.ObjectKeyFromObject(rem)})
			}
		}
	}
	return found, nil
}
