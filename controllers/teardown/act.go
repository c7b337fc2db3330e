package teardown

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/machinestatus"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// step is what becomes of one thing that kubemend owns.
type step struct {
	*owned
	do  action
	why string
}

func (s step) String() string { return fmt.Sprintf("%s: %s (%s)", s.owned, s.why, s.do) }

// act carries a step out. That another writer was faster, or that the object is gone, is no error: the next reconcile sees it.
func (u *Uninstaller) act(ctx context.Context, s step) error {
	var err error
	switch s.do {
	case release:
		err = u.patch(ctx, s.on, map[string]any{"annotations": map[string]any{clusterv1.PausedAnnotation: nil, mendv1.ClaimedByAnnotation: nil}})
	case unmark:
		err = u.patch(ctx, s.on, unmarked(s.owned))
	case erase:
		err = u.Client.Delete(ctx, remediationrequest.Identity(s.on), client.Preconditions{UID: ptr.To(s.on.UID)})
	case strip:
		machinestatus.DropOwn(s.machine)
		err = machinestatus.PatchConditions(ctx, u.Client, s.machine)
	case unfence:
		err = u.unfence(ctx, s.owned)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.do, s.owned, err)
	}
	return nil
}

// marks are what says something to kubemend alone, by what it is. One object may bear several: of a request whose power cycle is
// under way the maker's mark and the name of the record are taken, and nothing else.
var marks = map[what]struct{ annotations, labels []string }{
	checkRequest: {[]string{mendv1.MadeByAnnotation, mendv1.RecordAnnotation}, []string{mendv1.MadeByUIDLabel}},
	nodeCheckRequest: {
		[]string{mendv1.MadeByNodeCheckAnnotation, mendv1.RecordAnnotation}, []string{mendv1.MadeByNodeCheckUIDLabel},
	},
	remediation: {annotations: []string{mendv1.PowerCycleAnnotation, mendv1.RecordAnnotation, mendv1.WaitsForAnnotation}},
	hostMark:    {annotations: []string{mendv1.MarkedForAnnotation}},
}

// unmarked is what a merge patch has to say of the metadata of an object, to remove kubemend's marks.
func unmarked(t *owned) map[string]any {
	annotations, labels := map[string]any{}, map[string]any{}
	for _, key := range marks[t.what].annotations {
		annotations[key] = nil
	}
	for _, key := range marks[t.what].labels {
		labels[key] = nil
	}
	changes := map[string]any{"annotations": annotations, "labels": labels}
	if t.what != remediation {
		return changes
	}
	if t.on.Annotations[clusterctlv1.BlockMoveAnnotation] == mendv1.Claim {
		annotations[clusterctlv1.BlockMoveAnnotation] = nil
	}
	if slices.Contains(t.on.Finalizers, mendv1.HostRemediationFinalizer) {
		changes["finalizers"] = slices.DeleteFunc(slices.Clone(t.on.Finalizers), func(f string) bool { return f == mendv1.HostRemediationFinalizer })
	}
	return changes
}

// patch changes metadata of that very object, if it did not change since it was read.
func (u *Uninstaller) patch(ctx context.Context, o *metadata, changes map[string]any) error {
	changes["uid"], changes["resourceVersion"] = o.UID, o.ResourceVersion
	content, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	return u.Client.Patch(ctx, remediationrequest.Identity(o), client.RawPatch(types.MergePatchType, content))
}

// unfence takes a fence away that no remediation will.
func (u *Uninstaller) unfence(ctx context.Context, t *owned) error {
	there, err := u.Clusters.GetUncachedClient(ctx, t.cluster)
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := there.Get(ctx, client.ObjectKeyFromObject(t.on), node); err != nil {
		return err
	}
	by := fence.Owner{UID: types.UID(t.on.Annotations[fence.FencedByAnnotation])}
	return u.Nodes.Unfence(ctx, t.cluster, node, by)
}

// own makes the leader lease go with this pod: once the manager is deleted, no controller is left to delete it. Another
// replica that takes it over does the same.
func (u *Uninstaller) own(ctx context.Context) error {
	if u.Pod == nil || u.Lease == nil {
		return nil
	}
	lease := &metadata{TypeMeta: kindOf(leaseKind)}
	if err := u.Live.Get(ctx, *u.Lease, lease); err != nil {
		return fmt.Errorf("read lease %s: %w", u.Lease, err)
	}
	if owners := lease.OwnerReferences; len(owners) == 1 && owners[0].UID == u.Pod.UID {
		return nil
	}
	if err := u.patch(ctx, lease, map[string]any{"ownerReferences": []any{u.Pod}}); err != nil {
		return fmt.Errorf("have lease %s deleted with this pod: %w", u.Lease, err)
	}
	return nil
}
