// Package owners is how the owners of Machines replace one that they are asked to remediate, as a model: it has no clock, no client and no
// goroutine. Its user deletes the machine, makes the other one, and says when its node is Ready.
//
// A rule cites the function of Cluster API v1.14 that it stands for: "ms" is controllers/machineset/machineset_controller.go, "kcp" the package
// controlplane/kubeadm/internal/controllers.
package owners

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
)

// Asked reports whether the owner of m is asked to remediate it: both conditions say so. (ms reconcileUnhealthyMachines, kcp
// reconcileUnhealthyMachines)
func Asked(m *clusterv1.Machine) bool { return collections.IsUnhealthyAndOwnerRemediated(m) }

// Owners are the owners of all Machines. The zero value has begun nothing. It is not safe for concurrent use.
type Owners struct{ busy map[types.UID]bool }

// Replacement is that of one machine.
type Replacement struct {
	Owner *metav1.OwnerReference
	// WaitsForDeletion says that the new machine is made when the old one is gone, and not at once.
	WaitsForDeletion bool
}

// Replace reports whether the owner of m begins to replace it now. A machine without an owner is not replaced. A control plane replaces one
// machine after the other. (kcp canSafelyRemoveEtcdMember and checkRetryLimits are left out.)
func (o *Owners) Replace(m *clusterv1.Machine) (Replacement, bool) {
	owner := metav1.GetControllerOf(m)
	if owner == nil || !Asked(m) || !m.DeletionTimestamp.IsZero() || o.busy[owner.UID] {
		return Replacement{}, false
	}
	_, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
	if controlPlane {
		if o.busy == nil {
			o.busy = map[types.UID]bool{}
		}
		o.busy[owner.UID] = true
	}
	return Replacement{Owner: owner, WaitsForDeletion: controlPlane}, true
}

// Done says that the node of a new machine of the owner is Ready.
func (o *Owners) Done(owner types.UID) { delete(o.busy, owner) }

// NextName is the name of the machine that takes the place of one of that name: its own with a number, as no owner would choose it, so that readers
// can tell which one it replaces.
func NextName(name string) string {
	base, n := name, 0
	if at := strings.LastIndex(base, "-r"); at > 0 {
		if number, err := strconv.Atoi(base[at+2:]); err == nil {
			base, n = base[:at], number
		}
	}
	return fmt.Sprintf("%s-r%d", base, n+1)
}
