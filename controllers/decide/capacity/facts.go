// Package capacity decides what the capacity of a machine that is being replaced waits for, and until when: the deletion of the old Machine, its owner, the
// new Machine, its host, its node.
//
// It decides nothing that kubemend does, and it has no sentences: a Story has reasons with arguments, and package explain renders them. What it knows of
// Cluster API v1.14.2 is from core/reconcilers/machine/machine_controller.go (reconcileDelete), core/reconcilers/machineset/machineset_controller.go
// (syncReplicas, createMachines) and controlplane/kubeadm/reconcilers/kubeadmcontrolplane/remediation.go; what it knows of hosts, from CAPM3's
// baremetal/metal3machine_manager.go (chooseHost, Delete) and the Bare Metal Operator's apis/metal3.io/v1alpha1/baremetalhost_types.go.
package capacity

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// Facts are what is known of a machine that is, or was, unhealthy or is being deleted, and of what makes a new one. A zero moment is one that is not known.
type Facts struct {
	Now time.Time
	// Began is when its remediation or, without one, its deletion began.
	Began time.Time
	// Old is the machine. When it is Gone no more is known of it than what the caller has kept.
	Old Machine
	// Others are all other Machines of its owner, in any order: those of its MachineDeployment, its MachineSet or its control plane.
	Others []Machine
	// Lost are machines of the same owner that are gone too, as far as the caller has kept them.
	Lost []Loss
	// Found is the machine that was found to replace Old before, if the caller has kept that.
	Found string
	Owner Owner
	// ClusterDeleting and NamespaceDeleting are since when these are being deleted. ClusterPaused reports that no controller acts in the Cluster.
	ClusterDeleting, NamespaceDeleting time.Time
	ClusterPaused                      bool
	Cluster, Namespace                 string
	// InitializedAt is when its control plane was initialized, ReadyAt when its infrastructure was ready: checks count start-up timeouts from there, too.
	InitializedAt, ReadyAt time.Time
	// Initialized reports that the control plane of the Cluster is initialized: without it no worker gets bootstrap data.
	Initialized bool
	// Hosts are the BareMetalHosts of the namespace, if HostsKnown.
	Hosts      []Host
	HostsKnown bool
	// Unread are the kinds that could not be read.
	Unread []string
}

// Loss is a machine that is gone.
type Loss struct {
	Name string
	// At is when it was gone or, if that is not known, when its deletion began.
	At time.Time
	// Found is the machine that was found to replace it, if the caller has kept that.
	Found string
	// Host is the host that it had, if that is known.
	Host string
}

// Condition is one of an object.
type Condition struct {
	Status, Reason, Message string
	// Since is when Status last changed: a Reason may be younger.
	Since time.Time
}

// True reports whether the condition is there, and true.
func (c Condition) True() bool { return c.Status == "True" }

// Machine is what is known of a Machine.
type Machine struct {
	Name, UID string
	// Gone reports that it does not exist any more; GoneAt is since when.
	Gone   bool
	GoneAt time.Time
	// Created and Deleting are when it was created, and when its deletion began.
	Created, Deleting time.Time
	// Paused reports that its own annotation pauses it. ControlPlane reports that it belongs to the control plane.
	Paused, ControlPlane bool
	// Set is its MachineSet, if it has one.
	Set      string
	Deletion Deletion
	// Asked is its condition OwnerRemediated.
	Asked Condition
	// Unhealthy reports that a check has marked it as unhealthy (HealthCheckSucceeded=False).
	Unhealthy bool
	// Replaces is the machine that its owner says it replaces, and ReplacesSince when that was deleted.
	Replaces      string
	ReplacesSince time.Time
	// Remembered is the machine that it replaces by a record that its owner did not write.
	Remembered string

	// Bootstrap is its condition BootstrapConfigReady, BootstrapConfig the object; BootstrapProvided reports that the data is there.
	Bootstrap         Condition
	BootstrapConfig   Object
	BootstrapProvided bool
	// Infrastructure is its condition InfrastructureReady, Infra the object; InfrastructureProvisioned reports that it is there.
	Infrastructure            Condition
	Infra                     Object
	InfrastructureProvisioned bool
	// Metal3 reports that its infrastructure is a Metal3Machine, Associated is what that says of its host, Host the host that it has. Data is what it says
	// of the data that a host needs besides, where something is missing.
	Metal3           bool
	Associated, Data Condition
	Host             string
	// Hosts are Facts.Hosts as this machine sees them, if that is not as they are there. HostsUnread reports that what it wants of a host could not be read.
	Hosts       []Host
	HostsUnread bool
	// Node is its node; NodeReady and Ready are its conditions of these names.
	Node             string
	NodeReady, Ready Condition
	// Connection is what Cluster API says of its connection to the workload cluster, where that is down.
	Connection Condition
	// StartupTimeout is how long its check waits for its node; zero if for ever.
	StartupTimeout time.Duration
}

// Object is an object that a deletion or a Machine waits for.
type Object struct {
	Kind, Namespace, Name string
}

