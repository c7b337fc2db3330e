package history

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/test/golden"
)

// of returns the history of a scope, from the records that concern it.
func of(o *Objects, s Scope) []cliv1.HistoryEntry {
	within := *o
	within.Records = slices.DeleteFunc(slices.Clone(o.Records), func(r *mendv1.RemediationRecord) bool { return !s.Concerns(r) })
	return Of(&within, s).Items
}

// reasons returns the reasons of a history.
func reasons(o *Objects, s Scope) []string {
	var reasons []string
	for _, e := range of(o, s) {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func a(kind, name string) Scope { return Scope{Namespace: "metal", Kind: kind, Name: name} }

func TestHistoryHasEachFactOnce(t *testing.T) {
	type story struct {
		scope  Scope
		layout text.Layout
	}
	golden.Stories(t, "stories", map[string]story{
		"a power cycle at 80 columns":              {a(machineKind, "workers-a"), text.Layout{Width: 80}},
		"a power cycle at 200 columns":             {a(hostKind, "host-0"), text.Layout{Width: 200, UTC: true}},
		"a machine that is gone at 80 columns":     {a(machineKind, "workers-old"), text.Layout{Width: 80}},
		"everything at 200 columns":                {Scope{}, text.Layout{Width: 200, Wide: true, Namespaces: true}},
		"a cluster since one machine was replaced": {Scope{Kind: clusterKind, Name: "prod", Since: at(301)}, text.Layout{Width: 200}},
	}, func(t *testing.T, s story) string {
		var out strings.Builder
		s.layout.Now = at(13 * 60)
		must.Do(t, Print(&out, of(metal(), s.scope), s.layout))
		for line := range strings.Lines(out.String()) {
			if strings.TrimRight(line, "\n ") != strings.TrimRight(line, "\n") {
				t.Errorf("there are blanks at the end of %q", line)
			}
		}
		return out.String()
	})
}

func TestAPictureHasEachFactInTheLaneOfItsObject(t *testing.T) {
	o := metal()
	o.Events[1].Note += " <b>\x1b[2J" // a tenant's text must not break the picture
	var out strings.Builder
	must.Do(t, SVG(&out, of(o, Scope{})))
	golden.Compare(t, "testdata/everything.svg", out.String())
	if err := xml.Unmarshal([]byte(out.String()), new(struct{})); err != nil {
		t.Errorf("it is no XML: %v", err)
	}
}

func TestWhatBelongsToAnObject(t *testing.T) {
	cycle := []string{"NodeNotReady", "MachineMarkedUnhealthy", "RemediationDecided", "RequestCreated", "PowerOffRequested", "PowerOff", "Fenced", "PowerOnRequested", "PoweredOn", "Healed"}
	replacement := []string{"MachineMarkedUnhealthy", "RemediationDecided", "OwnerRequested", "Draining", "FailedDrainNode", "OwnerCreates", "ReplacementFound", "Replaced"}
	const restricted = "RemediationRestricted" // about all machines of the check
	for name, tc := range map[string]struct {
		scope Scope
		want  []string
	}{
		"a machine":                 {a(machineKind, "workers-a"), append(slices.Clone(cycle), restricted)},
		"its node":                  {a(nodeKind, "workers-a"), append(slices.Clone(cycle), restricted)},
		"its host":                  {a(hostKind, "host-0"), append(slices.Clone(cycle), restricted)},
		"its check":                 {a(machineCheckKind, "workers"), slices.Concat(cycle, replacement[:7], []string{restricted}, replacement[7:])},
		"its cluster":               {a(clusterKind, "prod"), slices.Concat(cycle, replacement[:7], []string{restricted}, replacement[7:])},
		"a machine that is gone":    {a(machineKind, "workers-old"), slices.Concat(replacement[:7], []string{restricted}, replacement[7:])},
		"the one in its place":      {a(machineKind, "workers-b"), slices.Concat(replacement[:7], []string{restricted}, replacement[7:])},
		"a machine that is healthy": {a(machineKind, "workers-c"), nil},
		"another namespace":         {Scope{Namespace: "other", Kind: machineKind, Name: "workers-a"}, nil},
		"another check":             {a(nodeCheckKind, "workers"), nil},
		"what is long ago":          {Scope{Since: at(100000)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, tc.want, reasons(metal(), tc.scope))
		})
	}
}

// An event is left out if a step says the same. For a power cycle by hand, the record may have no step but the request.
func TestAnEventStaysUnlessAStepTellsItsFact(t *testing.T) {
	machine, check, request := regarding(machineKind, "workers-a"), regarding(machineCheckKind, "workers"), regarding("HostRemediation", "workers-a")
	byHand := regarding("HostRemediation", "workers-c-by-hand")
	for name, tc := range map[string]struct {
		event eventsv1.Event
		stays bool
	}{
		"an end that the record has":               {told(160, machine, "CapacityBack", "it is back"), false},
		"another end":                              {told(160, machine, "CapacityNotComing", "no machine is to come"), true},
		"an end at another time":                   {told(400, machine, "CapacityBack", "it is back"), true},
		"a beginning of another machine":           {told(1, check, "RemediationStarted", "x", about(regarding(machineKind, "workers-c"))), true},
		"the reason of a step":                     {told(1, machine, "RequestCreated", "x"), false},
		"the text of a step":                       {told(1, request, "X", "metal: HostRemediation workers-a waits for the host to be off"), false},
		"a step that failed":                       {told(40, request, "PowerOnFailed", "x"), true},
		"a power cycle that no record knows":       {told(40, byHand, "Fenced", "The node is fenced"), true},
		"a check that the machine is not about":    {told(40, check, "OverlappingChecks", "x"), true},
		"a kubelet that reports its name as a UID": {told(40, rename(regarding(nodeKind, "workers-a"), "workers-a"), "Rebooted", "x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			o := metal()
			before := len(of(metal(), a(clusterKind, "prod")))
			o.Events = append(o.Events, tc.event)
			must.Is(t, tc.stays, len(of(o, a(clusterKind, "prod"))) > before, "it stays:")
		})
	}
}

// An event on the host replaces the step of the request that says the same.
func TestAnEventOnTheHostTellsAStepOfItsRequest(t *testing.T) {
	o := metal()
	want := reasons(o, a(machineKind, "workers-a"))
	o.Events = slices.DeleteFunc(o.Events, func(e eventsv1.Event) bool {
		return e.Reason == "PowerOffRequested" && e.Regarding.Kind == "HostRemediation"
	})
	must.Equal(t, want, reasons(o, a(machineKind, "workers-a")))
}

func TestAnEventOfAnotherObjectOfTheNameDoesNotBelong(t *testing.T) {
	o := metal()
	o.Events = append(o.Events, told(40, rename(regarding(hostKind, "host-0"), "older"), "PowerOff", "x"), told(40, rename(regarding(nodeKind, "workers-a"), "of another cluster"), "Rebooted", "x"),
		told(40, rename(regarding("HostRemediation", "workers-old"), "of a machine that is gone"), "Fenced", "x"))
	must.Equal(t, reasons(metal(), a(machineKind, "workers-a")), reasons(o, a(machineKind, "workers-a")))
	if !slices.Contains(reasons(o, a(machineKind, "workers-old")), "Fenced") {
		t.Error("a request that is gone is not known by the name of its machine")
	}
	o.Records[0].Spec.Target.Node.UID = "" // then the name alone identifies the node
	if !slices.Contains(reasons(o, a(machineKind, "workers-a")), "Rebooted") {
		t.Error("the events of a node whose UID the record does not know do not belong to it")
	}
	o.Records[0].Spec.Target.Node.UID, o.Records[0].Spec.Target.ClusterUID = "Node workers-a", "before" // as after clusterctl move
	o.Records[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: clusterKind, Name: "prod", UID: "after"}}
	if !slices.Contains(reasons(o, a(machineKind, "workers-a")), "Rebooted") {
		t.Error("after a move the events of a node do not belong to it")
	}
}

