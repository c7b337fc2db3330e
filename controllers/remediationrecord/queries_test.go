package remediationrecord

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/must"
)

var dueAt = metav1.NewTime(time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC))

func waitsFor(reason, message string, since metav1.Time) func(*mendv1.RemediationRecord) {
	return func(is *mendv1.RemediationRecord) {
		is.Status.Conditions = append(is.Status.Conditions, metav1.Condition{
			Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		})
		is.Status.Steps = []mendv1.RecordStep{aStep(since.Add(-time.Minute), "DrainBlocked"), aStep(since.Time, reason)}
	}
}

func TestWhatIsMissingByARecord(t *testing.T) {
	begun := func(is *mendv1.RemediationRecord) { is.Status.Begun = new(metav1.NewTime(dueAt.Add(time.Second))) }
	later := metav1.NewTime(dueAt.Add(time.Hour))
	machine := mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1"}
	check := mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "workers"}
	for name, tc := range map[string]struct {
		says []func(*mendv1.RemediationRecord)
		want *Missing
	}{
		"nothing before it was begun": {},
		"something that was not read, once it was begun": {
			[]func(*mendv1.RemediationRecord){begun}, &Missing{Target: machine, Check: check, Reason: "Unread", Due: dueAt.Time},
		},
		"what it waits for": {
			[]func(*mendv1.RemediationRecord){begun, waitsFor("NoHost", "No host fits", later)},
			&Missing{Target: machine, Check: check, Reason: "NoHost", Message: "No host fits", Since: later.Time, Due: dueAt.Time},
		},
		"what it waits for since its machine was gone, also if it was not begun": {
			[]func(*mendv1.RemediationRecord){waitsFor("OwnerCreates", "", later)},
			&Missing{Target: machine, Check: check, Reason: "OwnerCreates", Since: later.Time, Due: dueAt.Time},
		},
		"nothing where the owner was scaled down": {says: []func(*mendv1.RemediationRecord){begun, waitsFor("ScaledDown", "", later)}},
		"nothing after its end": {says: []func(*mendv1.RemediationRecord){begun, waitsFor("GivenUp", "", later), func(is *mendv1.RemediationRecord) {
			is.Status.Ended = &later
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			is := &mendv1.RemediationRecord{}
			is.Spec.Target.Machine, is.Spec.Requester.Check, is.Spec.Due = &machine, &check, &dueAt
			for _, say := range tc.says {
				say(is)
			}
			must.Equal(t, tc.want, MissingBy(is), "(-want +got)")
		})
	}
}

var workers = types.NamespacedName{Namespace: "metal", Name: "workers"}

// lost returns the record of a machine of workers that was due dueAt ago.
func lost(name string, ago time.Duration, edits ...func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
	is := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name + "-1"}}
	is.Spec.Due = new(metav1.NewTime(dueAt.Add(-ago)))
	is.Spec.Target.Machine = &mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: name}
	is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: workers.Namespace, Name: workers.Name}
	waitsFor("NoHost", "No host fits "+name, dueAt)(is)
	for _, edit := range edits {
		edit(is)
	}
	return is
}

// checked returns Records whose client has the index.
func checked(t *testing.T, objects ...client.Object) *Records {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Do(t, mendv1.AddToScheme(scheme))
	return &Records{Client: indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)).Build()}
}

