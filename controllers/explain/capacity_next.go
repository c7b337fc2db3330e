package explain

import (
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// CapacityNext is what comes next on the way to the capacity of a machine; zero at an end, and where no controller is known to act.
func CapacityNext(s *capacity.Story) Step {
	if s.Reason == capacity.KubeadmDefers {
		if next := ByKubeadm(s.Owner.Name, s.Args.Kubeadm, s.Args.KubeadmAnswer); !next.Manual {
			return next
		}
	}
	text := nextText(s)
	if text == "" {
		return Step{}
	}
	step := Step{Reason: string(s.Next), NotBefore: s.NotBefore, Text: inStory(s, text)}
	switch s.Next {
	case capacity.DrainGivenUp, capacity.VolumesGivenUp, capacity.NodeGivenUp:
		if !s.Overdue {
			step.At = s.Deadline
		}
	}
	return step
}

// nextText is the text of the next step of a story; empty if there is none.
func nextText(s *capacity.Story) string {
	switch next := s.Next; {
	case next == capacity.InfrastructureGoes && s.Reason == capacity.VolumesAttached:
		return "the infrastructure of {machine} is deleted as soon as the volumes are detached; that wait has no timeout"
	case next == capacity.MachineGoes && s.Owner.Kind == "":
		return "{machine} is gone"
	case next == capacity.MachineGoes && s.Todo != "":
		return "once the deletion of {machine} goes on, {owner} makes the machines that it lacks"
	case next == capacity.ReplacementIsMade && s.Stage == capacity.NoReplacement:
		return "{owner} makes a new Machine"
	case next == capacity.HostIsTaken && len(s.Args.Fitting) > 1:
		return "the provider takes one of these BareMetalHosts for {machine}"
	case next == capacity.HostIsTaken && s.Args.Host == nil:
		return "the provider takes the first BareMetalHost that fits for {machine}"
	case next == capacity.GoesOn && s.Reason == capacity.Disconnected:
		return "the deletion of {machine} goes on as soon as Cluster API has a connection again; this wait has no timeout"
	}
	return nextTexts[s.Next]
}

// nextTexts has one text for each next step.
var nextTexts = map[capacity.Next]string{
	capacity.OwnerReplaces:  "{owner} deletes {machine}, and makes another one",
	capacity.DeletionGoesOn: "the Machine controller deletes {machine}",
	capacity.DrainBegins:    "the node of {machine} is drained as soon as the annotation is gone",
	capacity.DrainGoesOn:    "the deletion of {machine} goes on as soon as the pods have left its node; the drain has no timeout",
	capacity.DrainGivenUp:   "the deletion of {machine} goes on, whether the pods have left its node or not",
	capacity.VolumesGivenUp: "the deletion of {machine} goes on, whether its volumes are detached or not",

	capacity.InfrastructureGoes:  "the infrastructure of {machine} is deleted as soon as the annotation is gone",
	capacity.MachineGoes:         "{machine} is gone, and {owner} makes the machines that it lacks",
	capacity.MachineIsGone:       "{machine} is gone, and no machine is made for it",
	capacity.NodeGivenUp:         "{machine} is gone, whether its node is deleted or not",
	capacity.ReplacementIsMade:   "{owner} makes a new Machine as soon as {machine} is gone",
	capacity.HostIsTaken:         "the provider takes BareMetalHost {host} for {machine}",
	capacity.InfrastructureComes: "the infrastructure of {machine} becomes ready",
	capacity.NodeRegisters:       "the node of {machine} registers",
	capacity.GoesOn:              "it goes on from there",
}

// CapacityDeadline is what happens at the deadline of a story of a new machine, as a clause; empty if it has none, or if CapacityNext says that.
func CapacityDeadline(s *capacity.Story) string {
	if s.Deadline.IsZero() || s.Stage == capacity.Deleting {
		return ""
	}
	if s.Overdue {
		return "a health check counts " + machineText(s) + " as unhealthy since then"
	}
	return "a health check counts " + machineText(s) + " as unhealthy without a node"
}

// NodeTodo is what a person has to do about a Node that no check remediates; zero if the story is about something else.
func NodeTodo(s *capacity.Story) Step {
	switch s.Next {
	case capacity.NodeGetsReady:
		return Step{Reason: string(capacity.LookAtNode), Manual: true, Text: inStory(s, todoTexts[capacity.LookAtNode])}
	case capacity.MachineGetsHealthy:
		return Step{Reason: string(s.Reason), Manual: true, Text: inStory(s, "see which health check marks {machine}, and why")}
	}
	return Step{}
}

// CapacityTodo is what a person can do for the capacity of a machine; zero if there is nothing but to wait.
func CapacityTodo(s *capacity.Story) Step {
	text := todoTexts[s.Todo]
	switch {
	case text == "":
		return Step{}
	case s.Todo == capacity.RepairHost && s.Args.Host == nil:
		text = "repair the host of {machine}"
	case s.Todo == capacity.DeleteMachine && s.Reason == capacity.RolledOutOnDelete:
		text = "delete {machine}"
	}
	return Step{Reason: string(s.Todo), NotBefore: s.NotBefore, Manual: true, Text: inStory(s, text)}
}

// todoTexts has one text for each thing to do.
var todoTexts = map[capacity.Todo]string{
	capacity.Unpause:         "{unpause}",
	capacity.EndHook:         "let the owner of the annotation {hook} finish, or remove the annotation from {machine}",
	capacity.FreeBudget:      "make {object} allow a disruption (more ready replicas, or another limit), or delete the pod yourself",
	capacity.SetDrainTimeout: "free the node of {machine} from the pods that are left, or set nodeDrainTimeoutSeconds {where}",
	capacity.DetachVolumes:   "look at the storage driver that does not detach, or set nodeVolumeDetachTimeoutSeconds {where}",
	capacity.RepairHost:      "repair BareMetalHost {host}",
	capacity.PowerHostOn:     "set spec.online of BareMetalHost {host} to true, unless it is kept off on purpose",
	capacity.RemoveFinalizer: "make the owner of the finalizer {finalizer} finish, or remove it from {object}",

	capacity.LookAtController: "look at the log of Cluster API's controllers for {machine}",
	capacity.LookAtOwner:      "look at {owner} and its controller",
	capacity.AnswerOwner:      "end what keeps {owner} from replacing {machine}, or replace it by hand",
	capacity.RaiseRetries:     "{kubeadm}",
	capacity.RepairMachine:    "{kubeadm}",
	capacity.UnblockOwner:     "end what keeps {owner} from making a machine",
	capacity.AllowCreation:    "remove the annotation cluster.x-k8s.io/disable-machine-create from the MachineSet of {owner}",

	capacity.RepairControlPlane:   "look at the control plane of {object}",
	capacity.LookAtBootstrap:      "look at {object} and its controller",
	capacity.AddHost:              "make a BareMetalHost available that the hostSelector of {object} selects",
	capacity.LookAtInfrastructure: "look at {object} and its provider",
	capacity.LookAtConsole: "look at the console of {object}: its kubelet has not reached the API server, " +
		"or has registered a node with another spec.providerID",
	capacity.LookAtNode:        "look at {object} in the workload cluster: its kubelet and its network",
	capacity.DeleteMachine:     "delete {machine}: its infrastructure is not made again",
	capacity.RestoreConnection: "make the API server of {object} reachable for Cluster API: its endpoint, its certificates, its kubeconfig",
	capacity.RestartKubelet:    "restart the kubelet of {machine}, which registers only when it starts, or delete the Machine",
	capacity.CreateMachine:     "replace {machine} by hand: it has no owner that could",
}

// where is the field of an owner in which timeouts of a deletion are. Cluster API writes the one of a Machine back to that.
func where(s *capacity.Story) string {
	topology := ""
	if s.Args.Topology != "" {
		topology = " of Cluster " + s.Args.Topology
	}
	switch s.Owner.Kind {
	case "":
		return "in spec.deletion of " + machineText(s)
	case "KubeadmControlPlane":
		if topology != "" {
			return "in spec.topology.controlPlane.deletion" + topology
		}
		return "in spec.machineTemplate.spec.deletion of " + objectText(s.Owner)
	}
	if topology != "" {
		return "in spec.topology.workers.machineDeployments[].deletion" + topology
	}
	return "in spec.template.spec.deletion of " + objectText(s.Owner)
}

func unpauseText(s *capacity.Story) string {
	switch {
	case s.WaitsFor.Kind == "Cluster":
		return "unpause " + objectText(s.WaitsFor) + " (spec.paused)"
	case s.WaitsFor.Kind == "BareMetalHost" && s.Args.Host != nil && s.Args.Host.Paused:
		return "remove the annotation baremetalhost.metal3.io/paused from " + objectText(s.WaitsFor)
	case s.WaitsFor.Kind == "BareMetalHost":
		return "remove the annotation baremetalhost.metal3.io/detached from " + objectText(s.WaitsFor)
	case s.WaitsFor.Kind == "MachineDeployment":
		return "unpause " + objectText(s.WaitsFor) + " (spec.paused, or the annotation cluster.x-k8s.io/paused)"
	}
	return "remove the annotation cluster.x-k8s.io/paused from " + objectText(s.WaitsFor)
}

// CapacityStage is a stage in words.
func CapacityStage(s *capacity.Story) string {
	switch s.Stage {
	case capacity.OwnerActs:
		return "the owner acts"
	case capacity.Deleting:
		return "being deleted"
	case capacity.NoReplacement:
		return "no new machine"
	case capacity.WaitingForBootstrapData:
		return "waiting for bootstrap data"
	case capacity.NoHostFits:
		return "no host fits"
	case capacity.Provisioning:
		return "provisioning"
	case capacity.Booting:
		return "booting"
	case capacity.NodeNotReady:
		return "node not Ready"
	case capacity.Back:
		return "back"
	case capacity.NotReplaced:
		return "not replaced"
	}
	return "not known"
}

// CapacityReason is the reason of a story: where a KubeadmControlPlane defers by a rule, that rule.
func CapacityReason(s *capacity.Story) string {
	if s.Reason == capacity.KubeadmDefers {
		return string(s.Args.KubeadmAnswer.Reason)
	}
	return string(s.Reason)
}

// Deleting is a, about a machine that is being deleted, with what the deletion waits for.
func (a Answer) Deleting(s *capacity.Story) Answer {
	if a.Action == "" {
		a.Action = IsBeingDeleted
	}
	a.Implied, a.Since, a.Until = false, s.Since, time.Time{}
	a.Reason, a.Detail = CapacityReason(s), ""
	if s.WaitsFor.Kind != "" && s.WaitsFor.Kind != "Node" && (s.WaitsFor.Kind != "Machine" || s.WaitsFor.Name != s.Machine) {
		a.Detail = objectText(s.WaitsFor)
	}
	if !s.Overdue && (s.Next == capacity.DrainGivenUp || s.Next == capacity.VolumesGivenUp || s.Next == capacity.NodeGivenUp) {
		a.Until = s.Deadline
	}
	return a
}

// OwnerAnswer is the answer about what makes machines, or about a Cluster: how many of its machines have a Ready node and, where that is not all, what the
// first of stories waits for.
func OwnerAnswer(ready, replicas int, first *capacity.Story) Answer {
	a := Answer{State: CapacityComplete, Rest: fmt.Sprintf("%d of %d machines have a Ready node", ready, replicas)}
	if first == nil && ready >= replicas {
		return a
	}
	a.State = CapacityMissing
	if first == nil {
		return a
	}
	is := Answer{}.Deleting(first)
	a.Target, a.Reason, a.Detail, a.Since, a.Until = first.Old, is.Reason, is.Detail, is.Since, is.Until
	if a.Target == "" {
		a.Target = first.Machine
	}
	if first.Todo != "" {
		a.State = CapacityBlocked
	}
	return a
}

// OwnerCounts is how many machines an owner has.
func OwnerCounts(ready, machines, replicas int, rollingOut bool) string {
	text := fmt.Sprintf("%d wanted, %d exist, %d with a Ready node", replicas, machines, ready)
	if rollingOut {
		text += "; rolling out"
	}
	return text
}

// StoryOf is the machine that a story is about, for a list of several.
func StoryOf(s *capacity.Story) string {
	if s.Machine == "" {
		return "A machine that is missing"
	}
	return "Machine " + s.Machine
}

// OwnerFacts are what is known of an owner of machines, or of a Cluster.
func OwnerFacts(obj client.Object, phase string, paused bool) []Fact {
	var facts []Fact
	if cluster := obj.GetLabels()[clusterv1.ClusterNameLabel]; cluster != "" {
		facts = append(facts, Fact{Name: "cluster", Value: cluster})
	}
	if phase != "" {
		facts = append(facts, Fact{Name: "phase", Value: phase})
	}
	if paused {
		facts = append(facts, Fact{Name: "paused", Value: "yes"})
	}
	if at := obj.GetDeletionTimestamp(); at != nil {
		facts = append(facts, Fact{Name: "being deleted", Value: "since " + at.UTC().Format(time.RFC3339)})
	}
	return facts
}

// GoneAnswer is the answer about a machine that does not exist any more.
func GoneAnswer(s *capacity.Story) Answer {
	a := Answer{State: IsReplaced}
	switch s.Stage {
	case capacity.Back:
		a.Reason, a.Implied, a.Detail, a.Since = string(s.Reason), true, s.Replacement.Name, s.Since
	case capacity.NotReplaced:
		a.State, a.Reason = IsNotReplaced, string(s.Reason)
	default:
		a = Answer{}.Deleting(s)
		a.Action, a.State = "", CapacityMissing
		if s.Todo != "" {
			a.State = CapacityBlocked
		}
	}
	return a
}

// GoneFacts are what is known of a machine that does not exist any more.
func GoneFacts(cluster, ownerKind, owner string, began time.Time) []Fact {
	facts := []Fact{{Name: "exists", Value: "no"}, {Name: "cluster", Value: cluster}}
	if owner != "" {
		facts = append(facts, Fact{Name: "owner", Value: ownerKind + " " + owner})
	}
	if !began.IsZero() {
		facts = append(facts, Fact{Name: "remediation", Value: "since " + began.UTC().Format(time.RFC3339)})
	}
	return facts
}
