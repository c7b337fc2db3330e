package inspect

import (
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
	"github.com/kubemend/kubemend/controllers/explain"
)

// owners says of the targets that a KubeadmControlPlane was asked to replace, and does not, why and until when. Where that
// cannot be read, or has no rule for it, its own words stay.
func (a *Asker) owners(is *explain.Check) {
	for i := range is.Targets {
		t := &is.Targets[i]
		if !t.InFlight || t.State == cliv1.StateHealthy {
			continue
		}
		m := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: t.Namespace, Name: t.Name})
		if m == nil || !m.DeletionTimestamp.IsZero() {
			continue
		}
		putOff, refused := snapshot.NotReplaced(m)
		key, has := snapshot.ControlPlaneOf(m)
		if !has || !putOff && !refused {
			continue
		}
		kcp := snapshot.One[controlplanev1.KubeadmControlPlane](a.Snapshot, key)
		if kcp == nil {
			continue
		}
		f := capacity.KubeadmFacts(kcp, m, snapshot.All[clusterv1.Machine](a.Snapshot, m.Namespace), a.Now)
		if next := explain.ByKubeadm(key.Name, &f, kubeadm.Decide(f)); next != (explain.Step{}) {
			t.Next = next
		}
	}
}
