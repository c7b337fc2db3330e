package machinehealthcheck

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

// Target is a Machine that the check selects, with what belongs to it. The objects are shared with caches: they are not changed.
type Target struct {
	*clusterv1.Machine
	// Node is the Machine's; nil if the cache has none, or if the workload cluster cannot be read. OtherNode is one that has the name of
	// the Machine's and another provider ID, or one of several that have the Machine's; nil if there is none.
	Node, OtherNode *corev1.Node
	// Health is what the verdict depends on, as far as it is a matter of the Machine and its Node. What is a matter of the whole cluster is
	// added when it is judged.
	Health *health.Target
	// Seen are the conditions that the check has rules about; nil before they were looked at.
	Seen *Seen
	// OlderCheck is the name of an older check that selects the Machine too and on which kubemend does not act; empty if there is none.
	OlderCheck string
	// Others are what the other checks say that select the Machine too and on which kubemend acts.
	Others []Opinion

	// Request is the remediation request that the provider would act on, whoever made it; nil if there is none. Ownership is how it relates
	// to the check.
	Request   *metav1.PartialObjectMetadata
	Ownership Ownership
	// Cycle is a power cycle of the Machine in progress that the check did not request; nil if there is none.
	Cycle *metav1.PartialObjectMetadata
	// Host is what was read of the Machine's host; nil if it was not.
	Host *Host
	// OwnerKindSilent says that no owner of that kind is known to report what it does in OwnerRemediated.
	OwnerKindSilent bool
	// Unusable is why no request can be made for the Machine from the template; nil if one can, or if that was not tried.
	Unusable error

	// leftAlone says that its user wants it left alone.
	leftAlone bool
	// quiet is the decision about it while there is nothing to decide; nil before. last is the target of its name in the reconcile before
	// until its Health is stated; nil if there was none.
	quiet *Decision
	last  *Target
	// place is what the ledger of RemediationPolicies has of it while it is quiet, with the labels of its host; nil before.
	place      *place.Target
	hostLabels *hostLabels
}

// Host is what matters of the host of a Machine before its owner is asked to replace it.
type Host struct {
	Name string
	// External says that it is externally provisioned, Serviced that its firmware is being written.
	External, Serviced bool
	// Paused says that the Metal3Machine in between is.
	Paused bool
	// UnreadUntil is until when the machine waits for its host, which could not be read; zero if it was.
	UnreadUntil time.Time
}

// Seen are conditions with their status and when this process saw them turn: the stamps in them are of the clocks of others. Those of a
// Node that cannot be read now are kept.
type Seen struct {
	Machine, Node               health.Seen
	MachineStreaks, NodeStreaks health.Streaks
	// Awaited says that the Node was awaited when the workload cluster was last in reach, Lost for how long it was out of reach since, and
	// Reached when it was reached again after the outage before, of which no more is known; zero if there was none.
	Awaited bool
	Lost    time.Duration
	Reached time.Time
}

// Ownership is how the remediation request of a machine relates to the check.
type Ownership int

const (
	// NoRequest is that there is none.
	NoRequest Ownership = iota
	// ForeignRequest is one that another check made, or an unknown maker, or that is for another Machine.
	ForeignRequest
	// AdoptableRequest is one of an unknown maker from a template of the same kind, or by a check of the same name that was there before.
	AdoptableRequest
	// OwnRequest is one that this very check made.
	OwnRequest
)

// RequestDeleting reports whether the request of target is being deleted.
func (target *Target) RequestDeleting() bool {
	return target.Request != nil && !target.Request.DeletionTimestamp.IsZero()
}

// NodeReady reports whether the Node of target is Ready, or was when Cluster API last saw it, if it cannot be seen.
func (target *Target) NodeReady() bool {
	if target.Node == nil {
		return target.Health.Node == health.NodeUnseen && ConditionTrue(target, clusterv1.MachineNodeReadyCondition) != nil
	}
	return health.Ready(target.Node)
}

// ConditionOf returns the condition of that type, or nil. It is shared with obj.
func ConditionOf(obj interface{ GetConditions() []metav1.Condition }, kind string) *metav1.Condition {
	return meta.FindStatusCondition(obj.GetConditions(), kind)
}

// ConditionTrue returns the condition of that type if its status is True, else nil.
func ConditionTrue(obj interface{ GetConditions() []metav1.Condition }, kind string) *metav1.Condition {
	if cond := ConditionOf(obj, kind); cond != nil && cond.Status == metav1.ConditionTrue {
		return cond
	}
	return nil
}

// Since is since when cond has its status; zero if there is none.
func Since(cond *metav1.Condition) time.Time {
	if cond == nil {
		return time.Time{}
	}
	return cond.LastTransitionTime.Time
}

