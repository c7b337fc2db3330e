package inspect

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
	"github.com/kubemend/kubemend/controllers/explain"
)

// owners says of the targets that a KubeadmControlPlane was asked to replace, and does not, why and until when. Where that
// cannot be read, or has no rule for it, its own words stay.
func (a *Asker) owners(ctx context.Context, check *explain.Check) {
	for i := range check.Targets {
		t := &check.Targets[i]
		if !t.InFlight || t.State == cliv1.StateHealthy {
			continue
		}
		machine := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: t.Namespace, Name: t.Name})
		if machine == nil || !machine.DeletionTimestamp.IsZero() || !notReplaced(machine) {
			continue
		}
		owner, kcp := metav1.GetControllerOf(machine), &controlplanev1.KubeadmControlPlane{}
		if owner == nil || owner.Kind != "KubeadmControlPlane" ||
			a.reader.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: owner.Name}, kcp) != nil {
			continue
		}
		f := capacity.KubeadmFacts(kcp, machine, snapshot.All[clusterv1.Machine](a.Snapshot, machine.Namespace), a.Now)
		if next := explain.ByKubeadm(owner.Name, &f, kubeadm.Decide(f)); next != (explain.Step{}) {
			t.Next = next
		}
	}
}

// notReplaced reports whether the owner of a machine was asked to replace it and has put that off, or refused it.
func notReplaced(machine *clusterv1.Machine) bool {
	cond := conditions.Get(machine, clusterv1.MachineOwnerRemediatedCondition)
	if cond == nil || cond.Status != metav1.ConditionFalse {
		return false
	}
	return cond.Reason == controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason ||
		cond.Reason == controlplanev1.KubeadmControlPlaneMachineCannotBeRemediatedReason
}
