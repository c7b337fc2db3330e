package capacity

import (
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/suite"
)

// truths are what the capacity of the machine that was lost waits for. Only while a rollout makes several machines there is more than one: any of them may be
// the one that replaces it.
func (s *scene) truths(f *facts) []suite.Blocker {
	old := f.machine(s.old)
	switch {
	case old == nil:
		return s.replaced(f)
	case old.DeletionTimestamp.IsZero():
		return []suite.Blocker{s.asked(f, old)}
	}
	is := s.deletion(f, old)
	enough := len(f.live()) >= s.wanted(f)
	switch {
	case f.leaving != "":
		is.Ends = f.leaving
	case enough && len(s.newcomers(f)) > 0:
		return s.surged(f, is)
	case enough:
		is.Ends = "ScaledDown"
	default:
		return []suite.Blocker{is}
	}
	return []suite.Blocker{withoutReplacement(is)}
}

// wanted is how many workers there are to be.
func (s *scene) wanted(f *facts) int {
	if len(f.deployments) == 0 || f.deployments[0].Spec.Replicas == nil {
		return 0
	}
	return int(*f.deployments[0].Spec.Replicas)
}

// newcomers are the workers that were not there when the scene began.
func (s *scene) newcomers(f *facts) []*clusterv1.Machine {
	return slices.DeleteFunc(f.live(), func(m *clusterv1.Machine) bool { return slices.Contains(s.first, m.Name) })
}

// withoutReplacement is a deletion after which no machine is made.
func withoutReplacement(is suite.Blocker) suite.Blocker {
	if is.Next == "ReplacementIsMade" || is.Next == "MachineGoes" {
		is.Next = "MachineIsGone"
	}
	if is.Reason == "DeletionBegins" { // of that there is nothing to say
		is.Reason = ""
	}
	is.Object, is.Deadline = "", time.Time{} // the names are in the sentence
	return is
}

// surged is what is true while a rollout has made machines before the old one is gone, the deletion of which is so far.
func (s *scene) surged(f *facts, deletion suite.Blocker) []suite.Blocker {
	var waited []suite.Blocker
	ready := 0
	for _, m := range f.live() {
		if f.ready(m) {
			ready++
		} else {
			waited = append(waited, s.arrival(f, m))
		}
	}
	if ready >= s.wanted(f) {
		deletion.Ends = suite.Back
		return []suite.Blocker{withoutReplacement(deletion)}
	}
	return waited
}

// replaced is what is true of a machine that is gone.
func (s *scene) replaced(f *facts) []suite.Blocker {
	if f.leaving != "" {
		return []suite.Blocker{{Ends: f.leaving}}
	}
	var all []suite.Blocker
	for _, m := range s.newcomers(f) {
		all = append(all, s.arrival(f, m))
	}
	switch {
	case len(all) > 0:
		return all
	case len(f.live()) >= s.wanted(f):
		return []suite.Blocker{{Ends: "ScaledDown"}}
	case s.pausedSet(f) != "":
		return []suite.Blocker{{Reason: "ObjectPaused", Object: "MachineSet " + s.pausedSet(f), Next: "GoesOn"}}
	}
	return []suite.Blocker{{Reason: "OwnerCreates", Object: "MachineDeployment " + s.Pool(), Next: "ReplacementIsMade"}}
}

// pausedSet is the MachineSet that is paused; empty if none is.
func (s *scene) pausedSet(f *facts) string {
	for i := range f.sets {
		if _, paused := f.sets[i].Annotations[clusterv1.PausedAnnotation]; paused {
			return f.sets[i].Name
		}
	}
	return ""
}

// asked is what is true of a machine that its owner is asked to replace.
func (s *scene) asked(f *facts, m *clusterv1.Machine) suite.Blocker {
	answer := conditions.GetReason(m, clusterv1.MachineOwnerRemediatedCondition)
	is := suite.Blocker{Reason: answer, Object: "MachineDeployment " + s.Pool(), Next: "OwnerReplaces"}
	switch {
	case answer == "":
		return suite.Blocker{Ends: "NotAsked"}
	case s.pausedSet(f) != "":
		is.Reason, is.Object, is.Next = "ObjectPaused", "MachineSet "+s.pausedSet(f), "GoesOn"
	case answer == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		is.Reason = "OwnerRollsOut"
	}
	return is
}

// deletion is what the deletion of m waits for.
func (s *scene) deletion(f *facts, m *clusterv1.Machine) suite.Blocker {
	is := suite.Blocker{Object: "Machine " + m.Name, Next: "ReplacementIsMade"}
	switch is.Reason = conditions.GetReason(m, clusterv1.MachineDeletingCondition); is.Reason {
	case clusterv1.MachineDeletingDrainingNodeReason:
		return f.drain(m)
	case clusterv1.MachineDeletingWaitingForVolumeDetachReason:
		is.Object, is.Next = "Node "+m.Status.NodeRef.Name, "InfrastructureGoes"
		for _, a := range f.attachments {
			if a.Spec.NodeName == m.Status.NodeRef.Name && a.Status.Attached {
				is.Object, is.Names = "VolumeAttachment "+a.Name, []string{a.Name, *a.Spec.Source.PersistentVolumeName}
			}
		}
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		return f.infrastructureGoes(m)
	case clusterv1.MachineDeletingDeletingNodeReason:
		is.Object, is.Next = "Node "+m.Status.NodeRef.Name, "MachineGoes"
		if seconds := m.Spec.Deletion.NodeDeletionTimeoutSeconds; seconds != nil && *seconds > 0 {
			is.Next, is.Deadline = "NodeGivenUp", m.DeletionTimestamp.Add(time.Duration(*seconds)*time.Second)
		}
	case clusterv1.MachineDeletingDeletionCompletedReason:
		if left := foreign(m.Finalizers); len(left) > 0 {
			is.Reason, is.Names = "ForeignFinalizer", left
		}
	case clusterv1.MachineDeletingReason, clusterv1.MachineNotDeletingReason, "":
		is.Reason, is.Next = "DeletionBegins", "DeletionGoesOn"
	}
	return is
}

