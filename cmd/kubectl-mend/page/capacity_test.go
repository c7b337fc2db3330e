package page

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// deletes adds the deletion of w1 by its owner, begun nine minutes ago, with this reason and message of the condition Deleting.
func deletes(reason, message string, edits ...func(*clusterv1.Machine)) func(*scene) {
	return func(s *scene) {
		m := s.machines["w1"]
		m.DeletionTimestamp, m.Finalizers = ptr.To(at(9*time.Minute)), []string{clusterv1.MachineFinalizer}
		s.ready("w1", corev1.ConditionUnknown, "NodeStatusUnknown", 15*time.Minute)
		s.said("w1", clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode", "", 10*time.Minute)
		s.said("w1", clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "MachineDeleting", "Machine is deleting", 10*time.Minute)
		s.said("w1", clusterv1.MachineDeletingCondition, metav1.ConditionTrue, reason, message, 9*time.Minute)
		for _, edit := range edits {
			edit(m)
		}
	}
}

// made replaces w1 by w6, which has no node yet.
func made(edits ...func(*clusterv1.Machine)) func(*scene) {
	return func(s *scene) {
		delete(s.machines, "w1")
		delete(s.nodes, "w1")
		s.machine("w6")
		delete(s.nodes, "w6")
		m := s.machines["w6"]
		m.CreationTimestamp, m.Status.NodeRef.Name, m.Status.Conditions = at(4*time.Minute), "", nil
		for _, edit := range edits {
			edit(m)
		}
	}
}

// metal adds these hosts, and a Metal3Machine of w6 that selects hosts of zone b.
func metal(hosts ...*bmov1alpha1.BareMetalHost) func(*scene) {
	return func(s *scene) {
		m := s.machines["w6"]
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "w6"}
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionFalse, Reason: "NotReady", LastTransitionTime: at(4 * time.Minute),
		})
		s.others = append(s.others, unknownKind(infrav1.GroupVersion.String(), "Metal3Machine", "default", "w6",
			map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"zone": "b"}}}))
		for _, h := range hosts {
			s.others = append(s.others, h)
		}
	}
}

func aHost(name, zone string, state bmov1alpha1.ProvisioningState, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"zone": zone}}}
	h.Status.Provisioning.State = state
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func TestCapacityOfMachines(t *testing.T) {
	started := func(m *clusterv1.Machine) {
		m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](900)
		m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: at(9 * time.Minute)}
	}
	const blocked = "Drain not completed yet (started at 2026-01-01T11:51:00Z):\n" +
		"* Pod shop/db-0: cannot evict pod as it would violate the pod's disruption budget. The disruption budget db needs 2 healthy pods and has 2 currently"
	serving := func(s *scene) { s.says.Kinds = []managerlease.Kind{{CRD: "hostremediations.kubemend.io"}} }
	golden.Stories(t, "capacity", map[string]story{
		"a machine whose drain is blocked and has a timeout":    {aScene(deletes("DrainingNode", blocked, started)), machine("w1")},
		"a machine whose drain is blocked and has no timeout":   {aScene(deletes("DrainingNode", blocked)), machine("w1")},
		"a machine whose drain should have been given up":       {aScene(deletes("DrainingNode", blocked, started, func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](540) })), machine("w1")},
		"a machine whose volumes are attached":                  {aScene(deletes("WaitingForVolumeDetach", "Waiting for Node volumes to be detached (started at 2026-01-01T11:51:00Z)\n* PersistentVolumeClaims: shop/data")), machine("w1")},
		"a machine with a finalizer of another project":         {aScene(deletes("DeletionCompleted", "Deletion completed", func(m *clusterv1.Machine) { m.Finalizers = []string{"example.com/hold"} })), machine("w1")},
		"a machine that is not replaced since its set is small": {aScene(deletes("DrainingNode", blocked), func(s *scene) { s.set.Spec.Replicas = ptr.To[int32](4) }), machine("w1")},
		"a machine of a set that is being deleted":              {aScene(deletes("DrainingNode", blocked), func(s *scene) { s.set.DeletionTimestamp, s.set.Finalizers = ptr.To(at(time.Minute)), []string{"x"} }), machine("w1")},
		"a healthy machine that a person deletes": {aScene(deletes("DrainingNode", blocked, started), func(s *scene) {
			s.ready("w1", corev1.ConditionTrue, "KubeletReady", 8*time.Hour)
			s.machines["w1"].Status.Conditions = s.machines["w1"].Status.Conditions[:1]
			s.said("w1", clusterv1.MachineDeletingCondition, metav1.ConditionTrue, "DrainingNode", blocked, 9*time.Minute)
		}), machine("w1")},
		"a machine of a set that the user may not read": {aScene(deletes("DrainingNode", blocked), func(s *scene) {
			s.set, s.barred = nil, append(s.barred, clusterv1.GroupVersion.WithKind("MachineSet"))
		}), machine("w1")},
		"a new machine that waits for its bootstrap data": {aScene(made(func(m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "w6"}
			m.Status.Conditions = []metav1.Condition{{
				Type: clusterv1.MachineBootstrapConfigReadyCondition, Status: metav1.ConditionFalse, Reason: "InternalError", Message: "Please check controller logs for errors", LastTransitionTime: at(3 * time.Minute),
			}}
		})), machine("w6")},
		"a new machine that no host fits": {aScene(serving, made(), metal(
			aHost("h1", "a", bmov1alpha1.StateAvailable), aHost("h2", "b", bmov1alpha1.StateAvailable, func(h *bmov1alpha1.BareMetalHost) { h.Annotations = map[string]string{infrav1.UnhealthyAnnotation: ""} }),
			aHost("h3", "b", bmov1alpha1.StateProvisioned, func(h *bmov1alpha1.BareMetalHost) {
				h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "w2"}
			}),
			aHost("h4", "b", bmov1alpha1.StateInspecting, func(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "no route to host" }),
		)), machine("w6")},
	}, answered)
}

