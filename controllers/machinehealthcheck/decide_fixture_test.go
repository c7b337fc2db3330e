package machinehealthcheck

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// facts returns the facts of a check that kubemend acts on, without limits, whose machines their owners remediate.
func facts(targets ...givenMachine) Facts {
	f := Facts{
		Now: noon, Mode: Active, Link: health.Up, Template: Template{Known: true}, Settings: Settings{Limits: budget.Limits{AtMost: 100}},
		Check:   &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{UID: "uid-of-check"}},
		Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "uid-of-cluster"}},
	}
	initialized(time.Time{})(&f)
	ready(time.Time{})(&f)
	f.Memory = Memory{Refused: map[types.UID]time.Time{}}
	for i := range targets {
		t := &targets[i]
		t.Name = string(rune('a' + i))
		t.UID = types.UID("uid-of-" + t.Name)
		f.Targets = append(f.Targets, &t.Target)
		f.Verdicts = append(f.Verdicts, t.Verdict)
		if !t.refused.IsZero() {
			f.Memory.Refused[t.UID] = t.refused
		}
	}
	return f
}

// byRequests returns the facts of a check that creates requests.
func byRequests(targets ...givenMachine) Facts { return facts(targets...).with(external) }

// has sets a condition of a Machine, a check or a Cluster.
func has(obj interface {
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}, cond metav1.Condition) {
	kept := slices.DeleteFunc(slices.Clone(obj.GetConditions()), func(other metav1.Condition) bool { return other.Type == cond.Type })
	obj.SetConditions(append(kept, cond))
}

func since(kind string, status metav1.ConditionStatus, reason string, at time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)}
}

// givenMachine is a machine and the verdict on it.
type givenMachine struct {
	Target
	Verdict health.Verdict
	refused time.Time
}

func (f Facts) with(changes ...func(*Facts)) Facts {
	for _, change := range changes {
		change(&f)
	}
	return f
}

// is returns a machine in a state, with an owner. If unhealthy, it has been so for a minute; otherwise its timeout expires in a minute.
func is(state health.State, changes ...func(*givenMachine)) givenMachine {
	t := givenMachine{Target: Target{Machine: aMachine(), Health: &health.Target{}}, Verdict: health.Verdict{State: state}}
	switch state {
	case health.Unhealthy:
		t.Verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Due: ago(time.Minute)}}
	case health.Pending, health.Starting:
		t.Verdict.Recheck = noon.Add(time.Minute)
	case health.Healthy, health.Unknown:
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func bad(changes ...func(*givenMachine)) givenMachine { return is(health.Unhealthy, changes...) }

func due(d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) { t.Verdict.Findings[0].Due = ago(d) }
}

func byPerson(t *givenMachine) {
	t.Verdict.Findings = append(t.Verdict.Findings, health.Finding{Reason: health.MarkedByHand})
}

// aMachine returns a Machine with an owner.
func aMachine() *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Controller: ptr.To(true)}}}}
}

// unstarted makes a machine that was created an hour ago, never had a node, and has been unhealthy for 30 seconds.
func unstarted(t *givenMachine) {
	t.CreationTimestamp = metav1.NewTime(ago(time.Hour))
	due(30 * time.Second)(t)
}

// former adds records of remediations of the same owner's Machines that never had a node, begun that long ago.
func former(begun ...time.Duration) func(*Facts) {
	return func(f *Facts) {
		for _, d := range begun {
			record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(ago(d))}}
			record.Status.Begun = &record.CreationTimestamp
			f.Former = map[types.UID][]mendv1.RemediationRecord{"": append(f.Former[""], *record)}
		}
	}
}

func condOf(kind string, status metav1.ConditionStatus, reason string) func(*givenMachine) {
	return func(t *givenMachine) { has(t.Machine, metav1.Condition{Type: kind, Status: status, Reason: reason}) }
}

// Changes of a machine.
func deleting(t *givenMachine)  { t.DeletionTimestamp = &metav1.Time{Time: noon} }
func olderActs(t *givenMachine) { t.OlderCheck = "older" }