// Deleting reports whether machine is being deleted.
func Deleting(machine *clusterv1.Machine) bool { return !machine.DeletionTimestamp.IsZero() }

// OnHost reports whether machine is on a bare-metal host, by what its infrastructure is. (CAPM3)
func OnHost(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.Kind == "Metal3Machine" && ref.APIGroup == infrav1.GroupVersion.Group
}

// LeftAloneBy are the annotations by which the user of machine wants it left alone. (Cluster API: such a machine is no target, and not
// counted.)
func LeftAloneBy(machine *clusterv1.Machine) []string {
	var by []string
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, annotated := machine.Annotations[annotation]; annotated {
			by = append(by, annotation)
		}
	}
	return by
}

// Failed returns the condition that says that machine is not healthy; nil if none does.
func Failed(machine *clusterv1.Machine) *metav1.Condition {
	if cond := ConditionOf(machine, HealthCheckSucceeded); cond != nil && cond.Status != metav1.ConditionTrue {
		return cond
	}
	return nil
}

// MarkedHealthy reports whether the conditions of machine say that it is healthy, and nothing else that a check says. It is the steady
// state of nearly every machine, so it must cost next to nothing.
func MarkedHealthy(machine *clusterv1.Machine) bool {
	succeeded, other := false, false
	for i := range machine.Status.Conditions {
		switch cond := &machine.Status.Conditions[i]; cond.Type {
		case HealthCheckSucceeded:
			succeeded = cond.Status == metav1.ConditionTrue && cond.Reason == clusterv1.MachineHealthCheckSucceededReason &&
				cond.Message == "" && cond.ObservedGeneration == machine.Generation
		case ExternallyRemediated, mendv1.SpareHostAvailable, mendv1.Remediation:
			other = true
		}
	}
	if !succeeded || other {
		return false
	}
	for _, cond := range machine.GetV1Beta1Conditions() {
		if cond.Type == clusterv1.MachineHealthCheckSucceededV1Beta1Condition {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Marked reports whether the conditions of machine say something that a check said and that is not good.
func Marked(machine *clusterv1.Machine) bool {
	return MarkedUnhealthy(machine) || slices.ContainsFunc(machine.Status.Conditions, func(cond metav1.Condition) bool {
		return cond.Type == ExternallyRemediated || cond.Type == mendv1.SpareHostAvailable || cond.Type == mendv1.Remediation
	})
}

// MarkedUnhealthy reports whether a check has marked machine unhealthy.
func MarkedUnhealthy(machine *clusterv1.Machine) bool {
	cond := ConditionOf(machine, HealthCheckSucceeded)
	return cond != nil && cond.Status == metav1.ConditionFalse && cond.Reason != mendv1.PowerCycleFailedReason
}

// Owner is how far the owner of a machine has got that was asked to remediate it.
type Owner int

const (
	// NotAsked is an owner that was not asked, or that has finished, and none.
	NotAsked Owner = iota
	// Asked is one that was asked.
	Asked
	// CannotRemediate is one that was asked and says that it will not replace the machine as things stand. (Cluster API: MachineSet and
	// KubeadmControlPlane have the same reason for that. What they put off they go on with by themselves.)
	CannotRemediate
)

// ownerAnswersWithin is for how long an owner that was asked and does not answer takes a place under the limit on remediations in flight.
const ownerAnswersWithin = time.Hour

// AnsweringOwner is the kind of the owner of machine if that was asked and has answered, in either flavour of the condition; else it is
// empty.
func AnsweringOwner(machine *clusterv1.Machine) string {
	owner, asked := metav1.GetControllerOfNoCopy(machine), ConditionOf(machine, OwnerRemediated)
	if owner == nil || asked == nil || asked.Reason == waitingForRemediation && olderAnswer(machine) == nil {
		return ""
	}
	return owner.Kind
}

// silentFrom is from when on the owner of target, which was asked, counts as one that never remediates it, since its kind may know nothing
// of remediations; zero if it does not. One that knows v1beta1 alone says there why it does not, and not whether it will: that counts for
// as long after it last said something else.
func (target *Target) silentFrom() time.Time {
	asked, answer := ConditionOf(target, OwnerRemediated), olderAnswer(target.Machine)
	from := Since(asked)
	waits := OwnerOf(target.Machine) == Asked && asked.Reason == waitingForRemediation && !from.IsZero()
	if !waits || answer == nil && !target.OwnerKindSilent {
		return time.Time{}
	}
	if answer != nil && answer.LastTransitionTime.After(from) {
		from = answer.LastTransitionTime.Time
	}
	if target.Health.Resumed.After(from) { // while Cluster API was paused nobody could answer
		from = target.Health.Resumed
	}
	return from.Add(ownerAnswersWithin)
}

// stuck reports whether the owner of target was asked and will not remediate it as things stand: it says so, or never answers.
func (target *Target) stuck(now time.Time) bool {
	silent := target.silentFrom()
	return OwnerOf(target.Machine) == CannotRemediate || !silent.IsZero() && !now.Before(silent)
}

// olderAnswer is the condition of v1beta1 in which the owner of machine, which was asked, has answered; nil if it is as kubemend wrote it.
func olderAnswer(machine *clusterv1.Machine) *clusterv1.Condition {
	list := machine.GetV1Beta1Conditions()
	i := slices.IndexFunc(list, func(cond clusterv1.Condition) bool {
		return cond.Type == clusterv1.MachineOwnerRemediatedV1Beta1Condition && cond.Status == corev1.ConditionFalse &&
			(cond.Message != "" || cond.Reason != clusterv1.WaitingForRemediationV1Beta1Reason)
	})
	if i < 0 {
		return nil
	}
	return &list[i]
}

// OwnerOf is how far the owner of machine has got.
func OwnerOf(machine *clusterv1.Machine) Owner {
	asked := ConditionOf(machine, OwnerRemediated)
	switch {
	case asked == nil || asked.Status != metav1.ConditionFalse || Failed(machine) == nil || !owned(machine):
		return NotAsked
	case asked.Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		return CannotRemediate
	}
	return Asked
}

func owned(machine *clusterv1.Machine) bool { return metav1.GetControllerOfNoCopy(machine) != nil }

// askedWhileHealthy reports whether machine was healthy since its owner was asked, and the owner has not noticed that yet: it removes the
// condition then. (MachineSet, KubeadmControlPlane.) No check may mark the machine unhealthy before, unless the owner is to remediate it
// now: the two conditions together are what owners act on, whatever the limits of the check.
func askedWhileHealthy(machine *clusterv1.Machine) bool {
	asked, verdict := ConditionOf(machine, OwnerRemediated), ConditionOf(machine, HealthCheckSucceeded)
	return asked != nil && asked.Status == metav1.ConditionFalse && (verdict == nil || verdict.Status != metav1.ConditionFalse)
}

// RequestFailed reports whether the conditions of machine say that no request could be made for it.
func RequestFailed(machine *clusterv1.Machine) bool {
	cond := ConditionOf(machine, ExternallyRemediated)
	return cond != nil && (cond.Reason == remediationTemplateNotFound || cond.Reason == requestCreationFailed)
}

// providerReports reports whether the provider of a request may have set the condition ExternallyRemediated of machine.
func providerReports(machine *clusterv1.Machine) bool {
	return ConditionOf(machine, ExternallyRemediated) != nil && !RequestFailed(machine)
}

const (
	// CyclesUnreadFor is for how long no remediation starts for a machine on a host while it is not known which power cycles are in
	// progress, and how long a power cycle counts as under way before anybody has put a finalizer on it.
	CyclesUnreadFor = 10 * time.Minute
	// cycleDeletingFor is how long a power cycle that is being deleted holds its machine. Its controller gives the host back in minutes, if
	// it runs.
	cycleDeletingFor = time.Hour
)

// CycleUnderWay reports whether a power cycle is not over: its finalizer keeps it until its host is on and its node is free again, which
// must not take for ever once it is being deleted.
func CycleUnderWay(cycle *metav1.PartialObjectMetadata, now time.Time) bool {
	return heldByFinalizer(cycle) && cycle.DeletionTimestamp.IsZero() || now.Before(cycleUntil(cycle))
}

func heldByFinalizer(cycle *metav1.PartialObjectMetadata) bool {
	return slices.Contains(cycle.Finalizers, mendv1.HostRemediationFinalizer) || slices.Contains(cycle.Finalizers, infrav1.RemediationFinalizer)
}

// cycleUntil is until when a power cycle counts as under way although no controller has taken it on, or although it is being deleted; zero
// if that does not matter.
func cycleUntil(cycle *metav1.PartialObjectMetadata) time.Time {
	held, deleting := heldByFinalizer(cycle), !cycle.DeletionTimestamp.IsZero()
	if held && deleting {
		return cycle.DeletionTimestamp.Add(cycleDeletingFor)
	}
	if _, begun := cycle.Annotations[mendv1.PowerCycleAnnotation]; begun || held || deleting {
		return time.Time{}
	}
	return cycle.CreationTimestamp.Add(CyclesUnreadFor)
}
