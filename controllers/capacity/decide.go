package capacity

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// found is a story before its texts are filled in.
type found struct {
	Story
	wait

	// said is the condition that the message quotes. ailing is what the infrastructure reports besides.
	said, ailing metav1.Condition
	host         *bmov1alpha1.BareMetalHost
	// pause is how to unpause WaitsFor. finalizers are those of other controllers on the machine. fitting are the hosts that fit.
	pause, finalizers string
	fitting           []string
	// machines is how many machines an owner has that creates no other one.
	machines int
}

func about(w wait, machine string, waitsFor rule.Ref, since time.Time, said metav1.Condition) found {
	return found{Story: Story{Machine: machine, WaitsFor: waitsFor, Since: since}, wait: w, said: said}
}

// decide returns what the capacity of the machine waits for. Ends come first, then the new machine, then the old one.
func (f *Facts) decide() found {
	by, end, none := f.replacement(), f.end(), metav1.Condition{}
	made := f.other(by.Name)
	switch {
	case slices.Contains(f.Unread, machinesUnread):
		return about(notReadable, f.Name, f.owner.ref, time.Time{}, none)
	case f.old != nil && healthy(f.old):
		since := cond(f.old.Status.Conditions, clusterv1.MachineNodeReadyCondition).LastTransitionTime.Time
		return about(recovered, f.Name, rule.Ref{}, since, none)
	case made != nil && (end == "" || healthy(made)):
		return f.follow(made).replacing(by)
	case end != "":
		return about(wait{stage: NotReplaced, reason: end, message: ends[end]}, f.Name, rule.Ref{}, time.Time{}, none).replacing(by)
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
	w.Replacement = by
	return w
}

// end returns the reason why no machine will be created; empty if one will.
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

// pausedBy returns w, or the wait for the Cluster or for object to be unpaused if either is paused.
func (f *Facts) pausedBy(w found, object rule.Ref, annotated bool) found {
	stage, reason := w.stage, paused.reason
	switch {
	case f.cluster != nil && ptr.Deref(f.cluster.Spec.Paused, false):
		object, reason, w.pause = f.clusterRef(), "Paused", "set its spec.paused to false"
	case annotated:
		w.pause = "remove its annotation " + clusterv1.PausedAnnotation
	default:
		return w
	}
	w.wait, w.WaitsFor = paused, object
	w.stage, w.reason = stage, reason
	return w
}

// notDeleted returns what an unhealthy machine waits for that is not being deleted: its owner, or its recovery if the owner was not asked.
func (f *Facts) notDeleted() found {
	answer := cond(f.old.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if answer.Status != metav1.ConditionFalse {
		return f.follow(f.old)
	}
	w := about(asked, f.Name, f.owner.ref, answer.LastTransitionTime.Time, answer)
	known, answered := answers[answer.Reason]
	switch {
	case f.Owner.Kind == "":
		w.wait = ownerless
		return w
	case answer.Reason == refused.reason && f.owner.rollingOut:
		w.wait, w.reason = putOff, answer.Reason // the rollout replaces the machine
	case answered:
		w.wait = known
	case answer.Reason != asked.reason: // a reason of another provider
		w.message = "{owner} was asked to replace {machine}, and has not replaced it{reported}"
	case slices.ContainsFunc(f.others, unhealthy):
		w.said = cond(f.owner.conditions, clusterv1.RemediatingCondition)
		w.message += "{said}" // the owner may be busy with another machine
	}
	return f.pausedBy(w, f.owner.maker, f.owner.paused)
}

// enough returns what follows if the owner has all its machines: it was scaled down, or has already created the new machine.
func (f *Facts) enough() found {
	machines, withNode := f.count()
	if !f.surges() || *f.owner.replicas == 0 {
		return found{wait: scaledDown, Story: Story{Machine: f.Name}, machines: machines}
	}
	next := f.unready()
	if withNode < int(*f.owner.replicas) && next != nil {
		return f.follow(next).replacing(Replacement{Name: next.Name, By: ByOrder})
	}
	w := found{wait: complete, Story: Story{Machine: f.Name, Ready: withNode}}
	if f.owner.rollingOut {
		w.reason = RolledOut
	}
	return w
}

// unready returns the first machine whose node is not Ready, with machines of the current revision first; nil if there is none.
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

// noReplacement returns the wait while the machine is gone and no new one was created.
func (f *Facts) noReplacement() found {
	scales := cond(f.owner.conditions, clusterv1.ScalingUpCondition)
	w := about(creates, f.Name, f.owner.ref, f.Gone, scales)
	if scales.Status == metav1.ConditionTrue && w.Since.IsZero() {
		w.Since = scales.LastTransitionTime.Time
	}
	switch {
	case !f.owner.known:
		w.wait = notReadable
		return w
	case scales.Status == metav1.ConditionTrue && strings.Contains("\n"+scales.Message, "\n* "): // each line names an obstacle
		w.wait = blocked
	}
	return f.pausedBy(w, f.owner.maker, f.owner.paused)
}

// deletion returns what a machine that is being deleted waits for, according to its condition Deleting.
func (f *Facts) deletion(machine *clusterv1.Machine) found {
	said := cond(machine.Status.Conditions, clusterv1.MachineDeletingCondition)
	w := about(deletionBegins, machine.Name, machineRef(machine), machine.DeletionTimestamp.Time, said)
	phase, known := deletions[said.Reason]
	switch {
	case known:
		w.wait, w.reason = phase, said.Reason
	case said.Reason != "" && said.Reason != clusterv1.MachineDeletingReason: // a reason of a later Cluster API
		w.reason, w.message = clusterv1.MachineDeletingReason, waits
	}
	f.phase(&w, machine)
	return f.pausedBy(w, machineRef(machine), isPaused(machine))
}

// phase adds to a wait of a deletion its object, its beginning and its deadline.
func (f *Facts) phase(w *found, machine *clusterv1.Machine) {
	at, spec := machine.DeletionTimestamp.Time, machine.Spec.Deletion
	began := ptr.Deref(machine.Status.Deletion, clusterv1.MachineDeletionStatus{})
	switch w.said.Reason {
	case clusterv1.MachineDeletingWaitingForPreDrainHookReason:
		w.Since = cmp.Or(began.WaitForPreDrainHookStartTime.Time, at)
	case clusterv1.MachineDeletingDrainingNodeReason:
		w.WaitsFor = nodeRef(machine)
		w.blockedByBudget()
		f.inWorkload(w, machine, began.NodeDrainStartTime.Time, spec.NodeDrainTimeoutSeconds)
	case clusterv1.MachineDeletingWaitingForVolumeDetachReason:
		w.WaitsFor = nodeRef(machine)
		f.inWorkload(w, machine, began.WaitForNodeVolumeDetachStartTime.Time, spec.NodeVolumeDetachTimeoutSeconds)
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		w.Since = cmp.Or(began.WaitForPreTerminateHookStartTime.Time, at)
		// A user must not remove the hook of a control plane: etcd would lose a member.
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
			w.WaitsFor, w.hint, w.usual = f.owner.ref, lookAtOwner, ownerTakes
		}
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		w.WaitsFor, w.ailing = infraOf(machine), ailing(machine)
		drained := latest(began.NodeDrainStartTime.Time, began.WaitForNodeVolumeDetachStartTime.Time)
		w.Since = latest(at, drained, began.WaitForPreTerminateHookStartTime.Time)
		w.onHost(f.hostOf(machine), hostIsCleaned, hostHinders)
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		w.WaitsFor = configRef(machine)
	case clusterv1.MachineDeletingDeletingNodeReason:
		w.WaitsFor = nodeRef(machine)
		f.inWorkload(w, machine, at, spec.NodeDeletionTimeoutSeconds)
	case clusterv1.MachineDeletingDeletionCompletedReason:
		others := slices.DeleteFunc(slices.Clone(machine.Finalizers), func(name string) bool { return name == clusterv1.MachineFinalizer })
		if len(others) > 0 {
			w.wait, w.finalizers = otherFinalizer, strings.Join(others, ", ")
		}
	}
}

// inWorkload adds the deadline of a wait in the workload cluster, and whether Cluster API has a connection to that cluster.
func (f *Facts) inWorkload(w *found, machine *clusterv1.Machine, began time.Time, seconds *int32) {
	w.Since = cmp.Or(began, machine.DeletionTimestamp.Time)
	if seconds != nil && *seconds > 0 && !began.IsZero() {
		w.Timeout = time.Duration(*seconds) * time.Second
		w.Deadline, w.next = began.Add(w.Timeout), givenUp
		if w.hint != freeBudget {
			w.hint = step{}
		}
	}
	f.connected(w, machine)
}

// connected replaces the wait if Cluster API has no connection to the workload cluster. The deadline stays, because it holds without one.
func (f *Facts) connected(w *found, machine *clusterv1.Machine) {
	node := cond(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	if node.Reason != clusterv1.MachineNodeConnectionDownReason {
		return
	}
	w.reason = node.Reason
	w.message = "{machine} waits, because Cluster API has no connection to the workload cluster of {object}{said}"
	w.WaitsFor, w.said, w.Since, w.hint, w.usual = f.clusterRef(), node, node.LastTransitionTime.Time, reconnect, nodeTakes
	if w.stage == Deleting && w.Deadline.IsZero() {
		w.next = withoutTimeout
	}
}

// evictionRefused matches how Cluster API quotes the API server that refuses to evict pods because of a PodDisruptionBudget. Cluster API
// matches the same text. (Cluster API, core/reconcilers/machine, drain/drain.go; Kubernetes, pkg/registry/core/pod/storage/eviction.go.)
var evictionRefused = regexp.MustCompile(
	`(?m)^\* Pods? ([a-z0-9-]{1,63})/.*: cannot evict pod as it would violate the pod's disruption budget\. ` +
		`The disruption budget ([a-z0-9.-]{1,253}) needs `)

// blockedByBudget sets the PodDisruptionBudget that blocks a drain.
func (w *found) blockedByBudget() {
	if quoted := evictionRefused.FindStringSubmatch(w.said.Message); quoted != nil {
		w.reason, w.hint = "DrainBlockedByBudget", freeBudget
		w.WaitsFor = rule.Ref{Kind: "PodDisruptionBudget", Namespace: quoted[1], Name: quoted[2]}
	}
}

// follow returns what machine waits for: a new machine, or one that may recover.
func (f *Facts) follow(machine *clusterv1.Machine) found {
	node, none := cond(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition), metav1.Condition{}
	since := node.LastTransitionTime.Time
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return f.deletion(machine)
	case ready(machine) && unhealthy(machine):
		return about(stillUnhealthy, machine.Name, machineRef(machine), time.Time{}, none)
	case ready(machine):
		return about(replaced, machine.Name, rule.Ref{}, since, none)
	case !machine.Status.NodeRef.IsDefined():
		return f.awaited(machine)
	}
	w := about(nodeNotReady, machine.Name, nodeRef(machine), since, node)
	w.ailing = ailing(machine)
	f.connected(&w, machine)
	return w
}

// awaited returns what a machine without a node waits for. The deadline is when a check stops waiting for the node.
func (f *Facts) awaited(machine *clusterv1.Machine) found {
	infra := cond(machine.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition)
	w := about(notReady, machine.Name, infraOf(machine), infra.LastTransitionTime.Time, infra)
	initialization := machine.Status.Initialization
	switch {
	case infra.Status == metav1.ConditionTrue || ptr.Deref(initialization.InfrastructureProvisioned, false):
		f.booting(&w, machine)
	case machine.Spec.Bootstrap.ConfigRef.IsDefined() && !ptr.Deref(initialization.BootstrapDataSecretCreated, false):
		bootstrapping(&w, machine)
	default:
		w.Since = cmp.Or(w.Since, machine.CreationTimestamp.Time)
		if fails(infra) {
			w.usual = atOnce
		}
		f.placed(&w, machine)
	}
	if timeout := f.startupTimeout(machine); timeout > 0 {
		w.Timeout, w.Deadline = timeout, f.awaitedSince(machine).Add(timeout)
	}
	return f.pausedBy(w, machineRef(machine), isPaused(machine))
}

// startupTimeout returns the shortest time that a check waits for the node of machine; 0 if none has a limit. Cluster API's webhook writes
// ten minutes into a check that does not set it.
func (f *Facts) startupTimeout(machine *clusterv1.Machine) time.Duration {
	var shortest time.Duration
	for i := range f.checks {
		check := &f.checks[i]
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		selects := err == nil && !selector.Empty() && selector.Matches(labels.Set(machine.Labels))
		ignored := isPaused(check) && check.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim // no controller uses it
		if !selects || ignored || check.Spec.ClusterName != machine.Spec.ClusterName {
			continue
		}
		timeout := time.Duration(ptr.Deref(check.Spec.Checks.NodeStartupTimeoutSeconds, 600)) * time.Second
		if timeout > 0 && (shortest == 0 || timeout < shortest) {
			shortest = timeout
		}
	}
	return shortest
}

// awaitedSince returns from when on checks count the start-up timeout of machine: when the last thing was ready that a node needs. (Cluster
// API, core/reconcilers/machinehealthcheck/targets.go.)
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

// bootstrapping sets the wait for the bootstrap data of machine. The provider's condition says what else it needs, such as a control plane.
func bootstrapping(w *found, machine *clusterv1.Machine) {
	config := cond(machine.Status.Conditions, clusterv1.MachineBootstrapConfigReadyCondition)
	w.wait, w.said, w.Since = bootstrapNotReady, config, cmp.Or(config.LastTransitionTime.Time, machine.CreationTimestamp.Time)
	w.WaitsFor = configRef(machine)
	if fails(config) || config.Reason == "ReadyUnknown" { // a KubeadmConfig's error is only in its controller's log
		w.usual = atOnce
	}
}

// booting sets the wait of a provisioned machine without a node: for its host, its infrastructure or its kubelet.
func (f *Facts) booting(w *found, machine *clusterv1.Machine) {
	host := f.hostOf(machine)
	w.wait = noNode
	w.onHost(host, noNode, hostTrouble)
	switch {
	case w.reason == hostTrouble.reason:
	case host != nil && !host.Status.PoweredOn:
		w.wait = hostOff
		if !host.Spec.Online {
			w.usual = atOnce
		}
	case ailing(machine).Reason != "":
		w.wait, w.usual, w.WaitsFor = notReady, nodeTakes, infraOf(machine)
	default:
		f.connected(w, machine)
	}
	w.stage, w.next = Booting, nodeRegisters
}
