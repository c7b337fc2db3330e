package capacity

import (
	"testing"
	"time"

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
		kcp := &controlplanev1.KubeadmControlPlane{
			TypeMeta:   metav1.TypeMeta{APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp"},
		}
		kcp.Spec.Replicas, kcp.Status.Initialization.ControlPlaneInitialized = ptr.To[int32](3), ptr.To(true)
		edit(kcp)
		e.owned(kcp)
	}
}

// What Cluster API and CAPM3 say in their own objects is read.
func TestWhatPartnersSayIsRead(t *testing.T) {
	m3m := func(name, host, kind, reason string, annotations map[string]string) *unstructured.Unstructured {
		m := metal3Machine(name, host, map[string]any{})
		if annotations != nil {
			m.SetAnnotations(annotations)
		}
		m.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "False", "reason": reason, "lastTransitionTime": "2026-01-01T11:57:00Z"}}}
		return m
	}
	inUse := func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateAvailable }
	stories{
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
	}.run(t)
}

func TestWhatIsKnownOfAnOwner(t *testing.T) {
	kcp := anEnvironment(deleting("WaitingForPreTerminateHook"), controlledBy(func(kcp *controlplanev1.KubeadmControlPlane) {
		kcp.Status.Conditions = []metav1.Condition{
			{Type: controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, Status: metav1.ConditionTrue, Reason: "Healthy"},
			{Type: controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, Status: metav1.ConditionFalse, Reason: "NotHealthy"},
		}
	}))
	if got := kcp.observe(t, w1).Owner.Ailing; got.Reason != "NotHealthy" {
		t.Errorf("of its health: %+v", got)
	}
	for name, tc := range map[string]struct {
		edit             func(*clusterv1.MachineDeployment)
		paused, onDelete bool
		topology         bool
	}{
		"it rolls out by itself":       {edit: func(*clusterv1.MachineDeployment) {}},
		"not while its spec pauses it": {edit: func(md *clusterv1.MachineDeployment) { md.Spec.Paused = new(true) }, paused: true},
		"not while it is annotated": {edit: func(md *clusterv1.MachineDeployment) {
			md.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, paused: true},
		"when users delete its machines": {edit: func(md *clusterv1.MachineDeployment) {
			md.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
		}, onDelete: true},
		"it is of a topology": {edit: func(md *clusterv1.MachineDeployment) {
			md.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}
		}, topology: true},
	} {
		got := anEnvironment(func(e *environment) { tc.edit(e.md) }).observe(t, w1).Owner
		if got.RolloutPaused != tc.paused || got.OnDelete != tc.onDelete || got.Topology != tc.topology {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEachMachineSeesTheHostsThatItWants(t *testing.T) {
	zone := func(name, zone string) *unstructured.Unstructured {
		return metal3Machine(name, "", map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"zone": zone}}})
	}
	e := anEnvironment(func(e *environment) {
		for name, age := range map[string]time.Duration{"w4": 10 * time.Minute, "w5": 2 * time.Minute, "w6": time.Minute} {
			m := e.machine(name, age)
			m.Status.NodeRef.Name, m.Status.Conditions = "", nil
		}
	}, with(zone("w4", "9"), zone("w5", "1"), zone("w6", "1"), hostNamed("h1", "1")))
	for name, want := range map[string]capacity.Reason{"w4": capacity.NoHost, "w5": capacity.HostChosen, "w6": capacity.HostChosen} {
		if s := capacity.Follow(e.observe(t, Of(e.machines[name], noon))); s.Reason != want {
			t.Errorf("%s: %s, want %s; of the hosts %+v", name, s.Reason, want, s.Args.Hosts)
		}
	}
}
