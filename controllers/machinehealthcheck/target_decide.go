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

// Target is a Machine that the check selects, with its Node, request and host. The objects are shared with caches and must not change.
type Target struct {
	*clusterv1.Machine
	// Node is the Node of the Machine; nil if the cache has none, or if the workload cluster cannot be read.
	Node *corev1.Node
	// OtherNode has the name in nodeRef but another provider ID, or is one of several Nodes with the Machine's provider ID; else nil.
	OtherNode *corev1.Node
	// Health are the facts of the verdict that concern the Machine and its Node. judge adds the facts of the whole cluster.
	Health *health.Target
	// Seen are the conditions that the check has rules about; nil before they were read.
	Seen *Seen
	// OlderCheck is an older check that selects the Machine too and on which kubemend does not act; empty if there is none.
	OlderCheck string
	// Others are the opinions of the other checks that select the Machine and on which kubemend acts.
	Others []Opinion

	// Request is the remediation request that the provider would act on, whoever made it; nil if there is none.
	Request   *metav1.PartialObjectMetadata
	Ownership Ownership
	// Cycle is a power cycle of the Machine in progress that the check did not request; nil if there is none.
	Cycle *metav1.PartialObjectMetadata
	// Host is what was read of the Machine's host; nil if nothing was read.
	Host *Host
	// OwnerKindSilent says that no owner of the kind of the Machine's owner is known to report its progress in OwnerRemediated.
	OwnerKindSilent bool
	// Unusable is why no request can be created for the Machine from the template; nil if one can, or if that was not tried.
	Unusable error

	// quiet is the decision about a healthy machine, reused while there is nothing to decide; nil before.
	quiet *Decision
	// last is the target of the same name in the reconcile before, until Health is set; nil if there was none.
	last *Target
	// place is what was reported to the ledger of RemediationPolicies about a quiet machine; nil before.
	place *place.Target
}

// Host is what matters of the host of a Machine before its owner is asked to replace it.
type Host struct {
	Name string
	// External says that the host is externally provisioned.
	External bool
	// Serviced says that the firmware of the host is being written.
	Serviced bool
	// Paused says that the Metal3Machine is paused.
	Paused bool
	// UnreadUntil is until when the machine waits for its host, which could not be read; zero if it does not wait.
	UnreadUntil time.Time
}

// Seen are conditions, and when this process saw them turn, because their timestamps are from other clocks. While the Node cannot be read,
// its conditions are kept.
type Seen struct {
	Machine, Node               health.Seen
	MachineStreaks, NodeStreaks health.Streaks
	// Awaited says that the Node was awaited when the workload cluster was last in reach.
	Awaited bool
	// Lost is how long the workload cluster was out of reach since then.
	Lost time.Duration
	// Reached is when the last outage of unknown length ended; zero if there was none.
	Reached time.Time
}

// Ownership says whose remediation request a machine has, from the view of the check.
type Ownership int

const (
	// NoRequest means that there is no request.
	NoRequest Ownership = iota
	// ForeignRequest was made by another check or an unknown maker, or is for another Machine.
	ForeignRequest
	// AdoptableRequest was made by an unknown maker from a template of the same kind, or by a former check of the same name.
	AdoptableRequest
	// OwnRequest was made by this check.
	OwnRequest
)

// RequestDeleting reports whether the request of target is being deleted.
func (target *Target) RequestDeleting() bool {
	return target.Request != nil && !target.Request.DeletionTimestamp.IsZero()
}

// NodeReady reports whether the Node of target is Ready. If the Node cannot be seen, it reports what Cluster API last saw.
func (target *Target) NodeReady() bool {
	if target.Node == nil {
		return target.Health.Node == health.NodeUnseen && ConditionTrue(target, clusterv1.MachineNodeReadyCondition) != nil
	}
	return health.Ready(target.Node)
}

// ConditionOf returns the condition of type kind, shared with obj; nil if there is none.
func ConditionOf(obj interface{ GetConditions() []metav1.Condition }, kind string) *metav1.Condition {
	return meta.FindStatusCondition(obj.GetConditions(), kind)
}

// ConditionTrue returns the condition of type kind if its status is True; otherwise nil.
func ConditionTrue(obj interface{ GetConditions() []metav1.Condition }, kind string) *metav1.Condition {
	if cond := ConditionOf(obj, kind); cond != nil && cond.Status == metav1.ConditionTrue {
		return cond
	}
	return nil
}

// Since returns when cond took its status; zero if cond is nil.
func Since(cond *metav1.Condition) time.Time {
	if cond == nil {
		return time.Time{}
	}
	return cond.LastTransitionTime.Time
}

// Deleting reports whether machine is being deleted.
func Deleting(machine *clusterv1.Machine) bool { return !machine.DeletionTimestamp.IsZero() }

// OnHost reports whether machine is on a bare-metal host: whether its infrastructure is a Metal3Machine of CAPM3.
func OnHost(machine *clusterv1.Machine) bool {
	ref := machine.Spec.InfrastructureRef
	return ref.Kind == "Metal3Machine" && ref.APIGroup == infrav1.GroupVersion.Group
}

// LeftAloneBy returns the annotations by which a user wants machine left alone. As in Cluster API, such a machine is not counted.
func LeftAloneBy(machine *clusterv1.Machine) []string {
	var by []string
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, annotated := machine.Annotations[annotation]; annotated {
			by = append(by, annotation)
		}
	}
	return by
}

// Failed returns the condition HealthCheckSucceeded of machine if it is not True; otherwise nil.
func Failed(machine *clusterv1.Machine) *metav1.Condition {
	if cond := ConditionOf(machine, HealthCheckSucceeded); cond != nil && cond.Status != metav1.ConditionTrue {
		return cond
	}
	return nil
}

