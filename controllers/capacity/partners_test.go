package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// saying adds a condition to the machine of a name.
func saying(name, kind string, status metav1.ConditionStatus, reason, message string) func(*environment) {
	return func(e *environment) {
		m := e.machines[name]
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(10 * time.Minute)})
	}
}

// controlledBy makes kcp the owner of all machines.
func controlledBy(edit func(*controlplanev1.KubeadmControlPlane)) func(*environment) {
	return func(e *environment) {
		kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp"}}
		kcp.Spec.Replicas, kcp.Status.Initialization.ControlPlaneInitialized = ptr.To[int32](3), ptr.To(true)
		edit(kcp)
		e.objects = append(e.objects, kcp)
		for _, m := range e.machines {
			m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineControlPlaneNameLabel: "cp"}
			m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = controlplanev1.GroupVersion.String(), "KubeadmControlPlane", "cp"
		}
	}
}

// What Cluster API and CAPM3 say in their own objects is read.
func TestWhatPartnersSayIsRead(t *testing.T) {
	w1 := Subject{Namespace: "default", Name: "w1"}
	m3m := func(name, host, kind, reason string, annotations map[string]string) *unstructured.Unstructured {
		m := metal3Machine(name, host, map[string]any{})
		all := m.GetAnnotations()
		for key, value := range annotations {
			if all == nil {
				all = map[string]string{}
			}
			all[key] = value
		}
		m.SetAnnotations(all)
		m.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "False", "reason": reason, "lastTransitionTime": "2026-01-01T11:57:00Z"}}}
		return m
	}
	inUse := func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateAvailable }
	for name, tc := range map[string]struct {
		subject Subject
		is      *environment
		want    string
	}{
		"that Cluster API has no connection": {
			w1, anEnvironment(deleting("DrainingNode"), saying("w1", "NodeReady", "Unknown", "ConnectionDown", "Last successful probe at ..."), func(e *environment) {
				c := e.machines["w1"].Status.Conditions
				e.machines["w1"].Status.Conditions = c[1:] // the first one says that its node is Ready
			}), "Deleting ConnectionDown w1 waits=Cluster/c1",
		},
		"that the infrastructure is paused": {
			w1, anEnvironment(deleting("WaitingForInfrastructureDeletion"), with(m3m("w1", "", "Ready", "Paused", map[string]string{clusterv1.PausedAnnotation: ""}))),
			"Deleting ObjectPaused w1 waits=Metal3Machine/w1",
		},
		"that a host is found and its data is not": {
			lost(), anEnvironment(replaced, with(m3m("w4", "h4", "Metal3DataReady", "WaitingForMetal3Data", nil), hostNamed("h4", "1", inUse))),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		},
		"that its metadata cannot be made": {
			lost(), anEnvironment(replaced, with(m3m("w4", "h4", "AssociateMetal3MachineMetaData", "AssociateMetal3MachineMetaDataFailed", nil), hostNamed("h4", "1", inUse))),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		},
		"that no host is looked for yet": {
			lost(), anEnvironment(replaced, with(m3m("w4", "", "AssociateBareMetalHost", "WaitingForClusterInfrastructureReady", nil), hostNamed("h4", "1"))),
			"Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		},
		"that a host is to be detached, which happens once it is provisioned": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "h4", map[string]any{}), hostNamed("h4", "1", func(h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State, h.Annotations = bmov1alpha1.StateProvisioning, map[string]string{bmov1alpha1.DetachedAnnotation: ""}
			}))), "Provisioning HostProvisioning w4 waits=BareMetalHost/h4 for=w1 by=Alone",
		},
		"that it is detached": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "h4", map[string]any{}), hostNamed("h4", "1", func(h *bmov1alpha1.BareMetalHost) {
				h.Annotations = map[string]string{bmov1alpha1.DetachedAnnotation: ""}
			}))), "Provisioning HostTrouble w4 waits=BareMetalHost/h4 for=w1 by=Alone",
		},
		"what keeps a control plane from making a machine": {
			func() Subject {
				s := Of(anEnvironment(controlledBy(func(*controlplanev1.KubeadmControlPlane) {})).machines["w1"], noon)
				s.Gone = noon.Add(-5 * time.Minute)
				return s
			}(),
			anEnvironment(controlledBy(func(kcp *controlplanev1.KubeadmControlPlane) {
				kcp.Status.Conditions = []metav1.Condition{{
					Type: controlplanev1.KubeadmControlPlaneScalingUpCondition, Status: metav1.ConditionTrue, Reason: "ScalingUp",
					Message: "Scaling up from 2 to 3 replicas is blocked because:\n* waiting for etcd cluster to become healthy",
				}}
			}), func(e *environment) { delete(e.machines, "w1") }), "NoReplacement ScalingUpBlocked w1 waits=KubeadmControlPlane/cp",
		},
		"that a control plane replaces another machine": {
			w1, anEnvironment(controlledBy(func(kcp *controlplanev1.KubeadmControlPlane) {
				kcp.Annotations = map[string]string{controlplanev1.RemediationInProgressAnnotation: `{"machine":"w9","timestamp":"2026-01-01T11:51:00Z","retryCount":0}`}
			}), saying("w1", "OwnerRemediated", "False", "WaitingForRemediation", ""), saying("w1", "HealthCheckSucceeded", "False", "UnhealthyNode", "")),
			"OwnerActs KubeadmDefers w1 waits=KubeadmControlPlane/cp",
		},
		"an annotation that cannot be read says nothing": {
			w1, anEnvironment(controlledBy(func(kcp *controlplanev1.KubeadmControlPlane) {
				kcp.Annotations = map[string]string{controlplanev1.RemediationInProgressAnnotation: `{"machine":`}
			}), saying("w1", "OwnerRemediated", "False", "WaitingForRemediation", ""), saying("w1", "HealthCheckSucceeded", "False", "UnhealthyNode", "")),
			"OwnerActs WaitingForRemediation w1 waits=KubeadmControlPlane/cp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := tc.is.observer(t).Observe(t.Context(), tc.subject, noon)
			if err != nil || len(f.Unread) > 0 {
				t.Fatalf("%v could not be read: %v", f.Unread, err)
			}
			if diff := cmp.Diff(tc.want, told(capacity.Decide(f))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatAControlPlaneSaysOfItsHealthIsKnown(t *testing.T) {
	e := anEnvironment(deleting("WaitingForPreTerminateHook"), controlledBy(func(kcp *controlplanev1.KubeadmControlPlane) {
		kcp.Status.Conditions = []metav1.Condition{
			{Type: controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, Status: metav1.ConditionTrue, Reason: "Healthy"},
			{Type: controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, Status: metav1.ConditionFalse, Reason: "NotHealthy"},
		}
	}))
	f, err := e.observer(t).Observe(t.Context(), Subject{Namespace: "default", Name: "w1"}, noon)
	if err != nil || f.Owner.Ailing.Reason != "NotHealthy" {
		t.Errorf("%+v, %v", f.Owner.Ailing, err)
	}
}

func TestAnOwnerOfATopologyIsKnown(t *testing.T) {
	e := anEnvironment(deleting("DrainingNode"), func(e *environment) { e.md.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""} })
	f, err := e.observer(t).Observe(t.Context(), Subject{Namespace: "default", Name: "w1"}, noon)
	if err != nil || !f.Owner.Topology {
		t.Errorf("%+v, %v", f.Owner, err)
	}
}
