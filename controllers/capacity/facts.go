package capacity

import (
	"encoding/json"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Facts are what is known about a machine that was lost, or is being lost, and about its owner.
type Facts struct {
	Subject

	// Unread are the kinds that could not be read.
	Unread []string

	now time.Time
	// old is the machine; nil if it does not exist. others are all other Machines of its owner, the oldest first.
	old    *clusterv1.Machine
	others []*clusterv1.Machine
	// named has others by name; it is set only if there are machines in Lost.
	named map[string]*clusterv1.Machine
	owner owner
	// cluster is nil if it was not read.
	cluster                          *clusterv1.Cluster
	clusterDeleted, namespaceDeleted bool
	// checks are the MachineHealthChecks of the namespace, read only if a machine has no node.
	checks []clusterv1.MachineHealthCheck
	// hosts are the BareMetalHosts of the namespace, valid if hostsKnown is set.
	hosts      []bmov1alpha1.BareMetalHost
	hostsKnown bool
	// wants has, by the name of a machine, what it needs of a host.
	wants map[string]spare.Wants
}

// owner is what replaces a Machine: a MachineDeployment, a MachineSet or a control plane of any provider.
type owner struct {
	ref rule.Ref
	// maker is the object that creates the machines, and may be paused. For a MachineDeployment it is the MachineSet of the current
	// revision, which creates machines even while the MachineDeployment is paused. (Cluster API, core/reconcilers/machineset.)
	maker rule.Ref
	// known reports that the owner was read. gone reports that it was deleted, or is being deleted. paused is about maker.
	known, gone, paused bool
	// replicas is its spec.replicas; nil without one.
	replicas   *int32
	rollingOut bool
	// conditions are the conditions of maker.
	conditions []metav1.Condition
}

func (f *Facts) other(name string) *clusterv1.Machine {
	if name == "" || f.named != nil {
		return f.named[name]
	}
	i := slices.IndexFunc(f.others, func(machine *clusterv1.Machine) bool { return machine.Name == name })
	if i < 0 {
		return nil
	}
	return f.others[i]
}

// all returns the machines of the owner, including the old one.
func (f *Facts) all() []*clusterv1.Machine {
	all := slices.Clone(f.others)
	if f.old != nil {
		all = append(all, f.old)
	}
	return all
}

// count returns how many machines of the owner are not being deleted, and how many of these have a Ready node.
func (f *Facts) count() (machines, withNode int) {
	for _, machine := range f.all() {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		machines++
		if ready(machine) {
			withNode++
		}
	}
	return machines, withNode
}

// surplus reports whether the owner has all its replicas without the old machine, and so creates no machine for it.
func (f *Facts) surplus() bool {
	machines, _ := f.count()
	return f.owner.known && f.owner.replicas != nil && machines >= int(*f.owner.replicas)
}

// surges reports whether the owner may create a new machine before the old one is gone: in a rollout, or if it is a control plane of
// another provider. A MachineSet or KubeadmControlPlane does not, since a machine that is being deleted counts as a replica.
func (f *Facts) surges() bool {
	return f.owner.rollingOut || f.Owner.Kind != machineSetKind && f.Owner.Kind != kubeadmKind
}

func onMetal(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.Kind == "Metal3Machine" && ref.APIGroup == infrav1.GroupVersion.Group
}

func ready(machine *clusterv1.Machine) bool {
	node := cond(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	return machine.Status.NodeRef.IsDefined() && node.Status == metav1.ConditionTrue
}

func unhealthy(machine *clusterv1.Machine) bool {
	return cond(machine.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition).Status == metav1.ConditionFalse
}

// Notable reports whether the story of another machine of the owner needs more of machine than its existence: machine has no node, is being
// deleted, is unhealthy, or was created as a replacement (its annotation says so).
func Notable(machine *clusterv1.Machine) bool {
	return !machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero() || unhealthy(machine) ||
		machine.Annotations[controlplanev1.RemediationForAnnotation] != ""
}

func healthy(machine *clusterv1.Machine) bool {
	return ready(machine) && !unhealthy(machine) && machine.DeletionTimestamp.IsZero()
}

// ailing returns what the infrastructure of machine reports as wrong; empty if nothing.
func ailing(machine *clusterv1.Machine) metav1.Condition {
	infra := cond(machine.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition)
	if infra.Status != metav1.ConditionFalse || infra.Message == "" {
		return metav1.Condition{}
	}
	return infra
}

// fails reports whether a condition that Cluster API mirrors from another object is an error, not a wait.
func fails(cond metav1.Condition) bool {
	return slices.Contains([]string{"InternalError", "InvalidConditionReported", "ObjectDoesNotExist", "ObjectDeleted"}, cond.Reason)
}

// infraOf returns the infrastructure of machine, or machine itself if it has none.
func infraOf(machine *clusterv1.Machine) rule.Ref {
	if !machine.Spec.InfrastructureRef.IsDefined() {
		return machineRef(machine)
	}
	return rule.Ref{Kind: machine.Spec.InfrastructureRef.Kind, Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
}

func isPaused(obj metav1.Object) bool {
	_, paused := obj.GetAnnotations()[clusterv1.PausedAnnotation]
	return paused
}

func machineRef(machine *clusterv1.Machine) rule.Ref {
	return rule.Ref{Kind: "Machine", Namespace: machine.Namespace, Name: machine.Name}
}

func nodeRef(machine *clusterv1.Machine) rule.Ref {
	return rule.Ref{Kind: "Node", Name: machine.Status.NodeRef.Name}
}

func configRef(machine *clusterv1.Machine) rule.Ref {
	config := machine.Spec.Bootstrap.ConfigRef
	return rule.Ref{Kind: config.Kind, Namespace: machine.Namespace, Name: config.Name}
}

func (f *Facts) clusterRef() rule.Ref {
	return rule.Ref{Kind: "Cluster", Namespace: f.Namespace, Name: f.Cluster}
}

func latest(moments ...time.Time) time.Time { return slices.MaxFunc(moments, time.Time.Compare) }

// The kinds of owners that are treated differently.
const (
	machineSetKind        = "MachineSet"
	machineDeploymentKind = "MachineDeployment"
	kubeadmKind           = "KubeadmControlPlane"
)

// Subject is the machine whose capacity is missing. Nothing else is known about a machine that is gone, so callers keep the result of Of.
type Subject struct {
	Namespace, Name, Cluster string
	// Machine is the machine as the caller has read it; nil if it does not exist. If its owner merely lacks a machine, Name is empty too.
	Machine *clusterv1.Machine
	// Gone is when the machine was deleted, before its replacement was created. Seen is when it last existed, if Gone is not known.
	Gone, Seen time.Time
	// Owner is the MachineSet or control plane that creates its machines; it has no Kind if there is none.
	Owner Owner
	// Deployment is the MachineDeployment of that MachineSet.
	Deployment string
	// Host is the name of the BareMetalHost that the machine had.
	Host string
	// Found is the machine that was found earlier as its replacement; empty if none was stored.
	Found string
	// Lost are other machines of the same owner that are gone. They have their names, Gone (or when their deletion began), and what was
	// stored of their hosts and replacements.
	Lost []Subject
	// Remembered has, by the name of a machine, the machine that it replaces according to RemediationRecords.
	Remembered map[string]string
}

// Owner names the controller of a Machine.
type Owner struct{ Group, Kind, Name string }

// Of returns machine as a Subject.
func Of(machine *clusterv1.Machine) Subject {
	return Subject{
		Namespace: machine.Namespace, Name: machine.Name, Cluster: machine.Spec.ClusterName,
		Machine: machine, Owner: ownerOf(machine), Deployment: machine.Labels[clusterv1.MachineDeploymentNameLabel],
	}
}

// Lacking returns a machine that an owner of a Cluster lacks. For a MachineDeployment, its MachineSets need not be known.
func Lacking(namespace, cluster string, owner Owner) Subject {
	s := Subject{Namespace: namespace, Cluster: cluster, Owner: owner}
	if owner.Kind == machineDeploymentKind {
		s.Owner, s.Deployment = Owner{Group: owner.Group, Kind: machineSetKind}, owner.Name
	}
	return s
}

func ownerOf(machine *clusterv1.Machine) Owner {
	owner := metav1.GetControllerOf(machine)
	if owner == nil {
		return Owner{}
	}
	return Owner{schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group, owner.Kind, owner.Name}
}

// owns reports whether machine belongs to the MachineDeployment of s or, without one, to the owner of s.
func (s *Subject) owns(machine *clusterv1.Machine) bool {
	if s.Deployment != "" {
		return machine.Labels[clusterv1.MachineDeploymentNameLabel] == s.Deployment
	}
	return s.Owner.Kind != "" && ownerOf(machine) == s.Owner
}

// young is the age up to which a node that is not Ready counts as one that never was.
const young = time.Hour

// Concerns reports whether machine may have a Story: it is being deleted, its owner was asked to replace it, it has no node, or it is young
// and its node is not Ready. Callers need not read anything for other machines.
func Concerns(machine *clusterv1.Machine, now time.Time) bool {
	asked := cond(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if !machine.DeletionTimestamp.IsZero() || asked.Status == metav1.ConditionFalse || !machine.Status.NodeRef.IsDefined() {
		return true
	}
	node := cond(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	return node.Status != "" && node.Status != metav1.ConditionTrue && now.Sub(machine.CreationTimestamp.Time) < young
}

// Replaces returns the machine that machine was created for, and when the former was deleted, if the owner has noted it. (Cluster API,
// RemediationData of a KubeadmControlPlane.) A user may write anything into the annotation.
func Replaces(machine *clusterv1.Machine) (name string, at time.Time) {
	annotation := machine.Annotations[controlplanev1.RemediationForAnnotation]
	if annotation == "" { // the usual case, and a hot path: each lost machine asks all others
		return "", time.Time{}
	}
	var data struct {
		Machine   string      `json:"machine"`
		Timestamp metav1.Time `json:"timestamp"`
	}
	if json.Unmarshal([]byte(annotation), &data) != nil || len(validation.IsDNS1123Subdomain(data.Machine)) > 0 {
		return "", time.Time{}
	}
	return data.Machine, data.Timestamp.Time
}

// cond returns the condition called kind, or an empty one.
func cond(conditions []metav1.Condition, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}