// drain is what a drain of the node of m waits for.
func (f *facts) drain(m *clusterv1.Machine) suite.Blocker {
	node := m.Status.NodeRef.Name
	is := suite.Blocker{Reason: "DrainingNode", Object: "Node " + node, Next: "DrainGoesOn"}
	if m.Spec.Deletion.NodeDrainTimeoutSeconds != nil && m.Status.Deletion != nil {
		is.Next = "DrainGivenUp"
		is.Deadline = m.Status.Deletion.NodeDrainStartTime.Add(time.Duration(*m.Spec.Deletion.NodeDrainTimeoutSeconds) * time.Second)
	}
	for i := range f.pods {
		p := &f.pods[i]
		if p.Spec.NodeName != node {
			continue
		}
		is.Object, is.Names = "Pod "+p.Name, []string{p.Namespace + "/" + p.Name}
		for j := range f.budgets {
			b := &f.budgets[j]
			selector, _ := metav1.LabelSelectorAsSelector(b.Spec.Selector) // the scene made it
			if p.DeletionTimestamp.IsZero() && b.Status.DisruptionsAllowed == 0 && selector.Matches(labels.Set(p.Labels)) {
				is.Reason, is.Object = "DrainBlockedByBudget", "PodDisruptionBudget "+b.Name
				is.Names = append(is.Names, b.Name)
			}
		}
	}
	return is
}

// infrastructureGoes is what the deletion of the infrastructure of m waits for.
func (f *facts) infrastructureGoes(m *clusterv1.Machine) suite.Blocker {
	is := suite.Blocker{
		Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason, Object: "Metal3Machine " + m.Spec.InfrastructureRef.Name, Next: "MachineGoes",
	}
	if host := f.hostOf(m); host != nil {
		is.Reason, is.Object, is.Names = "HostDeprovisioning", "BareMetalHost "+host.Name, []string{host.Name}
		return is
	}
	between := f.metal3(m)
	if between == nil {
		return is
	}
	if left := foreign(between.GetFinalizers()); len(left) > 0 && len(left) == len(between.GetFinalizers()) {
		is.Reason, is.Names = "InfrastructureFinalizer", left
	}
	return is
}

// arrival is what a machine waits for until its node is Ready.
func (s *scene) arrival(f *facts, m *clusterv1.Machine) suite.Blocker {
	host := f.hostOf(m)
	provisioned := conditions.IsTrue(m, clusterv1.MachineInfrastructureReadyCondition) ||
		m.Status.Initialization.InfrastructureProvisioned != nil && *m.Status.Initialization.InfrastructureProvisioned
	is := suite.Blocker{Deadline: f.startup(m)}
	switch {
	case f.ready(m):
		return suite.Blocker{Ends: suite.Back}
	case m.Status.NodeRef.IsDefined():
		return suite.Blocker{Reason: "NodeNotReady", Object: "Node " + m.Status.NodeRef.Name, Next: "NodeGetsReady"}
	case provisioned && host != nil:
		is.Reason, is.Object, is.Next = "NoNode", "BareMetalHost "+host.Name, "NodeRegisters"
		if !host.Status.PoweredOn {
			is.Reason = "HostPoweredOff"
		}
	case host != nil:
		is.Reason, is.Object, is.Next = "HostProvisioning", "BareMetalHost "+host.Name, "InfrastructureComes"
	default:
		is = f.choice(m, is)
	}
	return is
}

// choice is what m waits for, which has no host.
func (f *facts) choice(m *clusterv1.Machine, is suite.Blocker) suite.Blocker {
	is.Reason, is.Object, is.Next = "NoHost", "Metal3Machine "+m.Spec.InfrastructureRef.Name, "HostIsTaken"
	for i := range f.hosts {
		h := &f.hosts[i]
		_, marked := h.Annotations[unhealthy]
		is.Names = append(is.Names, h.Name)
		switch state := h.Status.Provisioning.State; {
		case marked, h.Spec.ConsumerRef != nil && state != bmov1alpha1.StateDeprovisioning:
		case state == bmov1alpha1.StateAvailable && h.Spec.ConsumerRef == nil:
			return suite.Blocker{
				Reason: "HostChosen", Object: "Metal3Machine " + m.Spec.InfrastructureRef.Name, Next: is.Next, Deadline: is.Deadline, Names: []string{h.Name},
			}
		case is.Reason == "NoHost":
			is.Reason, is.Object = "HostFrees", "BareMetalHost "+h.Name
		}
	}
	if is.Reason == "HostFrees" {
		is.Names = nil
	}
	return is
}

// startup is when the check counts m as unhealthy without a node.
func (f *facts) startup(m *clusterv1.Machine) time.Time {
	if len(f.checks) == 0 {
		return time.Time{}
	}
	return suite.StartupDeadline(&f.checks[0], f.cluster, m)
}