// besideCheck adds another check with an opinion on the machine.
func besideCheck(other Opinion) func(*givenMachine) {
	return func(t *givenMachine) { t.Others = append(t.Others, other) }
}
func onHost(t *givenMachine) {
	t.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", APIGroup: "infrastructure.cluster.x-k8s.io"}
}
func cycled(t *givenMachine) {
	t.Cycle = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{mendv1.HostRemediationFinalizer}}}
}

func waitsForOthersNow(t *givenMachine) {
	t.Request.Annotations = map[string]string{mendv1.WaitsForAnnotation: "HostKeptOff"}
}

// updatingFor has the machine updated in place for that long.
func updatingFor(d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) {
		has(t.Machine, since(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, "", ago(d)))
	}
}

// turnedAgo sets a condition that turned False that long ago.
func turnedAgo(kind string, d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) { has(t.Machine, since(kind, metav1.ConditionFalse, "", ago(d))) }
}

func ruledOut(t *givenMachine) {
	t.Verdict.Findings[0].Signal = health.Signal{Source: health.OnMachine, Type: clusterv1.MachineUpdatingCondition}
}

// withHost sets what was read of the host of a machine.
func withHost(h Host) func(*givenMachine) { return func(t *givenMachine) { t.Host = &h } }

// askedAgo has the owner asked that long ago; its kind is not known to report remediations.
func askedAgo(d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) {
		marked(t)
		t.OwnerReferences[0].Kind, t.OwnerKindSilent = "TalosControlPlane", true
		has(t.Machine, since(OwnerRemediated, metav1.ConditionFalse, waitingForRemediation, ago(d)))
	}
}

// saysInV1Beta1 has the owner answer in the v1beta1 condition that long ago, as the owners of RKE2 and k0smotron do.
func saysInV1Beta1(d time.Duration) func(*givenMachine) {
	return func(t *givenMachine) {
		t.SetV1Beta1Conditions(clusterv1.Conditions{{
			Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse,
			Reason: clusterv1.WaitingForRemediationV1Beta1Reason, Message: "can't remediate", LastTransitionTime: metav1.NewTime(ago(d)),
		}})
		t.OwnerKindSilent = AnsweringOwner(t.Machine) == ""
	}
}

func unowned(t *givenMachine)  { t.OwnerReferences = nil }
func unusable(t *givenMachine) { t.Unusable = errors.New("it is odd") }
func markedHealthy(t *givenMachine) {
	condOf(HealthCheckSucceeded, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)(t)
	t.SetV1Beta1Conditions(clusterv1.Conditions{{Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionTrue}})
}
func asked(t *givenMachine) {
	marked(t)
	wasAsked(t)
}
func refuses(t *givenMachine) {
	marked(t)
	condOf(OwnerRemediated, metav1.ConditionFalse, clusterv1.MachineSetMachineCannotBeRemediatedReason)(t)
}
func requestDeleting(t *givenMachine) { t.Request.DeletionTimestamp = &metav1.Time{Time: noon} }

var (
	updatingNow     = condOf(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, "")
	marked          = condOf(HealthCheckSucceeded, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason)
	deferred        = condOf(OwnerRemediated, metav1.ConditionFalse, clusterv1.MachineSetMachineRemediationDeferredReason)
	wasAsked        = condOf(OwnerRemediated, metav1.ConditionFalse, waitingForRemediation)
	announcedBefore = condOf(ExternallyRemediated, metav1.ConditionFalse, waitingForRemediation)
	reports         = condOf(ExternallyRemediated, metav1.ConditionTrue, "")
	notFound        = condOf(ExternallyRemediated, metav1.ConditionFalse, remediationTemplateNotFound)
)

// failedBefore has the creation of a request fail an hour ago.
func failedBefore(t *givenMachine) {
	has(t.Machine, since(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, ago(time.Hour)))
}