// A user who may write records in one namespace can name objects of another namespace in them.
func TestARecordHidesNoEventOfAnotherNamespace(t *testing.T) {
	o := metal()
	o.Records[0].Namespace = "theirs"
	if got := reasons(o, Scope{}); !slices.Contains(got, "RemediationStarted") || !slices.Contains(got, "MachineHealthy") {
		t.Errorf("there are %v", got)
	}
}

// rename returns a reference to an object of the same name with another UID.
func rename(o corev1.ObjectReference, uid types.UID) corev1.ObjectReference {
	o.UID = uid
	return o
}

func TestARecordSaysWhoAskedForARemediation(t *testing.T) {
	r := replacing()
	r.Spec.Requester.User = "alice"
	if got := stepsOf(r)[0].Message; got != "remediation decided, requested by alice: Ready=Unknown" {
		t.Errorf("it says %q", got)
	}
}

// The API server deletes events after an hour. Then a power cycle has only the steps of its record.
func TestWithoutEventsTheStepsOfARecordRemain(t *testing.T) {
	o := metal()
	o.Events = nil
	want := []string{"RemediationDecided", "RequestCreated", "RemediatorActs", "PoweringOff", "MovingWorkload", "Booting", "Healed"}
	must.Equal(t, want, reasons(o, a(machineKind, "workers-a")))
}

