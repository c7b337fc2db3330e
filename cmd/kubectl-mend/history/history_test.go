package history

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/test/golden"
)

// of is the history of a scope, made of the records that concern it.
func of(o *Objects, s Scope) []cliv1.HistoryEntry {
	within := *o
	within.Records = slices.DeleteFunc(slices.Clone(o.Records), func(r *mendv1.RemediationRecord) bool { return !s.Concerns(r) })
	return Of(&within, s).Items
}

// reasons are those of a history.
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
		if err := Print(&out, of(metal(), s.scope), s.layout); err != nil {
			t.Fatal(err)
		}
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
	o.Events[1].Note += " <b>\x1b[2J" // what a tenant wrote ends neither the picture nor a terminal's
	var out strings.Builder
	if err := SVG(&out, of(o, Scope{})); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/everything.svg", out.String())
	if err := xml.Unmarshal([]byte(out.String()), new(struct{})); err != nil {
		t.Errorf("it is no XML: %v", err)
	}
}

func TestWhatBelongsToAnObject(t *testing.T) {
	cycle := []string{"NodeNotReady", "MachineMarkedUnhealthy", "RemediationDecided", "RequestCreated", "PowerOffRequested", "PowerOff", "Fenced", "PowerOnRequested", "PoweredOn", "Healed"}
	replacement := []string{"MachineMarkedUnhealthy", "RemediationDecided", "OwnerRequested", "Draining", "FailedDrainNode", "OwnerCreates", "ReplacementFound", "Replaced"}
	const restricted = "RemediationRestricted" // concerns all machines of the check
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
			if diff := cmp.Diff(tc.want, reasons(metal(), tc.scope)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An event is left out if a step tells its fact, and stays if none does: of a power cycle by hand the record may have nothing but the
// request.
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
			if got := len(of(o, a(clusterKind, "prod"))) > before; got != tc.stays {
				t.Errorf("it stays: %t", got)
			}
		})
	}
}

func TestAnEventOfAnotherObjectOfTheNameDoesNotBelong(t *testing.T) {
	o := metal()
	o.Events = append(o.Events, told(40, rename(regarding(hostKind, "host-0"), "older"), "PowerOff", "x"), told(40, rename(regarding(nodeKind, "workers-a"), "of another cluster"), "Rebooted", "x"),
		told(40, rename(regarding("HostRemediation", "workers-old"), "of a machine that is gone"), "Fenced", "x"))
	if diff := cmp.Diff(reasons(metal(), a(machineKind, "workers-a")), reasons(o, a(machineKind, "workers-a"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Contains(reasons(o, a(machineKind, "workers-old")), "Fenced") {
		t.Error("a request that is gone is not known by the name of its machine")
	}
	o.Records[0].Spec.Target.ClusterUID = "before" // after clusterctl move all UIDs are others
	o.Records[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: clusterKind, Name: "prod", UID: "after"}}
	if !slices.Contains(reasons(o, a(machineKind, "workers-a")), "Rebooted") {
		t.Error("after a move the events of a node do not belong to it")
	}
}

// A user who may write records in a namespace may name in one what is in another.
func TestARecordHidesNoEventOfAnotherNamespace(t *testing.T) {
	o := metal()
	o.Records[0].Namespace = "theirs"
	if got := reasons(o, Scope{}); !slices.Contains(got, "RemediationStarted") || !slices.Contains(got, "MachineHealthy") {
		t.Errorf("there are %v", got)
	}
}

// rename is an object of the same name that has another UID.
func rename(o corev1.ObjectReference, uid types.UID) corev1.ObjectReference {
	o.UID = uid
	return o
}

func TestARecordSaysWhoAskedForARemediation(t *testing.T) {
	r := replacing()
	r.Spec.Requester.User = "alice"
	if got := ofRecord(r, nil)[0].Message; got != "remediation decided, requested by alice: Ready=Unknown" {
		t.Errorf("it says %q", got)
	}
}

// Without its events, which are gone after an hour, a power cycle has the steps of its record.
func TestWithoutEventsTheStepsOfARecordRemain(t *testing.T) {
	o := metal()
	o.Events = nil
	want := []string{"RemediationDecided", "RequestCreated", "RemediatorActs", "PoweringOff", "MovingWorkload", "Booting", "Healed"}
	if diff := cmp.Diff(want, reasons(o, a(machineKind, "workers-a"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatARecordWaitsForIsInItsNamespaceIfItsKindHasOne(t *testing.T) {
	for ref, want := range map[mendv1.RecordRef]string{
		{Kind: "MachineDeployment", Name: "workers"}:         "metal",
		{Kind: "Pod", Namespace: "shop", Name: "db-0"}:       "shop",
		{Kind: "VolumeAttachment", Name: "csi-1"}:            "",
		{Kind: "Node", Namespace: "metal", Name: "node-old"}: "",
	} {
		if got := recordRef(&ref, replacing()).Namespace; got != want {
			t.Errorf("%s %s is in namespace %q, want %q", ref.Kind, ref.Name, got, want)
		}
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