// alsoLost adds the record of a remediation of another machine of the MachineSet, decided minutes ago.
func alsoLost(name string, minutes int, edits ...func(*mendv1.RemediationRecord)) func(*scene) {
	return func(s *scene) {
		kept(s)
		r := s.others[len(s.others)-1].(*mendv1.RemediationRecord)
		r.Name, r.Spec.Target.Machine.Name, r.Spec.Decided = name+"-1", name, at(time.Duration(minutes)*time.Minute)
		for _, edit := range edits {
			edit(r)
		}
	}
}

// replacedBy adds the replacement that the manager has found to a record.
func replacedBy(name string) func(*mendv1.RemediationRecord) {
	return func(r *mendv1.RemediationRecord) {
		r.Status.Replacement = &mendv1.RecordReplacement{Machine: mendv1.RecordRef{Kind: "Machine", Name: name}, Guessed: true}
	}
}

// deployed adds MachineDeployment md with five machines, those of MachineSet md-0.
func deployed(s *scene) {
	s.set.Name, s.set.Labels = "md-0", map[string]string{clusterv1.MachineDeploymentNameLabel: "md", clusterv1.ClusterNameLabel: "c1"}
	s.set.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment", Name: "md", Controller: ptr.To(true)}}
	for _, m := range s.machines {
		m.Labels[clusterv1.MachineDeploymentNameLabel] = "md"
	}
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "md", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	md.Spec.ClusterName, md.Spec.Replicas = "c1", ptr.To[int32](5)
	s.others = append(s.others, md)
}

// kept adds the record of a remediation of w1, decided ten minutes ago.
func kept(s *scene) {
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1-1"}}
	r.Spec.Decided = at(10 * time.Minute)
	r.Spec.Target = mendv1.RecordTarget{
		ClusterName: "c1", Machine: &mendv1.RecordRef{Kind: "Machine", Name: "w1"}, Owner: &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0"},
	}
	s.others = append(s.others, r)
}