// MarkedHealthy reports whether machine has the conditions of a healthy machine and no other condition that a check sets. Nearly all
// machines do, at each reconcile, so MarkedHealthy must be cheap.
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

// Marked reports whether machine has a condition that a check set because of a failure or a remediation.
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

// Owner is how far the owner of a machine has got with a remediation.
type Owner int

const (
	// NotAsked means that the owner was not asked or has finished, or that there is no owner.
	NotAsked Owner = iota
	// Asked means that the owner was asked and has not finished.
	Asked
	// CannotRemediate means that the owner says that it will not replace the machine as things stand. MachineSet and KubeadmControlPlane of
	// Cluster API share the reason for that. They retry a remediation that they defer.
	CannotRemediate
)

// ownerAnswersWithin is how long an owner that was asked and does not answer takes a place in flight.
const ownerAnswersWithin = time.Hour

// AnsweringOwner returns the kind of the owner of machine if it was asked and has answered, in either version of the condition; else "".
func AnsweringOwner(machine *clusterv1.Machine) string {
	owner, asked := metav1.GetControllerOfNoCopy(machine), ConditionOf(machine, OwnerRemediated)
	if owner == nil || asked == nil || asked.Reason == waitingForRemediation && olderAnswer(machine) == nil {
		return ""
	}
	return owner.Kind
}

// silentFrom returns when the owner of target counts as one that will never remediate it, because its kind may not know remediations; zero
// if it does not. An owner that writes only the v1beta1 condition says why it waits, but not whether it will act. Its hour starts when that
// answer last changed.
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
	if target.Health.Resumed.After(from) { // a paused Cluster API cannot answer
		from = target.Health.Resumed
	}
	return from.Add(ownerAnswersWithin)
}

// stuck reports whether the owner of target was asked and will not act as things stand: it says so, or it is silent.
func (target *Target) stuck(now time.Time) bool {
	silent := target.silentFrom()
	return OwnerOf(target.Machine) == CannotRemediate || !silent.IsZero() && !now.Before(silent)
}

// olderAnswer returns the v1beta1 condition if the owner of machine has answered in it; nil if it is as kubemend wrote it.
func olderAnswer(machine *clusterv1.Machine) *clusterv1.Condition {
	return first(machine.GetV1Beta1Conditions(), func(cond clusterv1.Condition) bool {
		return cond.Type == clusterv1.MachineOwnerRemediatedV1Beta1Condition && cond.Status == corev1.ConditionFalse &&
			(cond.Message != "" || cond.Reason != clusterv1.WaitingForRemediationV1Beta1Reason)
	})
}

// OwnerOf returns how far the owner of machine has got.
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

// OwnerAnswer returns the reason that the owner of machine gives for not having replaced it yet; empty if it was not asked or gave none.
func OwnerAnswer(machine *clusterv1.Machine) string {
	asked := ConditionOf(machine, OwnerRemediated)
	if asked == nil || asked.Status != metav1.ConditionFalse || asked.Reason == waitingForRemediation {
		return ""
	}
	return asked.Reason
}

func owned(machine *clusterv1.Machine) bool { return metav1.GetControllerOfNoCopy(machine) != nil }

// askedWhileHealthy reports whether machine became healthy after its owner was asked, and the owner has not yet removed its condition.
// (MachineSet and KubeadmControlPlane do.) Owners act on the two conditions whatever the limits of a check are, so no check may mark the
// machine unhealthy before the owner removes its condition, unless the owner is to remediate it now.
func askedWhileHealthy(machine *clusterv1.Machine) bool {
	asked, verdict := ConditionOf(machine, OwnerRemediated), ConditionOf(machine, HealthCheckSucceeded)
	return asked != nil && asked.Status == metav1.ConditionFalse && (verdict == nil || verdict.Status != metav1.ConditionFalse)
}

// RequestFailed reports whether the conditions of machine say that no request could be created.
func RequestFailed(machine *clusterv1.Machine) bool {
	cond := ConditionOf(machine, ExternallyRemediated)
	return cond != nil && (cond.Reason == remediationTemplateNotFound || cond.Reason == requestCreationFailed)
}

// providerReports reports whether condition ExternallyRemediated of machine may come from the provider of the request.
func providerReports(machine *clusterv1.Machine) bool {
	return ConditionOf(machine, ExternallyRemediated) != nil && !RequestFailed(machine)
}

const (
	// CyclesUnreadFor is how long unread power cycles block remediations of machines on hosts. A power cycle that no controller has put a
	// finalizer on counts as under way for as long.
	CyclesUnreadFor = 10 * time.Minute
	// cycleDeletingFor is how long a power cycle being deleted blocks its machine. If its controller runs, it releases the host in minutes.
	cycleDeletingFor = time.Hour
)

// CycleUnderWay reports whether a power cycle is not over. Its finalizer keeps it until the host is on and the node is released; a power
// cycle being deleted counts for an hour at most.
func CycleUnderWay(cycle *metav1.PartialObjectMetadata, now time.Time) bool {
	return heldByFinalizer(cycle) && cycle.DeletionTimestamp.IsZero() || now.Before(cycleUntil(cycle))
}

func heldByFinalizer(cycle *metav1.PartialObjectMetadata) bool {
	return slices.Contains(cycle.Finalizers, mendv1.HostRemediationFinalizer) ||
		slices.Contains(cycle.Finalizers, infrav1.RemediationFinalizer)
}

// cycleUntil returns when a power cycle stops counting as under way, if it is being deleted or no controller has started it; else zero.
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