func TestWhatIsMissingOfACheck(t *testing.T) {
	of := func(kind, name string) func(*mendv1.RemediationRecord) {
		return func(is *mendv1.RemediationRecord) {
			is.Spec.Requester.Check = &mendv1.RecordRef{Kind: kind, Namespace: "metal", Name: name}
		}
	}
	r := checked(t, lost("a", time.Minute), lost("b", time.Hour), lost("h", time.Hour),
		lost("c", time.Hour, of("MachineHealthCheck", "others")), lost("d", time.Hour, of("NodeHealthCheck", "workers")),
		lost("e", time.Hour, func(is *mendv1.RemediationRecord) { is.Status.Ended = &dueAt }),
		lost("g", time.Hour, func(is *mendv1.RemediationRecord) { is.Spec.Requester.Check = nil }))
	if all, known, err := r.MissingOf(t.Context(), workers); known || err != nil || len(all) > 0 {
		t.Errorf("before the records are known it is %v (%v), %v", all, known, err)
	}
	r.synced = yesNow
	all, known, err := r.MissingOf(t.Context(), workers)
	if err != nil || !known || len(all) != 3 || all[0].Target.Name != "b" || all[0].Reason != "NoHost" ||
		all[1].Target.Name != "h" || all[2].Target.Name != "a" {
		t.Errorf("missing is %v (%v), %v", all, known, err)
	}
	cycled := lost("a", time.Minute, func(is *mendv1.RemediationRecord) {
		is.Status.Conditions[0].Reason = string(powercycle.Booting)
		request := &mendv1.RecordRef{Kind: "HostRemediation", Name: "a"}
		is.Status.Steps = []mendv1.RecordStep{{Reason: string(powercycle.Booting), Object: request}}
	})
	if m := missingOfCheck(cycled); m.Reason != RemediationInProgress || m.Message != "HostRemediation a has not ended" {
		t.Errorf("of a power cycle it says %s: %s", m.Reason, m.Message)
	}
	if all, known, err := (*Records)(nil).MissingOf(t.Context(), workers); known || err != nil || len(all) > 0 {
		t.Errorf("without records it is %v (%v), %v", all, known, err)
	}
}

func TestACheckIsCalledWhenSomethingElseIsMissing(t *testing.T) {
	was := lost("a", time.Minute)
	with := func(edit func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
		is := was.DeepCopy()
		edit(is)
		return is
	}
	inState := func(state powercycle.State) *mendv1.RemediationRecord {
		return with(func(is *mendv1.RemediationRecord) { is.Status.Conditions[0].Reason = string(state) })
	}
	closed := with(func(is *mendv1.RemediationRecord) { is.Status.Ended = &dueAt })
	for name, tc := range map[string]struct {
		before, after *mendv1.RemediationRecord
		called        int
	}{
		"a record of a loss":              {nil, was, 1},
		"one that has not begun":          {nil, with(func(is *mendv1.RemediationRecord) { is.Status.Conditions = nil }), 0},
		"another reason":                  {was, with(func(is *mendv1.RemediationRecord) { is.Status.Conditions[0].Reason = "NoNode" }), 1},
		"another step of its power cycle": {inState(powercycle.PoweringOff), inState(powercycle.PoweringOn), 0},
		"other words for that":            {was, with(func(is *mendv1.RemediationRecord) { is.Status.Conditions[0].Message = "other" }), 0},
		"its end":                         {was, closed, 1},
		"its deletion":                    {was, nil, 1},
		"the deletion of a closed one":    {closed, nil, 0},
		"one that no check asked for":     {nil, with(func(is *mendv1.RemediationRecord) { is.Spec.Requester.Check = nil }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, called := &Records{}, 0
				missing := r.Missing.Into(func(_ context.Context, check types.NamespacedName, _ queue) {
					called++
					must.Equal(t, workers, check, "called is")
				})
				must.Do(t, missing.Start(t.Context(), nil))
				switch h, q := r.onRecords(), (delayed{in: map[string]time.Duration{}}); {
				case tc.before == nil:
					h.Create(t.Context(), event.CreateEvent{Object: tc.after}, q)
				case tc.after == nil:
					h.Delete(t.Context(), event.DeleteEvent{Object: tc.before}, q)
				default:
					h.Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
				}
				synctest.Wait()
				must.Equal(t, tc.called, called, "it is called")
			})
		})
	}
}

func TestAClosedRecordStaysInTheCacheForAsLongAsItCounts(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...) // the record of a Machine without a node
	m.replaced()
	must.Is(t, "false", m.record().Labels[mendv1.RecordOpenLabel], "when it is closed its label is")
	must.Is(t, "false", m.reconcile(12 * time.Hour).Labels[mendv1.RecordOpenLabel], "after less than twelve hours its label is")
	if label, labelled := m.reconcile(12*time.Hour + 10*time.Minute).Labels[mendv1.RecordOpenLabel]; labelled {
		t.Errorf("after that its label is %q", label)
	}
	m = newManagement(t, append(fleet(), unhealthy(), recordOf(func(r *mendv1.RemediationRecord) { r.Spec.Target.Node = NodeRef("n", "") }))...)
	must.Is(t, "false", m.replaced().Labels[mendv1.RecordOpenLabel], "of a Machine that had a node its label is")
	if label, labelled := m.reconcile(61 * time.Minute).Labels[mendv1.RecordOpenLabel]; labelled {
		t.Errorf("an hour after that began its label is %q", label)
	}
}

