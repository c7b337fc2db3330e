package snapshot

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var controlPlaneGVK = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")

// ControlPlaneOf names the KubeadmControlPlane of a machine; false if the machine has none.
func ControlPlaneOf(m *clusterv1.Machine) (client.ObjectKey, bool) {
	owner := metav1.GetControllerOf(m)
	if owner == nil || owner.Kind != controlPlaneGVK.Kind {
		return client.ObjectKey{}, false
	}
	return client.ObjectKey{Namespace: m.Namespace, Name: owner.Name}, true
}

// NotReplaced reports whether the owner of a machine was asked to replace it and has put that off, or refused it.
func NotReplaced(m *clusterv1.Machine) (putOff, refused bool) {
	asked := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	if asked == nil || asked.Status != metav1.ConditionFalse {
		return false, false
	}
	return asked.Reason == controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason,
		asked.Reason == controlplanev1.KubeadmControlPlaneMachineCannotBeRemediatedReason
}

// controlPlanes are the KubeadmControlPlanes that do not replace a machine which was read, though they were asked to: their rules say until when. They are
// few, and none where all goes well.
func (r *reading) controlPlanes() []query {
	wanted := map[client.ObjectKey]bool{}
	for _, m := range All[clusterv1.Machine](r.snapshot, "") {
		putOff, refused := NotReplaced(m)
		if key, has := ControlPlaneOf(m); has && (putOff || refused) {
			wanted[key] = true
		}
	}
	queries := make([]query, 0, len(wanted))
	for key := range wanted {
		queries = append(queries, query{gvk: controlPlaneGVK, namespace: key.Namespace, anyVersion: true, options: only(key.Name)})
	}
	return queries
}
