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

// Facts are what is known of a machine whose capacity is asked for, and of what makes another one.
type Facts struct {
	Subject

	// Unread are the kinds that could not be read.
	Unread []string

	now time.Time
	// old is the machine, nil if it does not exist. others are all other Machines of its owner, the oldest one first; if machines are Lost,
	// named has them by name.
	old    *clusterv1.Machine
	others []*clusterv1.Machine
	named  map[string]*clusterv1.Machine
	owner  owner
	// cluster is nil if it was not read. clusterDeleted and namespaceDeleted report that these are being deleted.
	cluster                          *clusterv1.Cluster
	clusterDeleted, namespaceDeleted bool
	// checks are those of the namespace, if a machine has no node.
	checks []clusterv1.MachineHealthCheck
	// hosts are those of the namespace, if hostsKnown; wants are by machine what it asks of one.
	hosts      []bmov1alpha1.BareMetalHost
	hostsKnown bool
	wants      map[string]spare.Wants
}

// owner is what replaces a Machine: a MachineDeployment, a MachineSet or a control plane of any provider.
type owner struct {
	ref rule.Ref
	// maker is what makes the machines, and may be paused: of a MachineDeployment the MachineSet of its current revision, which goes on
	// while the MachineDeployment is paused. (Cluster API, core/reconcilers/machineset.)
	maker rule.Ref
	// known reports that it was read, and gone that it does not exist any more, or not for long.
	known, gone, paused bool
	// replicas is how many machines it is to have; nil if it does not say that.
	replicas   *int32
	rollingOut bool
	// conditions are those of maker.
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

// all are the machines of the owner, with the old one.
func (f *Facts) all() []*clusterv1.Machine {
	all := slices.Clone(f.others)
	if f.old != nil {
		all = append(all, f.old)
	}
	return all
}

// count is how many machines the owner has that are not being deleted, and how many of these have a Ready node.
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

// surplus reports whether the owner has all the machines that it is to have, so that it makes none for one that is deleted.
func (f *Facts) surplus() bool {
	machines, _ := f.count()
	return f.owner.known && f.owner.replicas != nil && machines >= int(*f.owner.replicas)
}

// surges reports whether the owner may make a new machine before the old one is gone: in a rollout, or if it is a control plane whose order
// is not known. MachineSets and KubeadmControlPlanes count a machine that is being deleted among their replicas.
func (f *Facts) surges() bool {
	return f.owner.rollingOut || f.Owner.Kind != machineSetKind && f.Owner.Kind != kubeadmKind
}

func onMetal(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.Kind == "Metal3Machine" && ref.APIGroup == infrav1.GroupVersion.Group
}

func condOf(machine *clusterv1.Machine, kind string) metav1.Condition {
	return cond(machine.Status.Conditions, kind)
}

func ready(machine *clusterv1.Machine) bool {
	return machine.Status.NodeRef.IsDefined() && condOf(machine, clusterv1.MachineNodeReadyCondition).Status == metav1.ConditionTrue
}

func unhealthy(machine *clusterv1.Machine) bool {
	return condOf(machine, clusterv1.MachineHealthCheckSucceededCondition).Status == metav1.ConditionFalse
}

// Notable reports whether machine says more to the story of another one than that the owner has it: it has no node, is being deleted, is
// unhealthy, or was made for one that is written down.
func Notable(machine *clusterv1.Machine) bool {
	return !machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero() || unhealthy(machine) ||
		machine.Annotations[controlplanev1.RemediationForAnnotation] != ""
}

func healthy(machine *clusterv1.Machine) bool {
	return ready(machine) && !unhealthy(machine) && machine.DeletionTimestamp.IsZero()
}

// ailing is what the infrastructure of machine reports to be wrong; empty if that is nothing.
func ailing(machine *clusterv1.Machine) metav1.Condition {
	infra := condOf(machine, clusterv1.MachineInfrastructureReadyCondition)
	if infra.Status != metav1.ConditionFalse || infra.Message == "" {
		return metav1.Condition{}
	}
	return infra
}

// fails reports whether a mirrored condition is no wait.
func fails(cond metav1.Condition) bool {
	return slices.Contains([]string{"InternalError", "InvalidConditionReported", "ObjectDoesNotExist", "ObjectDeleted"}, cond.Reason)
}

// infraOf is the infrastructure of machine, or machine itself if that is not known.
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

// The kinds of owners that are told apart.
const (
	machineSetKind        = "MachineSet"
	machineDeploymentKind = "MachineDeployment"
	kubeadmKind           = "KubeadmControlPlane"
)

// Subject is the machine whose capacity is asked for. What is in it is all that can be known of a machine that is gone: keep it from Of.
type Subject struct {
	Namespace, Name, Cluster string
	// Machine is the machine itself, as the caller has read it; nil if it does not exist. One that its owner lacks has no name either.
	Machine *clusterv1.Machine
	// Gone is since when it does not exist any more; Seen, if that is not known, when it was last there: what replaces it was made since.
	Gone, Seen time.Time
	// Owner is what makes its machines: a MachineSet or a control plane. Without a Kind it has none. Deployment is the MachineDeployment of
	// its MachineSet.
	Owner      Owner
	Deployment string
	// Host is the BareMetalHost that it had.
	Host string
	// Found is the machine that was found to replace it before; empty if that was not kept. Lost are other machines of the same owner that
	// are gone: their names, since when or, if that is not known, when their deletion began, and what was kept of their hosts and of those
	// that replace them.
	Found string
	Lost  []Subject
	// Remembered are by the name of a machine the one that it replaces, as RemediationRecords have it.
	Remembered map[string]string
}

// Owner names the controller of a Machine.
type Owner struct{ Group, Kind, Name string }

// Of is machine as a Subject.
func Of(machine *clusterv1.Machine) Subject {
	return Subject{
		Namespace: machine.Namespace, Name: machine.Name, Cluster: machine.Spec.ClusterName,
		Machine: machine, Owner: ownerOf(machine), Deployment: machine.Labels[clusterv1.MachineDeploymentNameLabel],
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
	annotation := machine.Annotations[controlplanev1.RemediationForAnnotation]
	if annotation == "" { // as most have: all machines of an owner are asked for each that it has lost
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

func cond(conditions []metav1.Condition, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}