func TestWhatARecordWaitsForIsInItsNamespaceIfItsKindHasOne(t *testing.T) {
	for ref, want := range map[mendv1.RecordRef]string{
		{Kind: "MachineDeployment", Name: "workers"}:         "metal",
		{Kind: "Pod", Namespace: "shop", Name: "db-0"}:       "shop",
		{Kind: "VolumeAttachment", Name: "csi-1"}:            "",
		{Kind: "Node", Namespace: "metal", Name: "node-old"}: "",
	} {
		must.Is(t, want, recordRef(&ref, replacing()).Namespace, "%s %s is in namespace", ref.Kind, ref.Name)
	}
}

func TestARecordConcernsAScopeUntilItEnds(t *testing.T) {
	r := replacing()
	if !(Scope{Since: at(701)}).Concerns(r) || (Scope{Since: at(702)}).Concerns(r) || (Scope{Namespace: "other"}).Concerns(r) {
		t.Error("of a record that has ended")
	}
	r.Status = mendv1.RemediationRecordStatus{}
	if !(Scope{Since: at(100000)}).Concerns(r) || a(machineKind, "workers-b").Concerns(r) {
		t.Error("of an open record without a replacement")
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func stamp(seconds int) *metav1.Time { return new(metav1.NewTime(at(seconds))) }

// regarding returns a reference to an object whose UID is "KIND NAME".
func regarding(kind, name string) corev1.ObjectReference {
	ref := corev1.ObjectReference{Kind: kind, Namespace: "metal", Name: name, UID: types.UID(kind + " " + name)}
	if kind == nodeKind || kind == nodeCheckKind {
		ref.Namespace = "default"
	}
	return ref
}

func told(seconds int, about corev1.ObjectReference, reason, note string, edits ...func(*eventsv1.Event)) eventsv1.Event {
	e := eventsv1.Event{
		EventTime: metav1.NewMicroTime(at(seconds).Add(time.Second / 2)), Regarding: about, Reason: reason, Note: note, Type: corev1.EventTypeNormal,
		ReportingController: "kubemend",
	}
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

func warning(e *eventsv1.Event) { e.Type = corev1.EventTypeWarning }

func about(o corev1.ObjectReference) func(*eventsv1.Event) {
	return func(e *eventsv1.Event) { e.Related = &o }
}

func seen(times int32, last int) func(*eventsv1.Event) {
	return func(e *eventsv1.Event) {
		e.Series = &eventsv1.EventSeries{Count: times, LastObservedTime: metav1.NewMicroTime(at(last))}
	}
}

// old makes an event like one of client-go's older recorder.
func old(component string, times int32, last int) func(*eventsv1.Event) {
	return func(e *eventsv1.Event) {
		e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp = metav1.NewTime(e.EventTime.Truncate(time.Second)), *stamp(last)
		e.EventTime, e.ReportingController = metav1.MicroTime{}, ""
		e.DeprecatedSource.Component, e.DeprecatedCount = component, times
	}
}

func ref(kind, name string) *mendv1.RecordRef {
	r := &mendv1.RecordRef{Kind: kind, Namespace: "metal", Name: name, UID: kind + " " + name}
	if kind == nodeKind {
		r.Namespace = ""
	}
	return r
}

func step(seconds int, reason, message string, object *mendv1.RecordRef) mendv1.RecordStep {
	return mendv1.RecordStep{Time: metav1.NewMicroTime(stamp(seconds).Time), Reason: reason, Message: message, Object: object}
}

// cycled returns the record of a power cycle.
func cycled() *mendv1.RemediationRecord {
	request := ref("HostRemediation", "workers-a")
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers-a-1b2c"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByRequest, Cause: "Ready=Unknown", UnhealthySince: stamp(-300), Due: stamp(0), Decided: *stamp(0),
		Target:    mendv1.RecordTarget{ClusterName: "prod", Machine: ref(machineKind, "workers-a"), Node: ref(nodeKind, "workers-a"), Host: ref(hostKind, "host-0")},
		Requester: mendv1.RecordRequester{Check: ref(machineCheckKind, "workers")},
	}
	r.Status = mendv1.RemediationRecordStatus{
		Begun: stamp(0), CapacityBack: stamp(150), Ended: stamp(150), Outcome: mendv1.RecordHealed, Requests: []mendv1.RecordRef{*request},
		Steps: []mendv1.RecordStep{
			step(0, "RequestCreated", "HostRemediation workers-a was created for Machine workers-a", request),
			step(0, "RemediationInProgress", "HostRemediation workers-a has not ended", request),
			step(0, "RemediatorActs", "A remediator has begun to act on HostRemediation workers-a", request),
			step(1, "PoweringOff", "HostRemediation workers-a waits for the host to be off", request),
			step(6, "MovingWorkload", "HostRemediation workers-a waits for the workload to leave the node of the host, which is off", request),
			step(16, "Booting", "HostRemediation workers-a waits for the machine to be healthy after its host was powered on", request),
			step(150, "Healed", "Machine workers-a is healthy again", nil),
		},
	}
	return r
}

// replacing returns the record of a machine that its owner has replaced. Another machine has its host now.
func replacing() *mendv1.RemediationRecord {
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers-old-3f2a"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: stamp(0), Due: stamp(300), Decided: *stamp(301),
		Target:    mendv1.RecordTarget{ClusterName: "prod", Machine: ref(machineKind, "workers-old"), Node: ref(nodeKind, "node-old"), Host: ref(hostKind, "host-1")},
		Requester: mendv1.RecordRequester{Check: ref(machineCheckKind, "workers")},
	}
	r.Status = mendv1.RemediationRecordStatus{
		Begun: stamp(301), CapacityBack: stamp(700), Ended: stamp(701), Outcome: mendv1.RecordReplaced,
		Replacement: &mendv1.RecordReplacement{Machine: *ref(machineKind, "workers-b")},
		Steps: []mendv1.RecordStep{
			step(301, "OwnerRequested", "The owner of Machine workers-old was asked to replace it", nil),
			step(330, "Draining", "Machine is deleting: draining, 2 pods are left", nil),
			step(395, "OwnerCreates", "MachineDeployment workers makes another one", &mendv1.RecordRef{Kind: "MachineDeployment", Name: "workers"}),
			step(400, "ReplacementFound", "Machine workers-b comes in place of Machine workers-old", ref(machineKind, "workers-b")),
			step(701, "Replaced", "Another Machine is healthy in place of Machine workers-old", nil),
		},
	}
	return r
}

// metal returns a cluster with a worker that was power-cycled, a worker that was replaced, and a healthy worker.
func metal() *Objects {
	machine, check := regarding(machineKind, "workers-a"), regarding(machineCheckKind, "workers")
	request, host, node, former := regarding("HostRemediation", "workers-a"), regarding(hostKind, "host-0"), regarding(nodeKind, "workers-a"), regarding(machineKind, "workers-old")
	const restricted = "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: 3, unhealthy: 2, maxUnhealthy: 40%)"
	o := &Objects{Records: []*mendv1.RemediationRecord{cycled(), replacing()}, Events: []eventsv1.Event{
		told(-300, node, "NodeNotReady", "Node workers-a status is now: NodeNotReady", old("node-controller", 1, -300)),
		told(0, machine, "MachineMarkedUnhealthy", "Machine metal/workers-a has been marked as unhealthy by metal/workers: Condition Ready on Node is Unknown for more than 5m0s", about(check)),
		told(0, check, "RemediationStarted", "Requested a HostRemediation for workers-a", about(machine)),
		told(1, request, "PowerOffRequested", "Attempt 1 of 2: The host is asked to power off", about(request)),
		told(1, host, "PowerOffRequested", "Attempt 1 of 2: The host is asked to power off", about(request)),
		told(3, host, "PowerOff", "Host powered off", old("metal3-baremetal-controller", 1, 3)),
		told(5, request, "Fenced", "Attempt 1 of 2: The host is off; the node is fenced, so that its workload can start elsewhere", about(request)),
		told(13, request, "PowerOnRequested", "Attempt 1 of 2: The workload has moved; the host is asked to power on", about(request)),
		told(15, request, "PoweredOn", "Attempt 1 of 2: The host is on; the fence is removed from the node", about(request)),
		told(149, machine, "MachineHealthy", "Machine metal/workers-a is healthy again", about(check)),
		told(149, check, "RemediationEnded", "Healthy again: workers-a", about(machine)),
		told(150, check, "CapacityBack", "The capacity of Machine workers-a is back after 2m30s: Machine workers-a is healthy again", about(machine)),
		told(150, machine, "CapacityBack", "The capacity of Machine workers-a is back after 2m30s: Machine workers-a is healthy again"),
		told(300, former, "MachineMarkedUnhealthy", "Machine metal/workers-old has been marked as unhealthy by metal/workers", about(check)),
		told(302, former, "OwnerRequested", "MachineSet workers was asked to replace the machine"),
		told(330, former, "FailedDrainNode", "error draining Machine's node \"node-old\": context deadline exceeded", warning, old("machine-controller", 7, 390)),
		told(600, check, "RemediationRestricted", restricted, warning, seen(2, 660)),
		told(5, regarding("Pod", "workers-a"), "Started", "Started container", old("kubelet", 1, 5)),
		told(6, node, "NodeHasSufficientMemory", "no matter", old("kubelet", 1, 6)),
	}}
	for _, name := range []string{"workers-a", "workers-b", "workers-c"} {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, UID: regarding(machineKind, name).UID}}
		m.Spec.ClusterName, m.Status.NodeRef.Name = "prod", name
		o.Machines = append(o.Machines, m)
	}
	return o
}
