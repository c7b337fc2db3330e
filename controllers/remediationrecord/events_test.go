package remediationrecord

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
	"github.com/kubemend/kubemend/controllers/recorder"
)

func asked(kind, apiVersion, name string) func(*mendv1.RemediationRecord) {
	return func(is *mendv1.RemediationRecord) {
		is.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: apiVersion, Kind: kind, Namespace: "metal", Name: name, UID: "check"}
	}
}

var byCheck = asked("MachineHealthCheck", clusterv1.GroupVersion.String(), "workers")

// kubectl describe finds events by the UID of what they are about.
func TestEventsAreAboutObjectsByTheUIDThatTheyHaveNow(t *testing.T) {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers", UID: "another-check"}}
	another := unhealthy()
	another.UID = "another-machine"
	for name, tc := range map[string]struct {
		machine            *clusterv1.Machine
		moved              bool
		byCheck, byMachine types.UID
	}{
		"as the record has it, though the check was made anew": {machine: unhealthy(), byCheck: "check", byMachine: "w1"},
		"as they are after a move":                             {machine: another, moved: true, byCheck: "another-check", byMachine: "another-machine"},
	} {
		t.Run(name, func(t *testing.T) {
			is := recordOf(func(r *mendv1.RemediationRecord) {
				byCheck(r)
				r.Status.Begun = new(after(time.Second))
				if tc.moved {
					r.OwnerReferences[0].UID = "of the new management cluster"
				}
			})
			m := newManagement(t, append(fleet(), is, check.DeepCopy(), tc.machine)...)
			m.reconcile(time.Second)
			m.reconcile(10 * time.Minute)
			got := map[string]types.UID{}
			for _, e := range m.reported {
				got[e.about] = e.uid
			}
			if want := (map[string]types.UID{"MachineHealthCheck workers": tc.byCheck, "Machine w1": tc.byMachine}); !maps.Equal(got, want) {
				t.Errorf("events are about %v, want %v", got, want)
			}
		})
	}
}

func TestWhereIsReportedWhatCapacityWaitsFor(t *testing.T) {
	reboot := func(is *mendv1.RemediationRecord) {
		is.Spec.Requester = mendv1.RecordRequester{}
		is.Status.Requests = []mendv1.RecordRef{{APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediation", Namespace: "metal", Name: "w1"}}
	}
	for name, tc := range map[string]struct {
		says   func(*mendv1.RemediationRecord)
		about  []string
		prefix string
	}{
		"a MachineHealthCheck": {byCheck, []string{"MachineHealthCheck workers", "Machine w1"}, "The capacity"},
		"a NodeHealthCheck, in the words of medik8s": {
			asked("NodeHealthCheck", "remediation.medik8s.io/v1alpha1", "nodes"), []string{"NodeHealthCheck nodes", "Machine w1"}, "[remediation] The capacity",
		},
		"a request that no check made": {reboot, []string{"HostRemediation w1", "Machine w1"}, "The capacity"},
		"the Machine alone": {
			func(is *mendv1.RemediationRecord) { is.Spec.Requester = mendv1.RecordRequester{} }, []string{"Machine w1"}, "The capacity",
		},
		"the Machine alone, by a check of another namespace": {func(is *mendv1.RemediationRecord) {
			byCheck(is)
			is.Spec.Requester.Check.Namespace = "theirs"
		}, []string{"Machine w1"}, "The capacity"},
		"nothing, by a check that is only observed": {func(is *mendv1.RemediationRecord) {
			byCheck(is)
			is.Spec.Mode = mendv1.RecordObserved
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
			m := newManagement(t, append(fleet(), w1, recordOf(tc.says))...)
			for i := range 4 {
				m.reconcile(time.Duration(i) * time.Minute)
			}
			var about []string
			for _, e := range m.reported {
				about = append(about, e.about)
			}
			if !slices.Equal(about, tc.about) {
				t.Fatalf("reported are %v, want %v", about, tc.about)
			}
			if len(m.reported) > 0 && !strings.HasPrefix(m.reported[0].text, tc.prefix) {
				t.Errorf("it is reported %q", m.reported[0].text)
			}
			m.restart()
			for i := range 4 {
				m.reconcile(time.Duration(4+i) * time.Minute)
			}
			if len(m.reported) != 2*len(tc.about) {
				t.Errorf("with another process it is reported %d times", len(m.reported))
			}
		})
	}
}

// written are the events that client-go writes to an API server.
type written chan *eventsv1.Event

func (w written) write(event *eventsv1.Event) (*eventsv1.Event, error) {
	w <- event
	return event, nil
}

// Create implements events.EventSink, as Update and Patch do.
func (w written) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return w.write(event)
}

func (w written) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return w.write(event)
}

func (w written) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return w.write(event)
}

// What differs in its text alone is one event to client-go, under the text of the first.
func TestEachObjectThatIsWaitedForIsAnEvent(t *testing.T) {
	budget, long := record.Ref{Kind: "PodDisruptionBudget", Name: "web"}, strings.Repeat("a", 250)
	for name, pair := range map[string][2]record.Ref{
		"of another name":                      {budget, {Kind: budget.Kind, Name: "shop"}},
		"of another kind":                      {{Kind: "Machine", Name: "w2"}, {Kind: "Metal3Machine", Name: "w2"}},
		"of a long name with another ending":   {{Kind: budget.Kind, Name: long + "-web"}, {Kind: budget.Kind, Name: long + "-shop"}},
		"that is known, after one that is not": {{}, budget},
	} {
		t.Run(name, func(t *testing.T) {
			server := make(written)
			broadcaster := events.NewBroadcaster(server)
			defer broadcaster.Shutdown()
			if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			sender := broadcaster.NewRecorder(clientgoscheme.Scheme, "kubemend")
			for _, object := range pair {
				notice := record.Notice{News: record.Awaited, Reason: "DrainBlockedByBudget", Object: object}
				recorder.Send(sender, (&observed{record: recordOf(byCheck)}).eventsOf(notice, &record.State{})[0])
				got := <-server
				if !strings.Contains(got.Note, object.Name) || got.Series != nil {
					t.Errorf("it is reported, as a series %v, %q, and not what is waited for: %s %s", got.Series, got.Note, object.Kind, object.Name)
				}
				if len(got.Action) > 128 {
					t.Errorf("an API server refuses an action of %d bytes: %s", len(got.Action), got.Action)
				}
			}
		})
	}
}
