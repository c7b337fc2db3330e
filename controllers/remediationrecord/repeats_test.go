package remediationrecord

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestAClosedRecordStaysInTheCacheForAsLongAsItMayTellOfALoop(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...) // of a Machine that had no node
	m.replaced()
	must.Is(t, "false", m.record().Labels[mendv1.RecordOpenLabel], "when it is closed its label is")
	must.Is(t, "false", m.reconcile(12 * time.Hour).Labels[mendv1.RecordOpenLabel], "after less than twelve hours its label is")
	if label, labelled := m.reconcile(12*time.Hour + 10*time.Minute).Labels[mendv1.RecordOpenLabel]; labelled {
		t.Errorf("after that its label is %q", label)
	}
	m = newManagement(t, append(fleet(), unhealthy(), recordOf(func(r *mendv1.RemediationRecord) { r.Spec.Target.Node = NodeRef("n", "") }))...)
	if label, labelled := m.replaced().Labels[mendv1.RecordOpenLabel]; labelled {
		t.Errorf("of a Machine that had a node its label is %q", label)
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
	want := "# HELP kubemend_remediation_loop How often the Machines of an owner that never had a Node, a host, " +
		"or the node of a NodeHealthCheck were remediated without being healthy for an hour in between; no series below 2." + `
# TYPE kubemend_remediation_loop gauge
kubemend_remediation_loop{cluster="",kind="Node",name="node",namespace="metal"} 3
kubemend_remediation_loop{cluster="c",kind="BareMetalHost",name="host-7",namespace="metal"} 2
kubemend_remediation_loop{cluster="c",kind="MachineSet",name="pool",namespace="metal"} 2
`
	collector := &capacityMissing{m.Client, m.clock}
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "kubemend_remediation_loop"); err != nil {
		t.Error(err)
	}
}

// NodeHealthChecks have a cache of their own, without the index of records.
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
	kept.follow(yesNow)
	if until := kept.Awaited(t.Context()); !until.IsZero() {
		t.Errorf("they are there, and awaited until %s", until)
	}
	if former := kept.Repeated(t.Context(), newShelf(t).server, "metal", "Node", "node"); len(former) != 2 {
		t.Errorf("%d remediations count, want the two that were begun", len(former))
	}
}
