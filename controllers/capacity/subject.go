package capacity

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kinds of owners that are told apart.
const (
	machineSetKind        = "MachineSet"
	machineDeploymentKind = "MachineDeployment"
	kubeadmKind           = "KubeadmControlPlane"
)

// Subject is the machine whose capacity is asked for. What is in it is all that can be known of a machine that is gone: keep it from Of.
type Subject struct {
	Namespace, Name, Cluster string
	// Began is when its remediation began; zero if it has none. Gone is since when it does not exist any more. Created is when it was
	// created.
	Began, Gone, Created time.Time
	// Owner is what makes its machines: a MachineSet or a control plane. Without a Kind it has none. Deployment is the MachineDeployment of
	// its MachineSet.
	Owner      Owner
	Deployment string
	// Host is the BareMetalHost that it had.
	Host string
	// Lost are other machines of the same owner that are gone. Found is the machine that was found to replace it before; empty if that was
	// not kept.
	Lost  []Loss
	Found string
	// Remembered are by the name of a machine the one that it replaces, as RemediationRecords have it.
	Remembered map[string]string
}

// Owner names the controller of a Machine.
type Owner struct{ Group, Kind, Name string }

// Loss is a machine that is gone.
type Loss struct {
	Name string
	// At is when it was gone or, if that is not known, when its deletion began.
	At time.Time
	// Found is the machine that was found to replace it, and Host the host that it had, if that was kept.
	Found, Host string
}

// Of is machine as a Subject whose remediation began then.
func Of(machine *clusterv1.Machine, began time.Time) Subject {
	return Subject{
		Namespace: machine.Namespace, Name: machine.Name, Cluster: machine.Spec.ClusterName,
		Began: began, Created: machine.CreationTimestamp.Time,
		Owner: ownerOf(machine), Deployment: machine.Labels[clusterv1.MachineDeploymentNameLabel],
	}
}

// Lacking is a machine that an owner of a Cluster lacks. Of a MachineDeployment, its MachineSets need not be known.
func Lacking(namespace, cluster string, owner Owner) Subject {
	s := Subject{Namespace: namespace, Cluster: cluster, Owner: owner}
	if owner.Kind == machineDeploymentKind {
		s.Owner, s.Deployment = Owner{Group: owner.Group, Kind: machineSetKind}, owner.Name
	}
	return s
}

// selected has the label by which the machines of the owner are found. The record of a NodeHealthCheck names no Cluster.
func (s *Subject) selected() client.MatchingLabels {
	switch {
	case s.Deployment != "":
		return client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: s.Deployment}
	case s.Cluster != "":
		return client.MatchingLabels{clusterv1.ClusterNameLabel: format.MustFormatValue(s.Cluster)}
	case s.Owner.Kind == machineSetKind:
		return client.MatchingLabels{clusterv1.MachineSetNameLabel: format.MustFormatValue(s.Owner.Name)}
	}
	return client.MatchingLabels{clusterv1.MachineControlPlaneNameLabel: format.MustFormatValue(s.Owner.Name)}
}

func ownerOf(machine *clusterv1.Machine) Owner {
	owner := metav1.GetControllerOf(machine)
	if owner == nil {
		return Owner{}
	}
	return Owner{schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group, owner.Kind, owner.Name}
}

// owns reports whether machine is one of the owner of s: of its MachineDeployment, if there is one.
func (s *Subject) owns(machine *clusterv1.Machine) bool {
	if s.Deployment != "" {
		return machine.Labels[clusterv1.MachineDeploymentNameLabel] == s.Deployment
	}
	return s.Owner.Kind != "" && ownerOf(machine) == s.Owner
}

// young is how long a machine that has no Ready node may be one that has not had one yet.
const young = time.Hour

// Concerns reports whether there may be a story about machine: it is being deleted, its owner was asked to replace it, or it has had no
// Ready node yet. Of all other machines nothing needs to be read.
func Concerns(machine *clusterv1.Machine, now time.Time) bool {
	asked := cond(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if !machine.DeletionTimestamp.IsZero() || asked.Status == metav1.ConditionFalse || !machine.Status.NodeRef.IsDefined() {
		return true
	}
	node := cond(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	return node.Status != "" && node.Status != metav1.ConditionTrue && now.Sub(machine.CreationTimestamp.Time) < young
}

// Replaces is the machine that machine was made for, and when that was deleted, if its owner has written it down. (Cluster API,
// RemediationData of a KubeadmControlPlane.) A user may have written anything there.
func Replaces(machine *clusterv1.Machine) (name string, at time.Time) {
	var data struct {
		Machine   string      `json:"machine"`
		Timestamp metav1.Time `json:"timestamp"`
	}
	annotation := machine.Annotations[controlplanev1.RemediationForAnnotation]
	if annotation == "" { // as most have: all machines of an owner are asked for each that it has lost
		return "", time.Time{}
	}
	if json.Unmarshal([]byte(annotation), &data) != nil || len(validation.IsDNS1123Subdomain(data.Machine)) > 0 {
		return "", time.Time{}
	}
	return data.Machine, data.Timestamp.Time
}

// cond is the condition of a type; empty if there is none.
func cond(conditions []metav1.Condition, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}