func TestCapacityOfMachinesThatAreGone(t *testing.T) {
	ready := func(s *scene) {
		s.machines["w6"].Status.NodeRef.Name = "node-w6"
		s.nodes["w6"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-w6"}}
		s.ready("w6", corev1.ConditionTrue, "KubeletReady", time.Minute)
	}
	unreplaced := func(s *scene) { delete(s.machines, "w1"); delete(s.nodes, "w1") }
	second := func(s *scene) { delete(s.machines, "w2"); delete(s.nodes, "w2") }
	reported := func(s *scene) {
		s.said("w6", clusterv1.MachineNodeReadyCondition, metav1.ConditionTrue, "NodeReady", "", time.Minute)
	}
	rolledOut := func(s *scene) {
		deployed(s)
		s.set.Spec.Replicas = ptr.To[int32](4)
		ownedBy("w6", "MachineSet", "md-1")(s)
	}
	labelled := func(s *scene) {
		s.others[len(s.others)-1].SetLabels(map[string]string{clusterv1.MachineDeploymentNameLabel: "md"})
	}
	golden.Stories(t, "capacity/gone", map[string]story{
		"a machine that was replaced":       {aScene(made(), ready, kept), machine("w1")},
		"a machine whose replacement waits": {aScene(made(), kept, metal()), machine("w1")},
		"a machine whose replacement was lost as well": {
			aScene(made(), kept, alsoLost("w1", 9, replacedBy("w9")), alsoLost("w9", 6)), machine("w1"),
		},
		"a machine that was made for the first of two": {aScene(made(), second, kept, alsoLost("w2", 12)), machine("w6")},
		"a machine that was not made for one that another replaces": {
			aScene(made(), second, kept, alsoLost("w2", 12, replacedBy("w3"))), machine("w6"),
		},
		"a Ready machine that the manager has found to replace another": {aScene(made(), ready, reported, alsoLost("w1", 12, replacedBy("w6"))), machine("w6")},
		"a machine that is not replaced yet":                            {aScene(unreplaced, kept), machine("w1")},
		"a machine whose set is smaller since":                          {aScene(unreplaced, kept, func(s *scene) { s.set.Spec.Replicas = ptr.To[int32](4) }), machine("w1")},
		"a machine that a rollout replaces in another set":              {aScene(made(), rolledOut, kept, labelled), machine("w1")},
		"a machine that its control plane has written down":             {aScene(ofControlPlane(deferred, failedLately)), machine("w0")},
	}, answered)
}

// unselected makes these workers machines of no MachineDeployment, which the check does not select.
func unselected(names ...string) func(*scene) {
	return func(s *scene) {
		for _, name := range names {
			s.machines[name].Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		}
		s.others[0].(*clusterv1.MachineDeployment).Spec.Replicas = ptr.To[int32](3)
	}
}

func TestCapacityOfOwners(t *testing.T) {
	const left = "Drain not completed yet (started at 2026-01-01T11:51:00Z):\n* Pod shop/db-0: deletionTimestamp set, but still not removed from the Node"
	md := func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return OfOwner(ctx, a, client.ObjectKey{Namespace: "default", Name: "md"}, &clusterv1.MachineDeployment{})
	}
	kcp := func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return OfOwner(ctx, a, client.ObjectKey{Namespace: "default", Name: "cp"}, &controlplanev1.KubeadmControlPlane{})
	}
	cluster := func(ctx context.Context, a *inspect.Asker) (*Explanation, error) { return OfCluster(ctx, a, inC1) }
	plane := func(edits ...func(*controlplanev1.KubeadmControlPlane, *scene)) func(*scene) {
		return ofControlPlane(deferred, failedLately, append(edits, retryPeriod(900), func(kcp *controlplanev1.KubeadmControlPlane, _ *scene) {
			kcp.Spec.Replicas, kcp.Labels = ptr.To[int32](3), map[string]string{clusterv1.ClusterNameLabel: "c1"}
		})...)
	}
	lacking := func(s *scene) { delete(s.machines, "w2"); delete(s.nodes, "w2") }
	blocked := func(s *scene) {
		s.set.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.MachineSetScalingUpCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineSetScalingUpReason,
			Message: "Scaling up from 4 to 5 replicas is blocked because:\n* ControlPlane default/cp is provisioning (\"ControlPlaneIsStable\" preflight check failed)",
		}}
	}
	leaves := func(s *scene) {
		s.cluster.DeletionTimestamp, s.cluster.Finalizers = ptr.To(at(9*time.Minute)), []string{clusterv1.ClusterFinalizer}
	}
	many := func(s *scene) {
		for i := range 14 {
			name := fmt.Sprintf("x%02d", i)
			s.machine(name)
			delete(s.nodes, name)
			s.machines[name].Labels[clusterv1.MachineDeploymentNameLabel] = "md"
			s.machines[name].Status.NodeRef.Name, s.machines[name].CreationTimestamp = "", at(4*time.Minute)
		}
		s.others[0].(*clusterv1.MachineDeployment).Spec.Replicas = ptr.To[int32](19)
	}
	golden.Stories(t, "capacity/owners", map[string]story{
		"a deployment that has all its machines":             {aScene(deployed), md},
		"a deployment one of whose machines is deleted":      {aScene(deletes("DrainingNode", left), deployed), md},
		"a deployment that makes a machine":                  {aScene(made(), deployed, metal(aHost("h1", "a", bmov1alpha1.StateAvailable))), md},
		"a deployment that lacks a machine":                  {aScene(deployed, lacking), md},
		"a deployment that is kept from making a machine":    {aScene(deployed, lacking, blocked), md},
		"a deployment of which many machines have no node":   {aScene(deployed, many), md},
		"a deployment that does not exist":                   {aScene(), md},
		"a scaled-down deployment whose machine does not go": {aScene(deletes("DrainingNode", left), deployed, smaller), md},
		"a deployment of a cluster that is being deleted":    {aScene(deletes("DrainingNode", left), deployed, leaves), md},
		"a control plane that defers":                        {aScene(plane()), kcp},
		"a cluster that lacks a machine of the control plane of another provider": {aScene(deployed, func(s *scene) {
			s.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: "controlplane.cluster.x-k8s.io", Kind: "RKE2ControlPlane", Name: "cp",
			}
			s.cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{DesiredReplicas: ptr.To[int32](3)}
		}), cluster},
		"a cluster out of reach":                         {aScene(deployed, outOfSight), cluster},
		"a cluster that does not answer you":             {aScene(deployed, noAnswer), cluster},
		"a cluster that answers the manager only":        {aScene(deployed, unseen, noAnswer), cluster},
		"a cluster that is short-circuited":              {aScene(silent(6*time.Minute, "w1", "w2", "w3"), deployed), cluster},
		"a cluster of which two checks select a machine": {aScene(silent(6*time.Minute, "w1", "w2", "w3"), deployed, secondCheck), cluster},
		"a cluster during a power cycle":                 {aScene(silent(6*time.Minute, "w1"), deployed, powerCycled(powercycle.PoweringOff)), cluster},
		"a cluster with machines that nobody makes": {aScene(silent(6*time.Minute, "w4"), deployed,
			ownedBy("w4", "", ""), ownedBy("w5", "RKE2ControlPlane", "cp"), unselected("w4", "w5")), cluster},
		"a cluster with a control plane and a deployment": {aScene(deletes("DrainingNode", left), deployed, aControlPlane()), cluster},
	}, answered)
}

