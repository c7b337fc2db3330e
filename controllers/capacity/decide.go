package capacity

import (
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// found is a wait with what it is about.
type found struct {
	wait

	machine string
	by      Replacement
	object  rule.Ref
	since   time.Time
	// deadline is when it ends by itself, or when a check counts the new machine as unhealthy; it follows from timeout.
	deadline time.Time
	timeout  time.Duration
	// said is the condition of a partner that is quoted, ailing what the infrastructure reports besides.
	said, ailing metav1.Condition
	host         *bmov1alpha1.BareMetalHost
	finalizers   string
	fitting      []string
	refusals     []cliv1.HostRefusal
}

// decide returns what the capacity of the machine waits for. First come the ends, then what is there, the old machine after the new one.
func (f *Facts) decide() found {
	by, end := f.replacement(), f.end()
	made := f.other(by.Name)
	switch {
	case slices.Contains(f.Unread, machinesUnread):
		return found{wait: notReadable, machine: f.Name, object: f.owner.ref}
	case f.old != nil && healthy(f.old):
		return found{wait: recovered, machine: f.Name, since: condOf(f.old, clusterv1.MachineNodeReadyCondition).LastTransitionTime.Time}
	case made != nil && (end == "" || healthy(made)):
		return f.follow(made).replacing(by)
	case end != "":
		return found{wait: wait{stage: NotReplaced, reason: end, message: ends[end]}, machine: f.Name, by: by}
	case f.old != nil && f.old.DeletionTimestamp.IsZero():
		return f.notDeleted()
	case f.surplus():
		return f.enough()
	case f.old != nil:
		return f.deletion(f.old)
	}
	return f.noReplacement()
}

func (w found) replacing(by Replacement) found {
	w.by = by
	return w
}

// end is the reason for which no machine is made; empty if one is.
func (f *Facts) end() string {
	switch {
	case f.namespaceDeleted:
		return NamespaceDeleted
	case f.clusterDeleted:
		return ClusterDeleted
	case f.owner.gone:
		return OwnerDeleted
	case f.Owner.Kind == "" && (f.old == nil || !f.old.DeletionTimestamp.IsZero()):
		return NoOwner
	}
	return ""
}

// pausedBy returns w as long as neither the Cluster nor object, on which it depends, is paused; else that this is waited for.
func (f *Facts) pausedBy(w found, object rule.Ref, annotated bool) found {
	stage := w.stage
	switch {
	case f.cluster != nil && ptr.Deref(f.cluster.Spec.Paused, false):
		w.wait, w.object = paused, f.clusterRef()
		w.reason, w.hint = "Paused", unpauseCluster
	case annotated:
		w.wait, w.object = paused, object
	}
	w.stage = stage
	return w
}

// notDeleted is what an unhealthy machine waits for that is not being deleted: its owner, as that has answered, or to become healthy as it
// is.
func (f *Facts) notDeleted() found {
	answer := condOf(f.old, clusterv1.MachineOwnerRemediatedCondition)
	if answer.Status != metav1.ConditionFalse {
		return f.follow(f.old)
	}
	w := found{wait: asked, machine: f.Name, object: f.owner.ref, since: answer.LastTransitionTime.Time, said: answer}
	switch {
	case f.Owner.Kind == "":
		w.wait = ownerless
		return w
	case answer.Reason == refused.reason && f.owner.rollingOut:
		w.wait, w.reason = putOff, answer.Reason // the rollout replaces it
	case answer.Reason == refused.reason:
		w.wait = refused
	case answer.Reason == deletes.reason:
		w.wait = deletes
	case answer.Reason == putOff.reason:
		w.wait = putOff
	case answer.Reason != asked.reason: // of a provider with answers of its own
		w.message = "{owner} was asked to replace {machine}, and has not replaced it{reported}"
	case slices.ContainsFunc(f.others, unhealthy):
		w.said = cond(f.owner.conditions, clusterv1.RemediatingCondition)
		w.message += "{said}" // it may replace one machine at a time, and answer for others alone
	}
	return f.pausedBy(w, f.owner.maker, f.owner.paused)
}

// enough is what follows where the owner has all its machines: it was scaled down, or has made the new one before the old one is gone.
func (f *Facts) enough() found {
	_, withNode := f.count()
	if !f.surges() || *f.owner.replicas == 0 {
		return found{wait: scaledDown, machine: f.Name}
	}
	next := f.unready()
	if withNode < *f.owner.replicas && next != nil {
		return f.follow(next).replacing(Replacement{Name: next.Name, By: ByOrder})
	}
	w := found{wait: complete, machine: f.Name}
	if f.owner.rollingOut {
		w.reason = RolledOut
	}
	return w
}

// unready is the first machine whose node is not Ready, those of the current revision first; nil if there is none.
func (f *Facts) unready() *clusterv1.Machine {
	var first *clusterv1.Machine
	for _, machine := range f.others {
		switch {
		case !machine.DeletionTimestamp.IsZero() || ready(machine):
		case ownerOf(machine).Name == f.owner.maker.Name:
			return machine
		case first == nil:
			first = machine
		}
	}
	return first
}

// noReplacement is what follows where the machine is gone, and no new one was made.
func (f *Facts) noReplacement() found {
	scales := cond(f.owner.conditions, clusterv1.ScalingUpCondition)
	w := found{wait: creates, machine: f.Name, object: f.owner.ref, since: f.Gone, said: scales}
	if scales.Status == metav1.ConditionTrue && w.since.IsZero() {
		w.since = scales.LastTransitionTime.Time
	}
	switch {
	case !f.owner.known:
		w.wait = notReadable
		return w
	case f.owner.noCreation:
		w.wait = creationDisabled
	case scales.Status == metav1.ConditionTrue && lists(scales.Message):
		w.wait = blocked
	}
	return f.pausedBy(w, f.owner.maker, f.owner.paused)
}

// deletion is what machine, which is being deleted, waits for: what its condition Deleting says.
func (f *Facts) deletion(machine *clusterv1.Machine) found {
	said, at := condOf(machine, clusterv1.MachineDeletingCondition), machine.DeletionTimestamp.Time
	w := found{wait: deletionBegins, machine: machine.Name, object: machineRef(machine), since: at, said: said}
	phase, known := deletions[said.Reason]
	switch {
	case known:
		w.wait, w.reason = phase, said.Reason
	case said.Reason != "" && said.Reason != clusterv1.MachineDeletingReason: // of a later Cluster API
		w.reason, w.message = clusterv1.MachineDeletingReason, "the deletion of {machine} waits{reported}"
	}
	f.phase(&w, machine)
	return f.pausedBy(w, machineRef(machine), isPaused(machine))
}

// phase adds to a wait of the deletion of machine for what that waits, since when and until when.
func (f *Facts) phase(w *found, machine *clusterv1.Machine) {
	at, spec := machine.DeletionTimestamp.Time, machine.Spec.Deletion
	began := ptr.Deref(machine.Status.Deletion, clusterv1.MachineDeletionStatus{})
	node, config := rule.Ref{Kind: "Node", Name: machine.Status.NodeRef.Name}, machine.Spec.Bootstrap.ConfigRef
	switch w.said.Reason {
	case clusterv1.MachineDeletingWaitingForPreDrainHookReason:
		w.since = firstKnown(began.WaitForPreDrainHookStartTime.Time, at)
	case clusterv1.MachineDeletingDrainingNodeReason:
		w.object = node
		w.blockedByBudget()
		f.inWorkload(w, machine, began.NodeDrainStartTime.Time, spec.NodeDrainTimeoutSeconds)
	case clusterv1.MachineDeletingWaitingForVolumeDetachReason:
		w.object = node
		f.inWorkload(w, machine, began.WaitForNodeVolumeDetachStartTime.Time, spec.NodeVolumeDetachTimeoutSeconds)
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		w.since = firstKnown(began.WaitForPreTerminateHookStartTime.Time, at)
		// That of a control plane is not for a user: to remove it would lose a member of etcd.
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
			w.object, w.hint, w.usual = f.owner.ref, endOwnHook, ownerTakes
		}
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		w.object, w.ailing = infraOf(machine), ailing(machine)
		drained := latest(began.NodeDrainStartTime.Time, began.WaitForNodeVolumeDetachStartTime.Time)
		w.since = latest(at, drained, began.WaitForPreTerminateHookStartTime.Time)
		w.onHost(f.hostOf(machine), hostIsCleaned, hostHinders)
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		w.object = rule.Ref{Kind: config.Kind, Namespace: machine.Namespace, Name: config.Name}
	case clusterv1.MachineDeletingDeletingNodeReason:
		w.object = node
		f.inWorkload(w, machine, at, spec.NodeDeletionTimeoutSeconds)
	case clusterv1.MachineDeletingDeletionCompletedReason:
		others := slices.DeleteFunc(slices.Clone(machine.Finalizers), func(name string) bool { return name == clusterv1.MachineFinalizer })
		if len(others) > 0 {
			w.wait, w.finalizers = otherFinalizer, strings.Join(others, ", ")
		}
	}
}