// Deletion is how far the deletion of a Machine is.
type Deletion struct {
	// Condition is its condition Deleting; Finalizers are those that it has.
	Condition  Condition
	Finalizers []Finalizer
	// PreDrainHooks and PreTerminateHooks are the hooks that it waits for.
	PreDrainHooks, PreTerminateHooks []Hook
	// The timeouts are those of its spec; zero means none.
	DrainTimeout, VolumeTimeout, NodeTimeout time.Duration
	// The moments are when each wait began.
	PreDrainSince, DrainSince, VolumesSince, PreTerminateSince time.Time
	// PodsRead reports that pods were read from the workload cluster, Pods are those that are left on the node. Volumes are those that are attached to it, as
	// far as the workload cluster could be read.
	PodsRead bool
	Pods     []Pod
	Volumes  []Volume
	// Infra and Bootstrap are the objects that are deleted with it, as far as they could be read.
	Infra, Bootstrap Remains
}

// Finalizer is one of an object, and the field manager that added it, if that is known.
type Finalizer struct{ Name, By string }

// Hook is an annotation that keeps a deletion from going on, and its value, which names the owner by convention.
type Hook struct{ Name, Owner string }

// Remains is an object that is deleted with a Machine.
type Remains struct {
	Exists bool
	// Paused reports that its annotation pauses it. Group is the API group of its kind.
	Paused     bool
	Group      string
	Deleting   time.Time
	Finalizers []Finalizer
}

// Pod is one that a drain waits for.
type Pod struct {
	Namespace, Name string
	// Budget is the PodDisruptionBudget that allows no disruption of it; empty if none forbids that.
	Budget string
	// Deleting is since when it is being deleted, Grace until when its grace period lasts.
	Deleting, Grace time.Time
	Finalizers      []string
	// Completes reports that the drain waits until it has completed, and does not evict it; Later, that others have to leave before.
	Completes, Later bool
}

// Blocked reports whether its budget keeps the drain from evicting it now.
func (p *Pod) Blocked() bool {
	return p.Budget != "" && p.Deleting.IsZero() && !p.Completes && !p.Later
}

// Volume is one that is attached to a node.
type Volume struct {
	// Name is the PersistentVolume, or what the node calls it; Attachment is its VolumeAttachment, Attacher the driver.
	Name, Attachment, Attacher string
	// Error is why the driver could not detach it.
	Error string
	// Deleting is since when the VolumeAttachment is being deleted.
	Deleting time.Time
}

// Owner is what replaces a Machine.
type Owner struct {
	// Kind is empty if the machine has no owner that makes machines. Known reports that the owner was read; Gone, that it does not exist.
	Kind, Name  string
	Known, Gone bool
	Deleting    time.Time
	// Paused reports that it does not act, of a MachineDeployment that the MachineSet Set does not.
	Paused bool
	// Replicas is how many machines it is to have; Uncounted reports that it does not say that.
	Replicas  int
	Uncounted bool
	// NoCreation reports that its annotation forbids it to create machines.
	NoCreation bool
	// ScalingUp is its condition of that name, or another one whose message says what keeps it from creating a machine, if Blocked.
	ScalingUp Condition
	Blocked   bool
	// Ailing is a condition of its health that is not true; zero if there is none.
	Ailing Condition
	// Topology reports that it is made from the topology of the Cluster, which writes its spec.
	Topology bool
	// RollingOut reports that it replaces machines since its template has changed, RolloutPaused that it does not go on with that, OnDelete that it leaves the
	// deletion of each to a person. Set is the MachineSet of the current revision.
	RollingOut, RolloutPaused, OnDelete bool
	Set                                 string
	// Deployment is the MachineDeployment that it belongs to. Where there is one, the fields are those of the MachineDeployment, but for Kind and Name.
	Deployment string
	// Kubeadm is what decides when a KubeadmControlPlane replaces the machine; nil for other owners.
	Kubeadm *kubeadm.Facts
}

// Object is the owner as an object.
func (o *Owner) object() Object {
	if o.Deployment != "" {
		return Object{Kind: "MachineDeployment", Name: o.Deployment}
	}
	return Object{Kind: o.Kind, Name: o.Name}
}

// familiar reports whether it is known by which rules the owner makes machines: those of MachineSets and of KubeadmControlPlanes are. A control plane of
// another project may make the new machine before or after the old one is gone, and keeps reasons for waiting elsewhere.
func (o *Owner) familiar() bool {
	return o.Kind == "" || o.Kind == "MachineSet" || o.Kind == "KubeadmControlPlane"
}

// Host is what is known of a BareMetalHost.
type Host struct {
	Name string
	// Selected reports that the new machine's hostSelector selects it; Unmatched is the requirement that does not.
	Selected  bool
	Unmatched string
	// State is its provisioning state, Since when it began.
	State string
	Since time.Time
	// Consumer is what has it, such as "Metal3Machine m"; empty if nothing does.
	Consumer string
	// Reserved is whose machines it is kept for (node reuse), Unreserved reports that this is not the machine's owner.
	Reserved                                    string
	Unreserved                                  bool
	Deleting, Paused, Detached, MarkedUnhealthy bool
	ErrorType, Error                            string
	PoweredOn, Online                           bool
}