// aControlPlane adds a control plane of one machine with a Ready node.
func aControlPlane() func(*scene) {
	return func(s *scene) {
		kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
		kcp.Spec.Replicas, kcp.Status.Initialization.ControlPlaneInitialized = ptr.To[int32](1), ptr.To(true)
		s.machine("p1")
		ownedBy("p1", "KubeadmControlPlane", "cp")(s)
		s.others = append(s.others, kcp)
	}
}

// smaller scales MachineDeployment md down by one.
func smaller(s *scene) { s.others[0].(*clusterv1.MachineDeployment).Spec.Replicas = ptr.To[int32](4) }

// The document of an owner lists only missing capacity. A deletion that hangs after a scale-down is in the field for what to do.
func TestAnOwnerListsForProgramsWhatIsMissing(t *testing.T) {
	s := aScene(deletes("WaitingForPreDrainHook", "", func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup": "velero"}
	}), deployed, smaller)
	e, err := OfOwner(t.Context(), s.asker(t), client.ObjectKey{Namespace: "default", Name: "md"}, &clusterv1.MachineDeployment{})
	must.Do(t, err)
	if d := e.Document(); len(d.Capacity) != 0 || d.Todo.Reason != "EndHook" {
		t.Errorf("%+v, to do %+v", d.Capacity, d.Todo)
	}
}