// inWorkload adds to a wait for something in the workload cluster its deadline, and whether Cluster API has a connection there.
func (f *Facts) inWorkload(w *found, machine *clusterv1.Machine, began time.Time, seconds *int32) {
	w.since = firstKnown(began, machine.DeletionTimestamp.Time)
	if seconds != nil && *seconds > 0 && !began.IsZero() {
		w.timeout = time.Duration(*seconds) * time.Second
		w.deadline, w.next = began.Add(w.timeout), givenUp
		if w.reason != DrainBlockedByBudget {
			w.hint = step{}
		}
	}
	if node := condOf(machine, clusterv1.MachineNodeReadyCondition); node.Reason == clusterv1.MachineNodeConnectionDownReason {
		f.disconnect(w, node)
	}
}

// disconnect says that Cluster API has no connection to the workload cluster. A deadline holds all the same.
func (f *Facts) disconnect(w *found, node metav1.Condition) {
	w.reason = node.Reason
	w.message = "Cluster API has no connection to the workload cluster of {object}, and {machine} waits for that{said}"
	w.object, w.said, w.since, w.hint, w.usual = f.clusterRef(), node, node.LastTransitionTime.Time, reconnect, nodeTakes
	if w.stage == Deleting && w.deadline.IsZero() {
		w.next = step{goesOn.reason, "the deletion of {machine} goes on once Cluster API has a connection again; this wait has no timeout"}
	}
}

