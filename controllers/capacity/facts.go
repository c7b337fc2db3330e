package capacity

import (
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// old is nil if the machine does not exist. others are all other Machines of its owner, the oldest one first; if machines are Lost,
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

// other is the other machine of that name; nil if there is none.
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

// count is how many machines the owner has that are not being deleted, and how many of these have a Ready node.
func (f *Facts) count() (machines, withNode int) {
	for _, machine := range append(slices.Clone(f.others), f.old) {
		if machine == nil || !machine.DeletionTimestamp.IsZero() {
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

// condOf is the condition of a type of machine; empty if there is none.
func condOf(machine *clusterv1.Machine, kind string) metav1.Condition {
	return cond(machine.Status.Conditions, kind)
}

// ready reports whether the node of machine is Ready.
func ready(machine *clusterv1.Machine) bool {
	return machine.Status.NodeRef.IsDefined() && condOf(machine, clusterv1.MachineNodeReadyCondition).Status == metav1.ConditionTrue
}

// unhealthy reports whether a check marks machine.
func unhealthy(machine *clusterv1.Machine) bool {
	return condOf(machine, clusterv1.MachineHealthCheckSucceededCondition).Status == metav1.ConditionFalse
}

// healthy reports whether the node of machine is Ready, no check marks it, and it is not being deleted.
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

func isPaused(obj client.Object) bool {
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