// saidToFail has the provider report a final failure while the node is Ready.
func saidToFail(t *givenMachine) {
	t.Node = &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	t.Verdict.Findings = []health.Finding{{Reason: health.MachineFailed}}
}

// nodeIs makes a machine whose node is not read, but was Ready when Cluster API last saw it.
func nodeIs(node health.Node) func(*givenMachine) {
	return func(t *givenMachine) {
		t.Node, t.Health.Node = nil, node
		condOf(clusterv1.MachineNodeReadyCondition, metav1.ConditionTrue, "")(t)
	}
}

func quiet(t *givenMachine) {
	t.Verdict.Findings = append(t.Verdict.Findings, health.Finding{Reason: health.NodeCondition, Due: ago(time.Minute)})
}

var ownRequest, foreign, adoptable = hasRequest(OwnRequest), hasRequest(ForeignRequest), hasRequest(AdoptableRequest)

func awaited(t *givenMachine) { t.Health.Node = health.NodeAwaited }

func hasRequest(by Ownership) func(*givenMachine) {
	return func(t *givenMachine) {
		owners := []metav1.OwnerReference{{UID: "uid-of-a"}, {UID: "uid-of-b"}, {UID: t.UID}}
		t.Request, t.Ownership = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "req", OwnerReferences: owners}}, by
		if by == NoRequest {
			t.Request = nil
		}
	}
}

// unjudgedSincePause has conditions of the machine that were written before a pause.
func unjudgedSincePause(t *givenMachine) {
	t.Verdict.Void = []health.Finding{{Late: health.NotSincePause}}
}

// initialized sets when the control plane became initialized; ready does so for the infrastructure of the Cluster.
func initialized(at time.Time) func(*Facts) {
	return func(f *Facts) {
		has(f.Cluster, since(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, "", at))
	}
}
func ready(at time.Time) func(*Facts) {
	return func(f *Facts) {
		has(f.Cluster, since(clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, "", at))
	}
}
func uninitialized(f *Facts) {
	has(f.Cluster, since(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionFalse, "", noon))
	f.Link = health.Unsure
}

// Changes of the check, its template and its cluster.
func external(f *Facts)       { f.Template.External = true }
func unknown(f *Facts)        { f.Template.External, f.Template.Known = true, false }
func missing(f *Facts)        { f.Template.External, f.Template.Missing = true, "it is gone" }
func explainedFacts(f *Facts) { f.Explains = true }
func observe(f *Facts)        { f.Mode = Observed }
func tooMany(f *Facts)        { f.Limits.AtMost = 0 }
func tooFew(f *Facts)         { f.Limits.AtLeast = 8 }
func invalid(f *Facts)        { f.Invalid = &InvalidField{"spec.x", errors.New("it is odd")} }
func limitsMatter(f *Facts)   { f.Limited = true }

// refused has the check name a kind that cannot be a template, so that no template is read.
func refused(f *Facts) {
	f.Template = Template{External: true, Refused: true, Missing: "it is a Lease"}
}

func capacityMissing(f *Facts) { f.Capacity.Missing = 1 }

// noPlace has RemediationPolicies give no machine a place.
func noPlace(f *Facts) {
	f.Placeless = map[types.UID][]rule.Blocker{}
	for _, target := range f.Targets {
		full := rule.Blocker{Reason: place.GroupInFlight, Text: "The limit is reached: 1 of 1", Brief: "The limit is reached"}
		f.Placeless[target.UID] = []rule.Blocker{full}
	}
}

// knownSince has that machine known as not healthy for that long.
func knownSince(name string, d time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Memory.Check, f.Memory.NotHealthy = f.Check.UID, map[types.UID]time.Time{types.UID("uid-of-" + name): ago(d)}
	}
}

// starting returns the sorted names of the machines whose remediation starts.
func (f Facts) starting() string {
	var names []byte
	for i, d := range Decide(f).Decisions {
		if d.Starts() {
			names = append(names, f.Targets[i].Name...)
		}
	}
	slices.Sort(names)
	return string(names)
}