// evictionRefused is how Cluster API quotes the API server that refuses to evict pods because of a budget; it goes by that text itself.
// (Cluster API, core/reconcilers/machine, drain/drain.go; Kubernetes, pkg/registry/core/pod/storage/eviction.go.)
var evictionRefused = regexp.MustCompile(
	`(?m)^\* Pods? ([a-z0-9-]{1,63})/.*: cannot evict pod as it would violate the pod's disruption budget\. ` +
		`The disruption budget ([a-z0-9.-]{1,253}) needs `)

// blockedByBudget names the PodDisruptionBudget that blocks a drain.
func (w *found) blockedByBudget() {
	if quoted := evictionRefused.FindStringSubmatch(w.said.Message); quoted != nil {
		w.reason, w.hint = DrainBlockedByBudget, freeBudget
		w.object = rule.Ref{Kind: "PodDisruptionBudget", Namespace: quoted[1], Name: quoted[2]}
	}
}

// follow is what machine, a new one or one that is to become healthy as it is, waits for.
func (f *Facts) follow(machine *clusterv1.Machine) found {
	infra, node := condOf(machine, clusterv1.MachineInfrastructureReadyCondition), condOf(machine, clusterv1.MachineNodeReadyCondition)
	since := node.LastTransitionTime.Time
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return f.deletion(machine)
	case ready(machine) && unhealthy(machine):
		return found{wait: stillUnhealthy, machine: machine.Name, object: machineRef(machine)}
	case ready(machine):
		return found{wait: replaced, machine: machine.Name, since: since}
	case !machine.Status.NodeRef.IsDefined():
		return f.awaited(machine, infra, node)
	}
	w := found{wait: nodeNotReady, machine: machine.Name, since: since, said: node, ailing: ailing(machine)}
	w.object = rule.Ref{Kind: "Node", Name: machine.Status.NodeRef.Name}
	if node.Reason == clusterv1.MachineNodeConnectionDownReason {
		f.disconnect(&w, node)
	}
	return w
}

// awaited is what machine waits for, whose node is not there yet. Until when a check waits for that is the deadline.
func (f *Facts) awaited(machine *clusterv1.Machine, infra, node metav1.Condition) found {
	w := found{wait: notReady, machine: machine.Name, object: infraOf(machine), since: infra.LastTransitionTime.Time, said: infra}
	initialization := machine.Status.Initialization
	provisioned := infra.Status == metav1.ConditionTrue || ptr.Deref(initialization.InfrastructureProvisioned, false)
	bootstrapped := !machine.Spec.Bootstrap.ConfigRef.IsDefined() || ptr.Deref(initialization.BootstrapDataSecretCreated, false)
	switch {
	case provisioned:
		f.booting(&w, machine, node)
	case !bootstrapped:
		f.bootstrapping(&w, machine)
	default:
		w.since = firstKnown(w.since, machine.CreationTimestamp.Time)
		if fails(infra) {
			w.usual = atOnce
		}
		f.placed(&w, machine)
	}
	if timeout := f.startupTimeout(machine); timeout > 0 {
		w.timeout, w.deadline = timeout, f.awaitedSince(machine).Add(timeout)
	}
	return f.pausedBy(w, machineRef(machine), isPaused(machine))
}

