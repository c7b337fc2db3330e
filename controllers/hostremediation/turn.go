package hostremediation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
)

// Turns lets the control-plane hosts of a cluster be remediated one after another. Whose turn it is can be read off the world: it is
// that of the one that has begun. Turns adds what the caches do not show yet.
type Turns struct {
	mu    sync.Mutex
	taken map[client.ObjectKey]turn
}

type turn struct {
	by   types.UID
	name string
	at   time.Time
}

// cachesLag is how long caches may take to show that a remediation has begun.
const cachesLag = 30 * time.Second

// Take takes the turn of a cluster for the remediation by, at now, unless another one has just taken it, whose name is returned then.
func (t *Turns) Take(cluster client.ObjectKey, by types.UID, name string, now time.Time) (ahead string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, taken := t.taken[cluster]; taken && last.by != by && now.Before(last.at.Add(cachesLag)) {
		return last.name
	}
	if t.taken == nil {
		t.taken = map[client.ObjectKey]turn{}
	}
	t.taken[cluster] = turn{by: by, name: name, at: now}
	return ""
}

// ahead says who has the turn of the machine's cluster, if it is somebody else: a control-plane host that is held off, by whomever, or
// another remediation of one that has begun and is not over. Of two that have begun, the one that began first has it.
func (r *Reconciler) ahead(ctx context.Context, w *world) (string, error) {
	others, err := r.otherControlPlanes(ctx, w)
	if err != nil {
		return "", err
	}
	for i := range others {
		found, err := r.Hosts.Of(ctx, &others[i], "")
		if err != nil {
			return "", err
		}
		if found.Host != nil && host.HeldByAny(found.Host) != "" {
			return fmt.Sprintf("BareMetalHost %s of machine %s is held off", found.Host.Name, others[i].Name), nil
		}
	}
	kinds, err := r.Installed()
	if err != nil {
		return "", err
	}
	for _, kind := range kinds {
		list := kind.List()
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(w.rem.GetNamespace())); err != nil {
			return "", fmt.Errorf("list %s in %s: %w", kind.Kind, w.rem.GetNamespace(), err)
		}
		for _, other := range kind.Wrap(list) {
			if goesBefore(other, w) && ownedByOne(other, others) {
				return fmt.Sprintf("%s %s is under way", kind.Kind, other.GetName()), nil
			}
		}
	}
	return "", nil
}

// otherControlPlanes returns the other control-plane machines of the cluster. They are shared: read only.
func (r *Reconciler) otherControlPlanes(ctx context.Context, w *world) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(w.machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: w.machine.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", w.machine.Spec.ClusterName, err)
	}
	return slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool { return m.UID == w.machine.UID }), nil
}

// goesBefore reports whether other has begun, is not over, and began before the remediation of w, if that has begun too.
func goesBefore(other Object, w *world) bool {
	rec, err := recordOf(other)
	if other.GetUID() == w.rem.GetUID() || err == nil && (rec.Attempt == 0 || rec.State.Final()) {
		return false
	}
	if err != nil || w.record.Attempt == 0 {
		return true // of what cannot be read the worst is assumed
	}
	return cmp.Or(rec.Began.Compare(w.record.Began), cmp.Compare(other.GetUID(), w.rem.GetUID())) < 0
}

func ownedByOne(rem client.Object, machines []clusterv1.Machine) bool {
	owner := ownerOf(rem)
	return owner != nil && slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return m.UID == owner.UID })
}
