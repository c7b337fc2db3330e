package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/golden"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time      { return noon.Add(time.Duration(seconds) * time.Second) }
func stamp(seconds int) metav1.Time { return metav1.NewTime(at(seconds)) }

func regarding(kind, namespace, name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
}

func event(seconds int, about corev1.ObjectReference, reason, note string, edits ...func(*eventsv1.Event)) eventsv1.Event {
	e := eventsv1.Event{EventTime: metav1.NewMicroTime(at(seconds)), Regarding: about, Reason: reason, Note: note, Type: corev1.EventTypeNormal, ReportingController: "kubemend"}
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

// old makes it an event of client-go's older recorder.
func old(component string, times int32, last int) func(*eventsv1.Event) {
	return func(e *eventsv1.Event) {
		e.DeprecatedFirstTimestamp, e.DeprecatedLastTimestamp = metav1.NewTime(e.EventTime.Time), stamp(last)
		e.EventTime, e.ReportingController = metav1.MicroTime{}, ""
		e.DeprecatedSource.Component, e.DeprecatedCount = component, times
	}
}

func condition(seconds int, kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: stamp(seconds)}
}

// metal is a cluster in which a worker was power-cycled, and another one replaced, while a third one is healthy.
func metal() Objects {
	machine, check := regarding("Machine", "metal", "workers-a"), regarding("MachineHealthCheck", "metal", "workers")
	request, host := regarding("HostRemediation", "metal", "workers-a"), regarding("BareMetalHost", "metal", "host-0")
	const bad = "Health check failed: Node condition Ready is Unknown for longer than 5m0s"
	o := Objects{Events: []eventsv1.Event{
		event(0, machine, "MachineMarkedUnhealthy", "Machine metal/workers-a has been marked as unhealthy by metal/workers: "+bad, about(check)),
		event(1, check, "RemediationStarted", "HostRemediations were made for workers-a"),
		event(2, request, "AttemptBegan", "attempt 1 of 2 has begun", about(request)),
		event(2, machine, "AttemptBegan", "attempt 1 of 2 has begun", about(request)),
		event(3, request, "PowerOffRequested", "the host was asked to power off", about(request)),
		event(3, host, "PowerOffRequested", "the host was asked to power off", about(request)),
		event(20, host, "PowerOff", "Host soft powered off", old("metal3-baremetal-controller", 1, 20)),
		event(30, request, "WorkloadMoving", "12 pods are left on the node: default/a, default/b, default/c, default/d, default/e and 7 more; 3 volumes are attached still", about(request), seen(4, 95)),
		event(300, machine, "FailedDrainNode", "error draining Machine's node \"workers-a\": context deadline exceeded", warning, old("machine-controller", 7, 420)),
		event(600, check, "RemediationEnded", "Healthy again: workers-a"),
		event(700, check, "RemediationRestricted", "Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo (total: 3, unhealthy: 2, unhealthyLessThanOrEqualTo: 40%)", warning),
		event(710, check, "RemediationStarted", "The owners were asked to remediate workers-ab"),
		event(720, regarding("MachineSet", "metal", "workers"), "SuccessfulDelete", "Deleted Machine \"workers-ab\"", old("machineset-controller", 1, 720)),
		event(5, regarding("Pod", "metal", "workers-a"), "Started", "Started container", old("kubelet", 1, 5)),
		event(6, regarding("Node", "", "workers-a"), "NodeHasSufficientMemory", "no matter", old("kubelet", 1, 6)),
		event(0, regarding("Node", "", "workers-a"), "NodeNotReady", "Node workers-a status is now: NodeNotReady", old("node-controller", 1, 0)),
		event(8, regarding("NodeHealthCheck", "default", "all"), "RemediationSkipped", "[remediation] Skipped remediation of node: workers-a, because MachineHealthCheck metal/workers watches its Machine workers-a",
			about(regarding("Node", "", "workers-a")), warning, func(e *eventsv1.Event) { e.ReportingController = "NodeHealthCheck" }),
	}}
	for i, name := range []string{"workers-a", "workers-ab", "workers-c"} {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, CreationTimestamp: stamp(-86400), Labels: map[string]string{"pool": "workers"}}}
		m.Spec.ClusterName, m.Spec.InfrastructureRef.Name, m.Status.NodeRef.Name = "prod", name, name
		m.Status.Conditions = []metav1.Condition{condition(-86390, "HealthCheckSucceeded", metav1.ConditionTrue, "HealthCheckSucceeded", "")}
		o.Machines = append(o.Machines, m)
		h := bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: fmt.Sprintf("host-%d", i), CreationTimestamp: stamp(-90000)}}
		h.Spec.ConsumerRef = &corev1.ObjectReference{Name: name}
		h.Status.OperationHistory.Provision = bmov1alpha1.OperationMetric{Start: stamp(-86000 - i), End: stamp(-85000 - i)}
		o.Hosts = append(o.Hosts, h)
	}
	o.Machines[0].Status.Conditions[0] = condition(1, "HealthCheckSucceeded", metav1.ConditionFalse, "UnhealthyNode", bad) // as the event says
	o.Machines[1].Status.Conditions[0] = condition(690, "HealthCheckSucceeded", metav1.ConditionFalse, "NodeDeleted", "Health check failed: Node workers-ab has been deleted")
	deleted := stamp(721)
	o.Machines[1].DeletionTimestamp, o.Machines[1].Finalizers = &deleted, []string{"machine.cluster.x-k8s.io"}
	c := clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers", CreationTimestamp: stamp(-86400)}}
	c.Spec.ClusterName, c.Spec.Selector.MatchLabels = "prod", map[string]string{"pool": "workers"}
	claimed := stamp(-3600)
	c.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: mendv1.CommandLineFieldOwner, Time: &claimed, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:cluster.x-k8s.io/paused":{},"f:other":{}}}}`)}}
	c.Status.Conditions = []metav1.Condition{
		condition(-86390, mendv1.TargetsExclusive, metav1.ConditionTrue, "Exclusive", ""),
		condition(-7200, mendv1.WorkloadClusterReachable, metav1.ConditionTrue, "ReachableAgain", "The workload cluster answers again"),
	}
	o.Checks = append(o.Checks, c)
	r := unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "PoweredOff", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": "2026-01-01T12:00:25Z"},
		map[string]any{"type": "WorkloadMoved", "status": "False", "reason": "WorkloadMoving", "message": "12 pods", "lastTransitionTime": "2026-01-01T12:00:30Z"},
	}}}}
	r.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
	r.SetNamespace("metal")
	r.SetName("workers-a")
	r.SetCreationTimestamp(stamp(1))
	r.SetAnnotations(map[string]string{mendv1.MadeByAnnotation: "workers"})
	r.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Machine", Name: "workers-a"}})
	o.Requests = append(o.Requests, r)
	return o
}