func TestWhatIsRemediatedAgainAndAgainIsExported(t *testing.T) {
	named := func(name string, at time.Duration, change func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
		return recordOf(begun(OwnerRequested), change, func(r *mendv1.RemediationRecord) {
			r.Name, r.Status.Begun, r.Status.Conditions = name, new(after(at)), nil
			r.Spec.Remediator = mendv1.RemediatedByRequest
		})
	}
	onHost := func(r *mendv1.RemediationRecord) { r.Spec.Target.Node = NodeRef("n", "") }
	never := func(r *mendv1.RemediationRecord) { r.Spec.Target.Host = nil }
	ofNode := func(r *mendv1.RemediationRecord) {
		r.Spec.Target = mendv1.RecordTarget{Node: NodeRef("node", "uid")}
		r.Status.Requests = []mendv1.RecordRef{{Kind: "Reboot"}, {Kind: "Reboot"}, {Kind: "Reboot"}}
	}
	long := func(r *mendv1.RemediationRecord) {
		onHost(r)
		r.Spec.Target.Host.Name, r.Status.Ended = "well", &metav1.Time{Time: noon.Add(10 * time.Minute)}
	}
	m := newManagement(t, named("a", 0, onHost), named("b", time.Minute, onHost), named("c", 0, never), named("d", time.Minute, never),
		named("e", 0, ofNode), named("f", 0, long), named("g", time.Minute, long))
	m.clock.SetTime(noon.Add(2 * time.Hour))
	want := "# HELP kubemend_remediation_loop Remediations of the same object without a healthy hour in between. The object is a host, " +
		"a node of a NodeHealthCheck, or the Machines of an owner that never had a Node. No series below 2." + `
# TYPE kubemend_remediation_loop gauge
kubemend_remediation_loop{cluster="",kind="Node",name="node",namespace="metal"} 3
kubemend_remediation_loop{cluster="c",kind="BareMetalHost",name="host-7",namespace="metal"} 2
kubemend_remediation_loop{cluster="c",kind="MachineSet",name="pool",namespace="metal"} 2
`
	collector := &capacityMissing{m.Client, m.clock}
	must.Do(t, testutil.CollectAndCompare(collector, strings.NewReader(want), "kubemend_remediation_loop"))
}

// NodeHealthChecks have their own cache, without the index of records.
func TestFormerRemediationsAreReadFromTheCacheThatHasTheIndex(t *testing.T) {
	onNode := func(name string, begun time.Duration) *mendv1.RemediationRecord {
		return recordOf(func(r *mendv1.RemediationRecord) {
			r.Name, r.Spec.Remediator, r.Status.Begun = name, mendv1.RemediatedByRequest, new(after(begun))
			r.Spec.Target = mendv1.RecordTarget{Node: NodeRef("node", "uid")}
		})
	}
	m := newManagement(t, onNode("a", 0), onNode("b", time.Minute), onNode("to come", time.Hour))
	m.clock.SetTime(noon.Add(2 * time.Minute))
	kept := &Records{Client: m.Client, Clock: m.clock, Installed: func(context.Context, string) (bool, error) { return true, nil }}
	if former := kept.Repeated(t.Context(), m.Client, "metal", "Node", "node"); len(former) != 0 {
		t.Errorf("before the cache is filled there are %d", len(former))
	}
	until := kept.Awaited(t.Context())
	m.clock.Step(time.Second)
	if again := kept.Awaited(t.Context()); until.IsZero() || !again.Equal(until) {
		t.Errorf("they are awaited until %s, then %s", until, again)
	}
	kept.synced = yesNow
	if until := kept.Awaited(t.Context()); !until.IsZero() {
		t.Errorf("they are there, and awaited until %s", until)
	}
	if former := kept.Repeated(t.Context(), newShelf(t).server, "metal", "Node", "node"); len(former) != 2 {
		t.Errorf("%d remediations count, want the two that were begun", len(former))
	}
}
