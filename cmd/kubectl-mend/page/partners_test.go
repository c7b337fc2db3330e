package page

import (
	"context"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/test/golden"
)

// The messages are those that Cluster API v1.14.2 and CAPM3 write.
func TestWhatPartnersWaitFor(t *testing.T) {
	md := func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return MachineDeployment(ctx, a, client.ObjectKey{Namespace: "default", Name: "md"})
	}
	kcp := func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return KubeadmControlPlane(ctx, a, client.ObjectKey{Namespace: "default", Name: "cp"})
	}
	provisioned := made(func(m *clusterv1.Machine) {
		m.CreationTimestamp = at(30 * time.Minute)
		m.Status.Conditions = []metav1.Condition{
			{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: at(25 * time.Minute)},
			{
				Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, Reason: "InspectionFailed",
				Message: "Waiting for a Node with spec.providerID metal3://default/h1/w6 to exist", LastTransitionTime: at(25 * time.Minute),
			},
		}
	})
	blocked := ofControlPlane(deferred, awaitsEnd, func(plane *controlplanev1.KubeadmControlPlane, s *scene) {
		delete(s.machines, "w1")
		delete(s.nodes, "w1")
		plane.Spec.Replicas = ptr.To[int32](3)
		plane.Status.Conditions = []metav1.Condition{{
			Type: controlplanev1.KubeadmControlPlaneScalingUpCondition, Status: metav1.ConditionTrue, Reason: "ScalingUp", LastTransitionTime: at(8 * time.Minute),
			Message: "Scaling up from 2 to 3 replicas is blocked because:\n* waiting for control plane components to become healthy\n* waiting for etcd cluster to become healthy",
		}}
	})
	data := func(s *scene) {
		metal(aHost("h1", "b", bmov1alpha1.StateAvailable, func(h *bmov1alpha1.BareMetalHost) {
			h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "w6"}
		}))(s)
		between := s.others[len(s.others)-2].(interface {
			SetAnnotations(map[string]string)
			UnstructuredContent() map[string]any
		})
		between.SetAnnotations(map[string]string{"metal3.io/BareMetalHost": "default/h1"})
		says := func(kind, reason, message string) any {
			return map[string]any{"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T11:57:00Z"}
		}
		between.UnstructuredContent()["status"] = map[string]any{"conditions": []any{
			says("Metal3DataReady", "WaitingForMetal3Data", ""),
			says("AssociateMetal3MachineMetaData", "CreateError", "failed to update BareMetalHost: waiting for Metal3Data to become ready"),
		}}
	}
	const left = "Drain not completed yet (started at 2026-01-01T11:51:00Z):\n* Pod shop/db-0: deletionTimestamp set, but still not removed from the Node"
	smaller := func(s *scene) { s.others[0].(*clusterv1.MachineDeployment).Spec.Replicas = ptr.To[int32](4) }
	leaves := func(s *scene) {
		s.cluster.DeletionTimestamp, s.cluster.Finalizers = ptr.To(at(9*time.Minute)), []string{clusterv1.ClusterFinalizer}
	}
	golden.StoriesIn(t, "testdata/capacity/partners", map[string]story{
		"a machine whose node has another provider ID":            {aScene(provisioned), machine("w6")},
		"a machine whose host waits for its data":                 {aScene(made(), data), machine("w6")},
		"a machine of a workload cluster without a connection":    {aScene(cutOff), machine("w1")},
		"a control plane that waits for etcd before it scales up": {aScene(blocked), kcp},
		"a scaled-down deployment whose machine does not go":      {aScene(deletes("DrainingNode", left), deployed, smaller), md},
		"a deployment of a cluster that is being deleted":         {aScene(deletes("DrainingNode", left), deployed, leaves), md},
		"a machine with the hook of its control plane and of others": {aScene(deletes("WaitingForPreTerminateHook", "", func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{controlplanev1.PreTerminateHookCleanupAnnotation: "", clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/z-backup": "velero"}
		})), machine("w1")},
	}, func(t *testing.T, s story) string {
		e, err := s.ask(t.Context(), s.scene.asker(t))
		if e != nil {
			reasoned(t, e.Document())
		}
		return page80and200(t, e, err)
	})
}

// For programs an owner lists what is missing: a deletion that hangs after a scale-down is none of that, and the last lines have it.
func TestAnOwnerListsForProgramsWhatIsMissing(t *testing.T) {
	s := aScene(deletes("WaitingForPreDrainHook", "", func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup": "velero"}
	}), deployed, func(s *scene) { s.others[0].(*clusterv1.MachineDeployment).Spec.Replicas = ptr.To[int32](4) })
	e, err := MachineDeployment(t.Context(), s.asker(t), client.ObjectKey{Namespace: "default", Name: "md"})
	if err != nil {
		t.Fatal(err)
	}
	if d := e.Document(); len(d.Capacity) != 0 || d.Todo == nil || d.Todo.Reason != "EndHook" {
		t.Errorf("%+v, to do %+v", d.Capacity, d.Todo)
	}
}

// cutOff is a machine that is being drained when the connection to its cluster is lost.
func cutOff(s *scene) {
	deletes("DrainingNode", "Error draining Node, please check controller logs for errors")(s)
	delete(s.nodes, "w1")
	s.said("w1", clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, "ConnectionDown", "Last successful probe at 2026-01-01T11:44:00Z", 11*time.Minute)
}