func printed(t *testing.T, entries []Entry, width int, wide bool) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, entries, Layout{Now: noon.Add(13 * time.Minute), Width: width, Wide: wide, Namespaces: wide}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.TrimRight(line, "\n ") != strings.TrimRight(line, "\n") {
			t.Errorf("there are blanks at the end of %q", line)
		}
	}
	return b.String()
}

func TestHistoryHasWhatHappened(t *testing.T) {
	type story struct {
		scope Scope
		width int
		wide  bool
	}
	golden.Stories(t, map[string]story{
		"all at 200 columns":                     {Scope{}, 200, false},
		"all at 200 columns and who has told it": {Scope{}, 200, true},
		"one machine at 80 columns":              {Scope{Namespace: "metal", Machine: "workers-a"}, 80, false},
		"a replaced machine":                     {Scope{Machine: "workers-ab"}, 200, false},
		"one host in the last hour":              {Scope{Namespace: "metal", Host: "host-0", Since: at(-3600)}, 200, false},
		"one cluster in the last hour":           {Scope{Namespace: "metal", Cluster: "prod", Since: at(-3600)}, 80, true},
	}, func(t *testing.T, s story) string { return printed(t, Of(metal(), s.scope), s.width, s.wide) })
}

func TestAMachineThatIsGoneIsKnownByItsName(t *testing.T) {
	o := metal()
	o.Machines, o.Hosts, o.Checks = nil, nil, nil
	var got []string
	for _, e := range Of(o, Scope{Namespace: "metal", Machine: "workers-ab"}) {
		got = append(got, e.Object.String()+" "+e.Reason)
	}
	if diff := cmp.Diff([]string{"MachineHealthCheck metal/workers RemediationStarted", "MachineSet metal/workers SuccessfulDelete"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARequestThatIsGoneIsKnownByTheNameOfItsMachine(t *testing.T) {
	o := metal()
	o.Requests = nil
	o.Events = append(o.Events,
		event(25, regarding("HostRemediation", "metal", "workers-a"), "PoweredOff", "the host is off"),
		event(26, regarding("HostRemediation", "metal", "workers-c"), "PoweredOff", "the host is off"),
		event(27, regarding("HostRemediation", "other", "workers-a"), "PoweredOff", "the host is off"))
	for name, scope := range map[string]Scope{
		"its machine": {Namespace: "metal", Machine: "workers-a"}, "its host": {Namespace: "metal", Host: "host-0"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Of(o, scope) {
				if e.Reason == "PoweredOff" {
					got = append(got, e.Object.String())
				}
			}
			if diff := cmp.Diff([]string{"HostRemediation metal/workers-a"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsOutOfScopeIsLeftOut(t *testing.T) {
	for name, s := range map[string]Scope{
		"another namespace":         {Namespace: "other"},
		"a machine of another name": {Namespace: "metal", Machine: "workers"},
		"another cluster":           {Cluster: "test"},
		"what is long ago":          {Since: at(100000)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range Of(metal(), s) {
				if e.Object.Namespace != "" { // nodes are in none
					t.Errorf("%s %s %s", e.Object, e.Reason, e.Text)
				}
			}
		})
	}
}

func TestWhatAnEventSaysTheConditionDoesNot(t *testing.T) {
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "metal"}}
	long := strings.Repeat("very ", 300) + "long"
	for name, tc := range map[string]struct {
		event     eventsv1.Event
		condition metav1.Condition
		want      int
	}{
		"the same text":              {event(0, regarding("Machine", "metal", "a"), "Marked", "Machine a: it is bad"), condition(59, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 1},
		"the same reason":            {event(0, regarding("Machine", "metal", "a"), "Bad", "x"), condition(1, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 1},
		"a text that was cut":        {event(0, regarding("Machine", "metal", "a"), "Marked", long[:1021]+"..."), condition(1, "HealthCheckSucceeded", "False", "Bad", long), 1},
		"another text":               {event(0, regarding("Machine", "metal", "a"), "Marked", "it is good"), condition(1, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 2},
		"the same at another time":   {event(0, regarding("Machine", "metal", "a"), "Bad", "it is bad"), condition(61, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 2},
		"the same of another object": {event(0, regarding("Machine", "metal", "b"), "Bad", "it is bad"), condition(1, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 2},
		"an event that came again":   {event(-600, regarding("Machine", "metal", "a"), "Bad", "it is bad", seen(3, 0)), condition(1, "HealthCheckSucceeded", "False", "Bad", "it is bad"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m.Status.Conditions = []metav1.Condition{tc.condition}
			if got := Of(Objects{Events: []eventsv1.Event{tc.event}, Machines: []clusterv1.Machine{m}}, Scope{}); len(got) != tc.want {
				t.Errorf("there are %d entries, want %d: %+v", len(got), tc.want, got)
			}
		})
	}
}

func TestANodeHealthCheckRemembersItsSteps(t *testing.T) {
	c := nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "all", CreationTimestamp: stamp(-9)}}
	gone, well := stamp(20), stamp(30)
	first := nhcv1.Remediation{Resource: corev1.ObjectReference{Kind: "Reboot", Name: "a-1"}, Started: stamp(10), TimedOut: &gone}
	c.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{{Name: "a", Remediations: []nhcv1.Remediation{first}, ConditionsHealthyTimestamp: &well}}
	c.Status.Conditions = []metav1.Condition{condition(40, "Disabled", metav1.ConditionTrue, "RemediationTemplateNotFound", "no template")}
	want := `LAST SEEN   TYPE      REASON                        OBJECT                MESSAGE
13m         Normal    Created                       NodeHealthCheck/all   check created
12m         Normal    RemediationCreated            NodeHealthCheck/all   Reboot a-1 created for node a
12m         Warning   RemediationTimedOut           NodeHealthCheck/all   Reboot a-1 for node a timed out
12m         Normal    NodeHealthy                   NodeHealthCheck/all   node a is healthy again; its remediation is still in flight
12m         Warning   RemediationTemplateNotFound   NodeHealthCheck/all   no template
`
	if diff := cmp.Diff(want, printed(t, Of(Objects{NodeChecks: []nhcv1.NodeHealthCheck{c}}, Scope{}), 200, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhoWroteTheLabelThatClaimsChecks(t *testing.T) {
	o := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kustomize-controller", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}},"f:annotations":{"f:kubemend.io/machine-health-checks":{}}}}`)},
		{Manager: "kubectl-label", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:kubemend.io/machine-health-checks":{}}}}`)},
	}}
	if got := LabelledBy(o); got != "kubectl-label" {
		t.Errorf("got %q", got)
	}
	o.ManagedFields = o.ManagedFields[:1]
	if got := LabelledBy(o); got != "" {
		t.Errorf("without the label: %q", got)
	}
}

func TestWhatAPersonAskedForIsInTheHistory(t *testing.T) {
	by := map[string]string{mendv1.RequestedAnnotation: `{"by":"alice","at":"2026-01-01T12:00:10Z","reason":"NIC drops packets"}`}
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "metal", Annotations: by}}
	h := bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "metal", Annotations: map[string]string{
		mendv1.ResetAnnotation: `{"by":"bob","at":"2026-01-01T12:00:20Z"}`,
	}}}
	want := `LAST SEEN   TYPE     REASON                 OBJECT            MESSAGE
12m         Normal   RemediationRequested   Machine/a         remediation requested by alice: NIC drops packets
12m         Normal   MarksReset             BareMetalHost/h   reset by bob
`
	got := printed(t, Of(Objects{Machines: []clusterv1.Machine{m}, Hosts: []bmov1alpha1.BareMetalHost{h}}, Scope{}), 200, false)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