// startupTimeout is how long checks wait for the node of machine; zero if for ever. Cluster API's webhook writes ten minutes into a check that
// does not say.
func (f *Facts) startupTimeout(machine *clusterv1.Machine) time.Duration {
	var shortest time.Duration
	for i := range f.checks {
		check := &f.checks[i].Spec
		selector, err := metav1.LabelSelectorAsSelector(&check.Selector)
		selects := err == nil && !selector.Empty() && selector.Matches(labels.Set(machine.Labels))
		if !selects || check.ClusterName != machine.Spec.ClusterName {
			continue
		}
		timeout := time.Duration(ptr.Deref(check.Checks.NodeStartupTimeoutSeconds, 600)) * time.Second
		if timeout > 0 && (shortest == 0 || timeout < shortest) {
			shortest = timeout
		}
	}
	return shortest
}

// awaitedSince is from when checks count the start-up timeout of machine: the latest of the moments that it cannot have a node before.
// (Cluster API, core/reconcilers/machinehealthcheck/targets.go.)
func (f *Facts) awaitedSince(machine *clusterv1.Machine) time.Time {
	since := func(conditions []metav1.Condition, kind string) time.Time {
		if cond := cond(conditions, kind); cond.Status == metav1.ConditionTrue {
			return cond.LastTransitionTime.Time
		}
		return time.Time{}
	}
	at := latest(machine.CreationTimestamp.Time, since(machine.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition))
	if f.cluster != nil {
		conditions := f.cluster.Status.Conditions
		initialized := since(conditions, clusterv1.ClusterControlPlaneInitializedCondition)
		at = latest(at, initialized, since(conditions, clusterv1.ClusterInfrastructureReadyCondition))
	}
	return at
}

func (f *Facts) bootstrapping(w *found, machine *clusterv1.Machine) {
	config, ref := condOf(machine, clusterv1.MachineBootstrapConfigReadyCondition), machine.Spec.Bootstrap.ConfigRef
	w.wait, w.said, w.since = bootstrapNotReady, config, firstKnown(config.LastTransitionTime.Time, machine.CreationTimestamp.Time)
	w.object = rule.Ref{Kind: ref.Kind, Namespace: machine.Namespace, Name: ref.Name}
	_, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	switch {
	case !f.initialized() && !controlPlane:
		w.wait, w.object = notInitialized, f.clusterRef()
	case fails(config), config.Reason == "ReadyUnknown": // of a KubeadmConfig whose error is in the log of its controller alone
		w.usual = atOnce
	}
}

// booting is what a machine waits for that is provisioned, and has no node: its host, what its infrastructure reports, or its kubelet.
func (f *Facts) booting(w *found, machine *clusterv1.Machine, node metav1.Condition) {
	host := f.hostOf(machine)
	w.wait = noNode
	w.onHost(host, noNode, hostTrouble)
	switch {
	case w.reason == hostTrouble.reason:
	case host != nil && !host.Status.PoweredOn:
		w.wait = hostOff
		if !host.Spec.Online {
			w.hint, w.usual = powerOn, atOnce
		}
	case ailing(machine).Reason != "":
		w.wait, w.usual, w.object = notReady, nodeTakes, infraOf(machine)
	case node.Reason == clusterv1.MachineNodeConnectionDownReason:
		f.disconnect(w, node)
	}
	w.stage, w.next = Booting, nodeRegisters
}

// placed is the wait for the host of machine, which has its bootstrap data: for one that fits, or for the one that it has. What CAPM3 needs
// besides before it provisions that, it says itself.
func (f *Facts) placed(w *found, machine *clusterv1.Machine) {
	bmh := f.hostOf(machine)
	sought, known := f.wants[machine.Name]
	switch {
	case bmh != nil && spare.Available(bmh) && w.said.Message != "":
	case bmh != nil:
		w.onHost(bmh, hostWorks, hostTrouble)
	case f.hostsKnown && known:
		f.hostless(w, sought)
	}
}
